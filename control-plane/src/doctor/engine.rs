//! One replica: what was seen of it -> items.

use crate::config::{PoolConfig, ReplicaConfig};
use crate::facts::models::Models;

use super::item::{Item, Status};
use super::probe::{Failed, Seen};
use super::samples::samples;
use super::text::PoolText;

mod astray;
mod caching;
mod disaggregated;
mod events;
mod hashes;
mod hung;
mod prompt;
mod sources;
mod version;

pub(super) use version::parts as version_parts;

/// What is asked of its API.
const OF_API: [&str; 7] = [
    "engine.version",
    "engine.events",
    "engine.hashes",
    "engine.tokenizer",
    "engine.template",
    "engine.cached_tokens",
    "engine.stream_usage",
];

/// A replica, and what is expected of it.
pub struct Subject<'a> {
    /// Its pool.
    pub pool: &'a PoolConfig,
    /// As configured.
    pub replica: &'a ReplicaConfig,
    /// The pool's prompts, if they can be made.
    pub text: Option<&'a PoolText>,
    /// The engines' `PYTHONHASHSEED`, if it is known.
    pub python_hash_seed: Option<&'a str>,
    /// All replicas that were looked at, this one too.
    pub fleet: &'a [(&'a ReplicaConfig, &'a Seen)],
}

/// Judges a replica.
#[must_use]
pub fn judge(subject: &Subject<'_>, seen: &Seen) -> Vec<Item> {
    let name = subject.replica.name.as_str();
    if let Some(items) = hung::judge(subject, seen) {
        return items;
    }
    let astray = astray::judge(subject, seen);
    let reachable = astray
        .reachable
        .unwrap_or_else(|| reachable(name, subject.replica, seen));
    if astray.is_all {
        return hung::only(
            reachable,
            name,
            "not the engine answers: see engine.reachable",
        );
    }
    if hung::is_gone(seen) {
        return hung::only(reachable, name, "nobody answers: see engine.reachable");
    }
    let mut items = vec![reachable];
    let models = astray.models;
    items.push(models.unwrap_or_else(|| self::models(subject, seen)));
    items.push(version::judge(name, seen.version.as_deref()));
    items.push(caching::enabled(subject, seen));
    items.push(ranks(subject, seen));
    items.push(disaggregated::judge(name, seen));
    items.extend(events::judge(subject, seen));
    items.extend(sources::judge(subject, seen, &items));
    items.push(hashes::judge(subject, seen));
    items.extend(prompt::judge(subject, seen));
    items.extend(caching::usage(name, seen));
    follow(&mut items, seen);
    items
}

/// Of a replica that nobody has looked at.
pub(super) fn not_looked_at(name: &str, why: &str) -> Vec<Item> {
    hung::only(Item::skipped("engine.reachable", name, why), name, why)
}

/// What the API tells, where it does not answer: one fault, said once.
fn follow(items: &mut [Item], seen: &Seen) {
    if seen.models.is_ok() {
        return;
    }
    let skipped = items.iter_mut();
    let skipped = skipped.filter(|item| item.status == Status::Skipped);
    for item in skipped.filter(|item| OF_API.contains(&item.id)) {
        item.found = "the API does not answer: see engine.models".to_owned();
    }
}

fn reachable(name: &str, replica: &ReplicaConfig, seen: &Seen) -> Item {
    const ID: &str = "engine.reachable";
    let fix = |what: &str| {
        format!("{what}; `endpoint`, `health`, `metrics` and `api` say where it is asked")
    };
    if let (Ok(()), Ok(metrics)) = (&seen.health, &seen.metrics)
        && let Some(item) = hung::request(ID, name, metrics, seen)
    {
        return item;
    }
    match (&seen.health, &seen.metrics) {
        (Ok(()), Ok(_)) => Item::ok(ID, name, "/health and /metrics answer"),
        (Err(Failed::Unreachable), _) => Item::fail(
            ID,
            name,
            format!("{}: nobody answers", replica.health),
            fix("start the engine, or let this machine reach it"),
        ),
        (Err(why), _) => Item::fail(
            ID,
            name,
            format!("{}: {why}", replica.health),
            fix("the engine is not well: look at its log, restart it"),
        ),
        (_, Err(why)) => Item::fail(
            ID,
            name,
            format!("{}: {why}", replica.metrics),
            fix("its load is not known, so it counts as down: let /metrics be read"),
        ),
    }
}

fn models(subject: &Subject<'_>, seen: &Seen) -> Item {
    const ID: &str = "engine.models";
    let (name, configured) = (subject.replica.name.as_str(), &subject.pool.models);
    let url = format!("{}/v1/models", subject.replica.api);
    let is_it = "is `api` (or `endpoint`) the engine's address?";
    match &seen.models {
        Err(Failed::Status(401 | 403, _)) => Item::fail(
            ID,
            name,
            "/v1/models wants an API key",
            "name a file with it in the pool's `api_key_file`",
        ),
        Err(Failed::Status(404, _)) => Item::fail(
            ID,
            name,
            format!("{url}: status 404: a server answers there, which has no /v1/models"),
            is_it,
        ),
        Err(why @ Failed::Status(..)) => Item::fail(
            ID,
            name,
            format!("{url}: {why}"),
            format!("look at the engine's log; {is_it}"),
        ),
        Err(Failed::Unreadable) => Item::fail(
            ID,
            name,
            format!("{url}: what answers tells no models"),
            is_it,
        ),
        Err(why) => Item::fail(
            ID,
            name,
            format!("{url}: {why}"),
            "let this machine reach the engine's API at the replica's `api`",
        ),
        Ok(models) => {
            let complaints = models.complaints(configured);
            let fix = "let the pool's `models` and the engine's --served-model-name agree";
            if complaints.is_empty() {
                Item::ok(ID, name, served(models))
            } else if models.lacks_any_of(configured) {
                Item::fail(ID, name, complaints.join("; "), fix)
            } else {
                Item::warn(ID, name, complaints.join("; "), fix)
            }
        }
    }
}

fn served(models: &Models) -> String {
    let names: Vec<&str> = models.bases.iter().map(|(name, _)| name.as_str()).collect();
    format!("serves {}", names.join(", "))
}

/// Ranks behind the endpoint, and whether the configuration knows.
fn ranks(subject: &Subject<'_>, seen: &Seen) -> Item {
    const ID: &str = "engine.ranks";
    let (name, configured) = (&subject.replica.name, subject.replica.data_parallel_rank);
    let text = seen.metrics.as_deref().unwrap_or_default();
    let running = samples(text).filter(|sample| sample.name == "vllm:num_requests_running");
    let mut ranks: Vec<u16> = running
        .filter_map(|sample| sample.label("engine")?.parse().ok())
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    match configured {
        _ if ranks.is_empty() => Item::skipped(ID, name, "the metrics name no ranks"),
        None if ranks.len() > 1 => Item::fail(
            ID,
            name,
            format!(
                "{} data-parallel ranks behind one endpoint, configured as one replica",
                ranks.len()
            ),
            "list a replica for each rank, with the same `endpoint`, its `data_parallel_rank` and its `events` (port + rank)",
        ),
        Some(rank) if !ranks.contains(&rank) => Item::fail(
            ID,
            name,
            format!("data_parallel_rank is {rank}, the engine has {ranks:?}"),
            "use a rank that the engine has (--data-parallel-size)",
        ),
        None => Item::ok(ID, name, "one cache behind the endpoint"),
        Some(rank) => Item::ok(ID, name, format!("rank {rank} of {ranks:?}")),
    }
}
