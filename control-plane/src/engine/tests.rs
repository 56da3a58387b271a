//! A gateway in memory that polls and applies, against the table itself.

use std::path::Path;

use prefix_picker_core::ids::BlockHash;
use prefix_picker_core::sync::{Answer, MAJOR, Poll, ReplicaState};
use prefix_picker_core::table::PageRef;
use proptest::prelude::*;

use super::answer::answer_within;
use super::*;
use crate::events::{EngineHash, KvEvent, Removed, Stored};
use crate::metrics::{Metrics, ReplicaLabels};
use crate::profiles::load_model_dir;
use crate::subscriber::Sink as _;
use crate::subscriber::signals::digest;

mod facts;
mod gateway;
mod members;

pub(crate) use gateway::Gateway;

/// A configuration with two pools of the model that the project ships; its engines are not there.
pub(crate) fn config(data_dir: &Path) -> Config {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/engine-sim/model");
    let text = format!(
        "
listen: 127.0.0.1:0
tokens: [first-token, second-token]
fleet_secret: a-secret-of-the-tests
data_dir: {}
scrape_interval_ms: 10
pools:
  - name: one
    model_dir: {model}
    models: [sim]
    clusters: [pool]
    replicas:
      - {{name: a, endpoint: '127.0.0.1:1', events: 'tcp://127.0.0.1:2', replay: 'tcp://127.0.0.1:3'}}
      - {{name: b, endpoint: '127.0.0.1:4', events: 'tcp://127.0.0.1:5'}}
  - name: two
    model_dir: {model}
    models: [other]
    clusters: [pool]
    token_ids: 'off'
    replicas:
      - {{name: c, endpoint: '127.0.0.1:6', events: 'tcp://127.0.0.1:7'}}
",
        data_dir.display(),
        model = model.display(),
    );
    Config::parse(&text).unwrap()
}

pub(crate) fn engine_of(config: &Config) -> Engine {
    let parts = config
        .pools
        .iter()
        .map(|pool| {
            let files = load_model_dir(&pool.model_dir).unwrap();
            PoolParts {
                profile: files.profile,
                vocab: files.vocab,
            }
        })
        .collect();
    Engine::new(config, parts, b"a-secret-of-the-tests", Epoch(77), 1000)
}

/// A store of blocks of 16 tokens that spell `text`, one token a byte where the vocabulary has it.
pub(crate) fn stored(engine: &Engine, text: &str, first_hash: u64) -> KvEventBatch {
    let vocab = &engine.pools()[0].vocab;
    let token = |byte: u8| {
        (0..1000)
            .find(|id| vocab.bytes(*id) == Some(&[byte]))
            .unwrap()
    };
    let tokens: Vec<u32> = text.bytes().map(token).collect();
    let whole = tokens.len() / 16 * 16;
    let hashes = (0..whole / 16)
        .map(|n| EngineHash::from_u64(first_hash + n as u64))
        .collect();
    let event = Stored {
        hashes,
        tokens: tokens[..whole].to_vec(),
        block_size: 16,
        block_size_given: true,
        ..Stored::default()
    };
    KvEventBatch {
        events: vec![KvEvent::Stored(event)],
        ..KvEventBatch::default()
    }
}

pub(crate) fn at(seq: u64) -> Position {
    Position {
        seq,
        digest: digest(&seq.to_be_bytes()),
    }
}

fn groups_of(table: &TableStore) -> Vec<(BlockHash, Vec<u8>)> {
    let pages: Vec<_> = (0..table.page_count())
        .map(|index| table.page(index))
        .collect();
    let pages = pages.iter().map(|page| PageRef::verify(page).unwrap());
    pages
        .flat_map(|page| {
            page.groups()
                .map(|(anchor, body)| (anchor, body.to_vec()))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Act {
    Upsert(u8, u8),
    Remove(u8),
    Poll,
    /// A new life of the control plane.
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => (any::<u8>(), 1u8..200).prop_map(|(anchor, len)| Act::Upsert(anchor, len)),
        10 => any::<u8>().prop_map(Act::Remove),
        8 => Just(Act::Poll),
        1 => Just(Act::Restart),
    ]
}

/// Anchors spread over all pages.
fn anchor(number: u8) -> BlockHash {
    BlockHash(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever changes between its polls, re-layouts and new lives included, a gateway ends with
    /// what the table has, however small the answers.
    #[test]
    fn a_gateway_converges_to_the_table(acts in prop::collection::vec(act(), 1..250), budget in 1usize..3000) {
        let mut epoch = 1;
        let mut table = TableStore::with_pages(Epoch(epoch), 400, 1);
        let mut gateway = Gateway::default();
        for (number, act) in acts.iter().enumerate() {
            match *act {
                Act::Upsert(at, len) => {
                    table.upsert(anchor(at), vec![number as u8; len.into()]);
                }
                Act::Remove(at) => {
                    table.remove(anchor(at));
                }
                Act::Poll => {
                    let answer = answer_within(budget, &gateway.poll(), &table, &[], 0, &[]);
                    gateway.take(&Answer { head: None, ..answer });
                }
                Act::Restart => {
                    epoch += 1;
                    table = TableStore::with_pages(Epoch(epoch), 400, 1);
                }
            }
        }
        for _ in 0..2000 {
            let answer = Answer { head: None, ..answer_within(budget, &gateway.poll(), &table, &[], 0, &[]) };
            if !has_news(&answer) {
                break;
            }
            gateway.take(&answer);
        }
        prop_assert_eq!(gateway.groups(), groups_of(&table));
        prop_assert_eq!(gateway.have.map(|have| (have.epoch, have.generation)), Some((epoch, table.generation())));
    }
}

const TEXT: &str = "You are a careful assistant for a team that runs large language models and answers briefly. \
    You are a careful assistant for a team that runs large language models and answers briefly. \
    You are a careful assistant for a team that runs large language models and answers briefly. \
    You are a careful assistant for a team that runs large language models and answers briefly. \
    You are a careful assistant for a team that runs large language models and answers briefly. \
    You are a careful assistant for a team that runs large language models and answers briefly.";

fn in_temp(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("prefix-picker-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn events_become_matches_and_a_drop_takes_them_back() {
    let dir = in_temp("engine");
    let engine = engine_of(&config(&dir));
    engine.open();
    let mut gateway = Gateway::default();
    gateway.settle(&engine);
    assert_eq!(gateway.matches(TEXT), vec![]);

    let mut news = engine.news();
    news.mark_unchanged();
    engine.apply(ReplicaIndex(0), at(0), &stored(&engine, TEXT, 100));
    engine.apply(ReplicaIndex(1), at(0), &stored(&engine, &TEXT[..300], 100));
    assert!(!engine.publish());
    assert!(news.has_changed().unwrap());
    gateway.settle(&engine);
    let found = gateway.matches(TEXT);
    assert!(
        matches!(found[..], [(0, a), (1, b)] if a >= 2 && b >= 1 && a > b),
        "{found:?}"
    );

    let removed = Removed {
        hashes: vec![EngineHash::from_u64(100)],
        ..Removed::default()
    };
    engine.apply(
        ReplicaIndex(0),
        at(1),
        &KvEventBatch {
            events: vec![KvEvent::Removed(removed)],
            ..Default::default()
        },
    );
    engine.drop_replica(ReplicaIndex(1));
    engine.publish();
    gateway.settle(&engine);
    assert_eq!(gateway.matches(TEXT), vec![]);
    std::fs::remove_dir_all(dir).unwrap();
}

/// A removal that cannot be read may have been of any block: none is claimed any more.
#[test]
fn an_unreadable_removal_takes_the_replicas_blocks() {
    let dir = in_temp("lost-removal");
    let engine = std::sync::Arc::new(engine_of(&config(&dir)));
    engine.open();
    engine.apply(ReplicaIndex(0), at(0), &stored(&engine, TEXT, 100));
    engine.publish();
    let mut gateway = Gateway::default();
    gateway.settle(&engine);
    assert_eq!(gateway.matches(TEXT).len(), 1);

    let labels = ReplicaLabels {
        pool: "one".into(),
        replica: "a".into(),
    };
    let metrics = std::sync::Arc::new(Metrics::new());
    let sink = sink::ReplicaSink::new(engine.clone(), metrics, ReplicaIndex(0), labels);
    let unreadable = b"\x93\xcb\0\0\0\0\0\0\0\0\x91\x92\xacBlockRemoved\xa1x\0";
    sink.apply(at(1), &bytes::Bytes::from_static(unreadable), false)
        .unwrap();
    engine.publish();
    gateway.settle(&engine);
    assert_eq!(gateway.matches(TEXT), vec![]);
    assert_eq!(engine.position(ReplicaIndex(0)), Some(at(1)));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn states_loads_and_measures_reach_the_head() {
    let dir = in_temp("head");
    let engine = engine_of(&config(&dir));
    let states = |engine: &Engine| {
        engine
            .head()
            .replicas
            .iter()
            .map(|replica| replica.state)
            .collect::<Vec<_>>()
    };
    use ReplicaState::{Down, Draining, Ready, Warming};
    assert_eq!(states(&engine), [Down, Down, Down], "not seen yet");
    let first = engine.head().version;
    let up = Scraped {
        healthy: Some(true),
        ..Scraped::default()
    };
    engine.scraped(ReplicaIndex(0), up);
    engine.scraped(ReplicaIndex(1), up);
    engine.synced(ReplicaIndex(0), true);
    assert_eq!(states(&engine), [Ready, Warming, Down]);
    assert_eq!(engine.head().version, first + 3);
    assert_eq!(engine.unsettled_replicas(), ["b", "c"]);
    engine.scraped(
        ReplicaIndex(2),
        Scraped {
            healthy: Some(false),
            ..Scraped::default()
        },
    );
    engine.drain(ReplicaIndex(0), true);
    assert_eq!(states(&engine), [Draining, Warming, Down]);
    engine.drain(ReplicaIndex(0), false);

    let version = engine.head().version;
    let load = Load {
        running: 3,
        waiting: 1,
        kv_usage_permille: 250,
    };
    engine.scraped(
        ReplicaIndex(0),
        Scraped {
            healthy: Some(true),
            load: Some(load),
            ..Scraped::default()
        },
    );
    assert_eq!(
        engine.head().version,
        version,
        "loads wait for the next announcement"
    );
    engine.announce_loads(0);
    engine.announce_loads(0);
    assert_eq!(engine.head().version, version + 1);
    assert_eq!(engine.head().replicas[0].running, 3);

    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn rates_and_ramps_reach_the_head() {
    let dir = in_temp("pace");
    let engine = engine_of(&config(&dir));
    let scraped = |replica, healthy, prefill_tokens_per_s| {
        let rates = prefix_picker_core::pick::Rates {
            prefill_tokens_per_s,
            ..Default::default()
        };
        let scraped = Scraped {
            healthy: Some(healthy),
            rates: Some(rates),
            ..Scraped::default()
        };
        engine.scraped(ReplicaIndex(replica), scraped);
    };
    let pace = |replica: usize| {
        let pace = engine.head().replicas[replica].pace;
        (pace.prefill_tokens_per_s, pace.ramp_permille)
    };
    scraped(0, true, 5_000);
    scraped(1, true, 30_000);
    engine.announce_loads(1_000);
    assert_eq!((pace(0), pace(1)), ((5_000, 1_000), (30_000, 1_000)));
    // A little more or less is not worth a head.
    let version = engine.head().version;
    scraped(0, true, 5_400);
    engine.announce_loads(1_200);
    assert_eq!((engine.head().version, pace(0).0), (version, 5_000));
    scraped(0, true, 6_000);
    engine.announce_loads(1_400);
    assert_eq!(pace(0), (6_000, 1_000));
    // Away for long, and back.
    scraped(1, false, 30_000);
    engine.announce_loads(2_000);
    scraped(1, true, 30_000);
    engine.announce_loads(9_000);
    assert_eq!((pace(0).1, pace(1).1), (1_000, 0));
    engine.announce_loads(24_000);
    assert_eq!(pace(1).1, 500);
    engine.announce_loads(40_000);
    assert_eq!(pace(1).1, 1_000);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_stores_and_polls_tell_of_a_pool_reaches_the_head() {
    let dir = in_temp("measures");
    let engine = engine_of(&config(&dir));
    engine.apply(ReplicaIndex(0), at(0), &stored(&engine, TEXT, 1));
    engine.scraped(
        ReplicaIndex(1),
        Scraped {
            healthy: Some(false),
            ..Scraped::default()
        },
    );
    let pool = engine.head().pools[0].clone();
    assert_eq!(
        (pool.bytes_per_token_milli, pool.block_size, pool.token_ids),
        (1000, 16, false)
    );
    let poll = Poll {
        protocol: MAJOR,
        token_id_pools: vec!["one".into(), "two".into()],
        ..Poll::default()
    };
    let _ = engine.answer(&poll);
    let ids: Vec<_> = engine
        .head()
        .pools
        .iter()
        .map(|pool| pool.token_ids)
        .collect();
    assert_eq!(
        ids,
        [true, false],
        "on as reported, but not where it is off"
    );
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_snapshot_brings_blocks_and_positions_back() {
    let dir = in_temp("snapshot");
    let config = config(&dir);
    let engine = engine_of(&config);
    engine.apply(ReplicaIndex(0), at(5), &stored(&engine, TEXT, 100));
    engine.publish();
    let mut before = Gateway::default();
    before.settle(&engine);
    assert!(snapshot::write(&engine, &config).unwrap() > 0);

    // The next life has the replicas in another order.
    let mut swapped = config.clone();
    swapped.pools[0].replicas.swap(0, 1);
    let next = engine_of(&swapped);
    snapshot::load(&next, &swapped);
    assert_eq!(next.position(ReplicaIndex(1)), Some(at(5)));
    assert_eq!(next.position(ReplicaIndex(0)), None);
    next.publish();
    let mut after = Gateway::default();
    after.settle(&next);
    let renamed: Vec<_> = before
        .matches(TEXT)
        .into_iter()
        .map(|(replica, blocks)| (1 - replica, blocks))
        .collect();
    assert_eq!(after.matches(TEXT), renamed);
    assert!(!renamed.is_empty());

    // A broken file is left out, and does not keep us from starting.
    std::fs::write(dir.join("pool-one.snapshot"), b"nonsense").unwrap();
    let next = engine_of(&config);
    snapshot::load(&next, &config);
    assert_eq!(next.position(ReplicaIndex(0)), None);
    std::fs::remove_dir_all(dir).unwrap();
}
