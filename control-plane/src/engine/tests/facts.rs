//! What engines say of themselves: adapters, versions, new profiles.

use std::collections::BTreeMap;

use super::*;

const A: ReplicaIndex = ReplicaIndex(0);
const B: ReplicaIndex = ReplicaIndex(1);
const OTHER_POOLS: ReplicaIndex = ReplicaIndex(2);

fn adapters(list: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
    let owned = list
        .iter()
        .map(|(name, path)| ((*name).to_owned(), (*path).to_owned()));
    Some(owned.collect())
}

fn told(engine: &Engine) -> Vec<(String, Vec<u16>)> {
    let pool = engine.head().pools[0].clone();
    pool.loras
        .into_iter()
        .map(|l| (l.name, l.replicas.iter().map(|r| r.0).collect()))
        .collect()
}

/// The batch of an adapter's request.
fn with_adapter(mut batch: KvEventBatch, name: &str) -> KvEventBatch {
    for event in &mut batch.events {
        if let KvEvent::Stored(stored) = event {
            stored.lora_name = Some(name.to_owned());
            stored.lora_id = Some(1);
        }
    }
    batch
}

#[test]
fn adapters_reach_the_head_and_go_with_their_engine() {
    let dir = in_temp("adapters");
    let engine = engine_of(&config(&dir));
    engine.set_adapters(A, adapters(&[("sql", "/1"), ("law", "/1")]));
    engine.set_adapters(B, adapters(&[("sql", "/1")]));
    engine.set_adapters(OTHER_POOLS, adapters(&[("sql", "/1")]));
    let all = [("law".into(), vec![0]), ("sql".into(), vec![0, 1])];
    assert_eq!(told(&engine), all);
    let version = engine.head().version;
    engine.set_adapters(A, adapters(&[("sql", "/1"), ("law", "/1")]));
    engine.set_adapters(A, None);
    assert_eq!(engine.head().version, version, "nothing new");
    // It may come back without them.
    let down = Scraped {
        healthy: Some(false),
        ..Scraped::default()
    };
    engine.scraped(A, down);
    assert_eq!(told(&engine), [("sql".into(), vec![1])]);
    engine.doubt_adapters(B);
    assert_eq!(told(&engine), []);
    assert_eq!(engine.head().pools[1].loras.len(), 1);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn an_adapter_from_another_path_loses_its_blocks() {
    let dir = in_temp("adapter-path");
    let config = config(&dir);
    let engine = engine_of(&config);
    let store = |engine: &Engine, replica, seq, name: &str, hash| {
        let batch = with_adapter(stored(engine, TEXT, hash), name);
        engine.apply(replica, at(seq), &batch);
    };
    engine.set_adapters(A, adapters(&[("sql", "/1")]));
    engine.set_adapters(B, adapters(&[("sql", "/1")]));
    store(&engine, A, 0, "sql", 100);
    store(&engine, B, 0, "sql", 100);
    let held = engine.replica_blocks(A);
    assert!(held > 0);
    // Another adapter's blocks stay.
    store(&engine, A, 1, "law", 500);
    assert_eq!(engine.set_adapters(A, adapters(&[("sql", "/1")])), 0);
    assert_eq!(engine.set_adapters(A, adapters(&[("sql", "/2")])), held);
    assert_eq!(
        (engine.replica_blocks(A), engine.replica_blocks(B)),
        (held, held)
    );

    // What changes while no control plane looks is seen by the next one.
    snapshot::write(&engine, &config).unwrap();
    let next = |now: &[(&str, &str)]| {
        let next = engine_of(&config);
        snapshot::load(&next, &config);
        next.remember(&memory::Memory::read(&dir));
        next.set_adapters(B, adapters(now))
    };
    assert_eq!(next(&[("sql", "/1")]), 0);
    assert_eq!(next(&[("sql", "/3")]), held);
    assert_eq!(next(&[]), held);
    std::fs::remove_file(dir.join("facts.json")).unwrap();
    assert_eq!(next(&[("sql", "/1")]), held, "no proof that it is the same");

    assert_eq!(engine.forget_adapter("one", "sql"), Some(held));
    assert_eq!(engine.replica_blocks(B), 0);
    assert_eq!(engine.forget_adapter("three", "sql"), None);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_new_profile_begins_one_pool_anew() {
    let dir = in_temp("profile");
    let engine = engine_of(&config(&dir));
    engine.open();
    for replica in [A, OTHER_POOLS] {
        let up = Scraped {
            healthy: Some(true),
            ..Scraped::default()
        };
        engine.scraped(replica, up);
        engine.synced(replica, true);
        engine.apply(replica, at(0), &stored(&engine, TEXT, 100));
    }
    engine.publish();
    let mut gateway = Gateway::default();
    gateway.settle(&engine);
    let before = gateway.matches(TEXT);
    assert_eq!(before.len(), 1);
    let (a_life, other_life) = (engine.lives(A).unwrap(), engine.lives(OTHER_POOLS).unwrap());

    let old = lock(&engine.pools()[0].profile).clone();
    let profile = Profile {
        utc_offset_minutes: 60,
        ..old.clone()
    };
    engine.set_profile(0, profile.clone());
    // Whatever a gateway has by now, it matches nothing.
    gateway.settle(&engine);
    assert_eq!(gateway.matches(TEXT), vec![]);
    engine.publish();
    gateway.settle(&engine);
    assert_eq!(gateway.matches(TEXT), vec![]);
    let head = engine.head();
    assert_eq!(head.pools[0].profile_hash, profile.hash());
    assert_eq!(head.pools[1].profile_hash, old.hash());
    let states = [head.replicas[0].state, head.replicas[2].state];
    assert_eq!(states, [ReplicaState::Warming, ReplicaState::Ready]);
    assert!(a_life.has_changed().unwrap() && !other_life.has_changed().unwrap());
    assert_eq!(engine.position(A), None);
    assert_eq!(engine.position(OTHER_POOLS), Some(at(0)));
    let answer = engine.answer(&Poll {
        protocol: MAJOR,
        ..Poll::default()
    });
    let sent: Vec<u64> = answer.profiles.iter().map(|p| p.hash).collect();
    assert_eq!(sent, [profile.hash(), old.hash()]);

    // As the replay tells it again.
    engine.drop_replica(A);
    engine.apply(A, at(0), &stored(&engine, TEXT, 100));
    engine.publish();
    gateway.settle(&engine);
    assert_eq!(gateway.matches(TEXT), before);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_longest_prompt_reaches_gateways_and_changes_no_block() {
    let dir = in_temp("max-model-len");
    let config = config(&dir);
    let engine = engine_of(&config);
    engine.open();
    let up = Scraped {
        healthy: Some(true),
        ..Scraped::default()
    };
    engine.scraped(A, up);
    engine.synced(A, true);
    engine.apply(A, at(0), &stored(&engine, TEXT, 100));
    engine.publish();
    let mut gateway = Gateway::default();
    gateway.settle(&engine);
    let before = gateway.matches(TEXT);
    assert_eq!(before.len(), 1);
    let known = |gateway: &Gateway| gateway.profile(0).max_model_len;
    assert_eq!(known(&gateway), 0);
    let life = engine.lives(A).unwrap();

    engine.set_max_model_len(A, 8192);
    gateway.settle(&engine);
    assert_eq!((known(&gateway), gateway.matches(TEXT)), (8192, before));
    // All of a pool's engines take the shortest of their longest.
    engine.set_max_model_len(B, 4096);
    engine.set_max_model_len(OTHER_POOLS, 1024);
    gateway.settle(&engine);
    assert_eq!(known(&gateway), 4096);
    let version = engine.head().version;
    engine.set_max_model_len(A, 8192);
    assert_eq!(engine.head().version, version, "nothing new");
    engine.set_max_model_len(B, 16_384);
    gateway.settle(&engine);
    assert_eq!(known(&gateway), 8192);
    assert!(!life.has_changed().unwrap());

    // The next life does not know it yet, and loads what this one has.
    snapshot::write(&engine, &config).unwrap();
    let next = engine_of(&config);
    snapshot::load(&next, &config);
    assert_eq!(next.replica_blocks(A), engine.replica_blocks(A));
    assert!(next.replica_blocks(A) > 0);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_snapshot_of_another_profile_is_not_loaded() {
    let dir = in_temp("profile-snapshot");
    let config = config(&dir);
    let engine = engine_of(&config);
    engine.apply(A, at(5), &stored(&engine, TEXT, 100));
    snapshot::write(&engine, &config).unwrap();
    let next = engine_of(&config);
    let profile = Profile {
        utc_offset_minutes: 60,
        ..lock(&next.pools()[0].profile).clone()
    };
    next.set_profile(0, profile);
    snapshot::load(&next, &config);
    assert_eq!((next.position(A), next.replica_blocks(A)), (None, 0));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn versions_are_remembered() {
    let dir = in_temp("versions");
    let config = config(&dir);
    let engine = engine_of(&config);
    engine.set_version(A, "0.32.0");
    snapshot::write(&engine, &config).unwrap();
    let memory = memory::Memory::read(&dir);
    assert_eq!(
        (memory.version("a"), memory.version("b")),
        (Some("0.32.0"), None)
    );
    std::fs::write(dir.join("facts.json"), "{").unwrap();
    assert_eq!(memory::Memory::read(&dir), memory::Memory::default());
    std::fs::remove_dir_all(dir).unwrap();
}

/// What engines say of themselves comes from one task each: the head never names a profile that
/// gateways cannot have, nor is one change undone by another.
#[test]
fn profiles_change_one_at_a_time() {
    let dir = in_temp("profile-race");
    let engine = engine_of(&config(&dir));
    for n in 0..200 {
        let version = if n % 2 == 0 { "0.10.0" } else { "0.32.0" };
        std::thread::scope(|scope| {
            scope.spawn(|| engine.set_version(A, version));
            scope.spawn(|| engine.set_max_model_len(A, 1_000 + n));
            scope.spawn(|| engine.set_max_model_len(OTHER_POOLS, 2_000 + n));
        });
        let all = engine.answer(&Poll {
            protocol: MAJOR,
            ..Poll::default()
        });
        let sent: Vec<u64> = all.profiles.iter().map(|p| p.hash).collect();
        for (pool, longest) in [(0, 1_000 + n), (1, 2_000 + n)] {
            let profile = lock(&engine.pools()[pool].profile).clone();
            assert_eq!(profile.max_model_len, longest);
            assert_eq!(engine.head().pools[pool].profile_hash, profile.hash());
            assert!(sent.contains(&profile.hash()), "{pool}");
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}
