//! The replicas of all pools, each looked at, and against each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::Options;
use super::control_plane::Engines;
use super::engine::{self, Subject};
use super::item::Item;
use super::probe::{self, Seen};
use super::text::PoolText;
use crate::config::{Config, PoolConfig, ReplicaConfig};

/// Replicas looked at side by side.
const SIDE_BY_SIDE: usize = 64;
/// How long a model's files may take to be read, or fetched.
const LOAD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

/// Looks at all replicas until `deadline`; also says which engines have faults. `configured` lacks those of `config` that were discovered.
pub(super) async fn examine(
    configured: &Config,
    config: &Config,
    options: &Options,
    client: &reqwest::Client,
    deadline: Instant,
) -> (Vec<Item>, Engines) {
    let mut looks = JoinSet::new();
    let room = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let mut number = 0;
    for (at, pool) in config.pools.iter().enumerate() {
        let shared = Arc::new(pool.clone());
        let listed = configured
            .pools
            .get(at)
            .map_or(0, |pool| pool.replicas.len());
        for (nth, replica) in pool.replicas.iter().enumerate() {
            let (pool, mut replica) = (shared.clone(), replica.clone());
            let (client, room, probe) = (client.clone(), room.clone(), options.probe);
            looks.spawn(async move {
                let look = async {
                    let _one = room.acquire().await;
                    if nth >= listed {
                        // The configuration only guesses where its events are.
                        probe::find_events(&pool, &mut replica, &client).await;
                    }
                    probe::look(&pool, &replica, &client, probe).await
                };
                let seen = timeout_at(deadline, look).await.ok();
                (at, number, replica, seen)
            });
            number += 1;
        }
    }
    let mut texts = Vec::new();
    for pool in &config.pools {
        texts.push(text_of(pool).await);
    }
    let mut seen = Vec::new();
    while let Some(look) = looks.join_next().await {
        seen.extend(look.ok());
    }
    seen.sort_by_key(|(_, number, _, _)| *number);
    for (at, _, _, seen) in &mut seen {
        let text = texts.get(*at).and_then(|(_, text)| text.as_ref());
        if let Some(requests) = seen.as_mut().and_then(|seen| seen.requests.as_mut()) {
            requests.recognise(text);
        }
    }
    let fleet = seen.iter();
    let fleet = fleet.filter_map(|(_, _, replica, seen)| Some((replica, seen.as_ref()?)));
    let fleet: Vec<(&ReplicaConfig, &Seen)> = fleet.collect();
    let (mut items, mut engines) = (Vec::new(), Engines::default());
    for (at, (pool, (item, text))) in config.pools.iter().zip(texts).enumerate() {
        items.push(item);
        let of_pool = seen.iter().filter(|(pool, ..)| *pool == at);
        let of_pool: Vec<_> = of_pool
            .map(|(_, _, replica, seen)| (replica, seen))
            .collect();
        for (replica, seen) in &of_pool {
            let subject = Subject {
                pool,
                replica,
                text: text.as_ref(),
                fleet: &fleet,
                python_hash_seed: options.python_hash_seed.as_deref(),
            };
            match seen {
                Some(seen) => {
                    let of_engine = engine::judge(&subject, seen);
                    engines.note(&pool.name, &replica.name, &of_engine);
                    items.extend(of_engine);
                }
                None => items.extend(engine::not_looked_at(
                    &replica.name,
                    "the time was over before this replica was looked at: more by --time",
                )),
            }
        }
        let seen = of_pool
            .iter()
            .filter_map(|(replica, seen)| Some((*replica, seen.as_ref()?)));
        items.extend(against_each_other(pool, &seen.collect::<Vec<_>>()));
    }
    (items, engines)
}

/// The pool's prompts, and whether they can be made.
async fn text_of(pool: &PoolConfig) -> (Item, Option<PoolText>) {
    const ID: &str = "pool.model";
    const FIX: &str = "`prefix-picker check` says what is wrong with the model's folder";
    let name = pool.name.clone();
    let owned = pool.clone();
    let load = tokio::task::spawn_blocking(move || PoolText::load(&owned));
    let text = match timeout(LOAD_TIMEOUT, load).await {
        Ok(Ok(Ok(text))) => text,
        Ok(Ok(Err(error))) => return (Item::fail(ID, &name, format!("{error:#}"), FIX), None),
        Ok(Err(_)) => return (Item::fail(ID, &name, "reading it failed", FIX), None),
        Err(_) => {
            let found = format!("not there within {} s", LOAD_TIMEOUT.as_secs());
            return (Item::fail(ID, &name, found, FIX), None);
        }
    };
    let obstacles = text.obstacles();
    let item = if obstacles.is_empty() {
        Item::ok(
            ID,
            &name,
            "tokenizer and template can be used; prompts are exact",
        )
    } else {
        let fix = "such requests are placed by history; docs/prompt-profiles.md says what is exact";
        Item::warn(ID, &name, obstacles.join("; "), fix)
    };
    (item, Some(text))
}

/// What must be the same in all of a pool's engines.
fn against_each_other(pool: &PoolConfig, seen: &[(&ReplicaConfig, &Seen)]) -> Vec<Item> {
    let block_size = |replica: &ReplicaConfig, seen: &Seen| {
        let text = seen.metrics.as_deref().ok()?;
        let figures = crate::scrape::parse::figures(text, replica.data_parallel_rank);
        Some(figures.block_size?.to_string())
    };
    let version = |_: &ReplicaConfig, seen: &Seen| seen.version.clone();
    vec![
        same(
            "pool.block_size",
            &pool.name,
            "blocks of so many tokens",
            "start all engines of a pool with the same --block-size: gateways reckon with one",
            seen,
            block_size,
        ),
        same(
            "pool.version",
            &pool.name,
            "versions",
            "end the roll-out: prompts are rendered by the rules of the version that most engines have",
            seen,
            version,
        ),
    ]
}

fn same(
    id: &'static str,
    pool: &str,
    what: &str,
    fix: &str,
    seen: &[(&ReplicaConfig, &Seen)],
    of: impl Fn(&ReplicaConfig, &Seen) -> Option<String>,
) -> Item {
    let mut values: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (replica, seen) in seen {
        if let Some(value) = of(replica, seen) {
            values.entry(value).or_default().push(&replica.name);
        }
    }
    let told = |(value, names): (&String, &Vec<&str>)| match names.as_slice() {
        [one] => format!("{value} ({one})"),
        [first, ..] => format!("{value} ({first} and {} more)", names.len() - 1),
        [] => value.clone(),
    };
    match values.len() {
        0 => Item::skipped(id, pool, "no engine tells"),
        1 => Item::ok(id, pool, values.keys().cloned().collect::<String>()),
        _ => {
            let told: Vec<String> = values.iter().map(told).collect();
            Item::warn(
                id,
                pool,
                format!("different {what}: {}", told.join(", ")),
                fix,
            )
        }
    }
}
