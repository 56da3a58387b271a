//! Replicas that come and go, against a naive model, and epochs.

use std::collections::BTreeMap;

use super::*;
use crate::config::ReplicaConfig;

fn replica(name: &str, port: u16) -> ReplicaConfig {
    let endpoint = std::net::SocketAddr::from(([10, 0, 0, 1], port));
    ReplicaConfig {
        name: name.to_owned(),
        endpoint,
        data_parallel_rank: None,
        events: format!("tcp://10.0.0.1:{port}"),
        replay: None,
        topic: String::new(),
        metrics: format!("http://{endpoint}/metrics"),
        health: format!("http://{endpoint}/health"),
        api: format!("http://{endpoint}"),
    }
}

/// Blocks of [`TEXT`] by the replicas' names, as a gateway finds them.
fn matches(engine: &Engine, gateway: &mut Gateway) -> BTreeMap<String, u32> {
    engine.publish();
    gateway.settle(engine);
    let members = engine.members();
    let name = |number: u16| {
        let known = members.iter().find(|m| m.head.index.0 == number);
        known.map(|m| m.name.clone())
    };
    let found = gateway.matches(TEXT).into_iter();
    found
        .map(|(number, blocks)| (name(number).expect("a number of nobody"), blocks))
        .collect()
}

fn names(engine: &Engine) -> Vec<String> {
    engine.members().into_iter().map(|m| m.name).collect()
}

#[test]
fn a_replica_goes_with_all_that_was_known_of_it() {
    let dir = in_temp("members");
    let engine = engine_of(&config(&dir));
    let mut gateway = Gateway::default();
    let before = engine.pools()[0].stats();
    let slot = engine.add(0, &replica("d", 1_000), "d", true).unwrap();
    engine.apply(slot, at(0), &stored(&engine, TEXT, 100));
    let up = Scraped {
        healthy: Some(true),
        ..Scraped::default()
    };
    engine.scraped(slot, up);
    engine.set_adapters(slot, Some(BTreeMap::from([("sql".into(), "/1".into())])));
    engine.report().set_capacity(slot, 1_000);
    assert!(matches(&engine, &mut gateway)["d"] > 1);
    assert_eq!(names(&engine), ["a", "b", "c", "d"]);
    assert_eq!(engine.head().pools[0].loras.len(), 1);

    engine.remove(slot);
    engine.remove(slot);
    assert_eq!(matches(&engine, &mut gateway), BTreeMap::new());
    assert_eq!(names(&engine), ["a", "b", "c"]);
    assert_eq!(gateway.head.as_ref().unwrap().replicas.len(), 3);
    assert_eq!(engine.head().pools[0].loras, []);
    assert_eq!(engine.pools()[0].stats().nodes, before.nodes);
    assert_eq!(engine.table_size().groups, 0);
    assert_eq!(engine.report().answer(60).pools[0].virtual_caches.len(), 2);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_slot_is_given_again_and_a_number_is_not() {
    let dir = in_temp("numbers");
    let engine = engine_of(&config(&dir));
    let number = |name: &str| {
        let members = engine.members().into_iter();
        let found = members.filter(|m| m.name == name);
        found.map(|m| (m.slot.0, m.head.index.0)).next().unwrap()
    };
    let mut gateway = Gateway::default();
    engine.apply(ReplicaIndex(1), at(0), &stored(&engine, TEXT, 100));
    assert_eq!(matches(&engine, &mut gateway).len(), 1);
    // The gateway has the old table still, in which number 1 holds the text.
    engine.remove(ReplicaIndex(1));
    let slot = engine.add(0, &replica("d", 1_000), "d", true).unwrap();
    assert_eq!((slot.0, number("d")), (1, (1, 3)));
    assert_eq!(number("c"), (2, 2));
    assert_eq!(gateway.matches(TEXT)[0].0, 1);
    // New beside others.
    engine.scraped(
        ReplicaIndex(0),
        Scraped {
            healthy: Some(true),
            ..Scraped::default()
        },
    );
    assert_eq!(engine.members()[1].head.pace.ramp_permille, 0);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn who_clashes_does_not_come() {
    let dir = in_temp("clash");
    let engine = engine_of(&config(&dir));
    let add = |pool, replica: &ReplicaConfig| engine.add(pool, replica, "x", true);
    assert_eq!(add(0, &replica("c", 99)), Err(JoinError::Name("c".into())));
    engine.add(0, &replica("d", 1_000), "d", true).unwrap();
    let same = add(1, &replica("e", 1_000)).unwrap_err();
    assert_eq!(
        same.to_string(),
        "10.0.0.1:1000 is the endpoint of replica \"d\" already"
    );
    assert_eq!(add(7, &replica("f", 1)), Err(JoinError::Pool));
    let rank = |name: &str, rank| ReplicaConfig {
        data_parallel_rank: Some(rank),
        ..replica(name, 2_000)
    };
    assert!(add(0, &rank("r0", 0)).is_ok() && add(0, &rank("r1", 1)).is_ok());
    assert!(add(0, &rank("r1b", 1)).is_err() && add(1, &rank("r2", 2)).is_err());
    for port in 0..u16::try_from(crate::config::REPLICAS_MAX).unwrap() {
        let _ = add(1, &replica(&format!("n{port}"), 10_000 + port));
    }
    assert_eq!(add(1, &replica("last", 9_999)), Err(JoinError::TooMany));
    assert_eq!(engine.members().len(), crate::config::REPLICAS_MAX);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_is_said_of_a_replica_decides_with_its_health() {
    let dir = in_temp("standing");
    let engine = engine_of(&config(&dir));
    let a = ReplicaIndex(0);
    let up = Scraped {
        healthy: Some(true),
        ..Scraped::default()
    };
    engine.scraped(a, up);
    engine.synced(a, true);
    let state = |standing| {
        engine.stand(a, standing);
        engine.members()[0].head.state
    };
    assert_eq!(state(Standing::Serving), ReplicaState::Ready);
    assert_eq!(state(Standing::NotReady), ReplicaState::Down);
    assert_eq!(state(Standing::Leaving), ReplicaState::Draining);
    engine.drain(a, true);
    assert_eq!(state(Standing::Serving), ReplicaState::Draining);
    engine.drain(a, false);
    assert_eq!(state(Standing::Serving), ReplicaState::Ready);
    assert!(!engine.stand(a, Standing::Serving));
    std::fs::remove_dir_all(dir).unwrap();
}

/// 10,000 replicas in an epoch of 8 numbers: what stays is known throughout, and so are adapters.
#[test]
fn a_new_epoch_forgets_nothing() {
    let dir = in_temp("epochs");
    let engine = engine_of(&config(&dir));
    lock(&engine.fleet).limit_numbers(8);
    let mut gateway = Gateway::default();
    let first_epoch = engine.head().epoch;
    engine.apply(ReplicaIndex(0), at(0), &stored(&engine, TEXT, 100));
    engine.set_adapters(
        ReplicaIndex(1),
        Some(BTreeMap::from([("sql".into(), "/1".into())])),
    );
    let known = matches(&engine, &mut gateway);
    // Numbers 3 to 7 are used up; afterwards b and what comes have others.
    engine.remove(ReplicaIndex(2));
    for n in 0..1_000u16 {
        let slot = engine.add(0, &replica("d", 1_000 + n), "d", true).unwrap();
        let batch = stored(&engine, &TEXT[..300], u64::from(n) * 1_000);
        engine.apply(slot, at(0), &batch);
        if n % 50 == 0 {
            let mut now = matches(&engine, &mut gateway);
            assert!(now.remove("d").is_some());
            assert_eq!(now, known, "{n}");
        }
        engine.remove(slot);
    }
    assert_eq!(matches(&engine, &mut gateway), known);
    let head = engine.head();
    assert!(head.epoch.0 > first_epoch.0 + 100);
    assert_eq!(gateway.head, Some(head.clone()));
    assert!(head.replicas.iter().all(|replica| replica.index.0 < 8));
    let lora = &head.pools[0].loras[0];
    let b = engine
        .members()
        .into_iter()
        .find(|m| m.name == "b")
        .unwrap();
    assert_eq!(lora.replicas, [b.head.index]);
    assert_eq!(groups_of(&lock(&engine.table)), gateway.groups());
    std::fs::remove_dir_all(dir).unwrap();
}

/// Blocks that a gateway finds of one that holds so many bytes of the text, and is alone.
fn whole(bytes: usize) -> u32 {
    static KNOWN: Mutex<BTreeMap<usize, u32>> = Mutex::new(BTreeMap::new());
    *lock(&KNOWN).entry(bytes).or_insert_with(|| {
        let dir = in_temp("membership-alone");
        let alone = engine_of(&config(&dir));
        alone.apply(ReplicaIndex(0), at(0), &stored(&alone, &TEXT[..bytes], 1));
        let found = matches(&alone, &mut Gateway::default());
        found.get("a").copied().unwrap_or(0)
    })
}

#[derive(Clone, Debug)]
enum Step {
    Come(u8),
    Go(u8),
    /// Holds so many bytes of the text from now on.
    Store(u8, usize),
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..6).prop_map(Step::Come),
        3 => (0u8..6).prop_map(Step::Go),
        4 => (0u8..6, prop::sample::select(vec![0, 200, 300, 420, TEXT.len()])).prop_map(|(who, bytes)| Step::Store(who, bytes)),
        2 => Just(Step::Look),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whoever comes and goes, over epochs of 9 numbers: gateways find what the live ones hold.
    #[test]
    fn gateways_find_what_the_living_hold(steps in prop::collection::vec(step(), 1..80)) {
        let dir = in_temp("membership-model");
        let engine = engine_of(&config(&dir));
        lock(&engine.fleet).limit_numbers(9);
        let mut gateway = Gateway::default();
        let mut here: BTreeMap<u8, (ReplicaIndex, u64, u32)> = BTreeMap::new();
        for step in steps.into_iter().chain([Step::Look]) {
            match step {
                Step::Come(who) => {
                    let config = replica(&format!("x{who}"), 100 + u16::from(who));
                    let come = engine.add(0, &config, &config.name, true);
                    prop_assert_eq!(come.is_ok(), !here.contains_key(&who));
                    if let Ok(slot) = come {
                        here.insert(who, (slot, 0, 0));
                    }
                }
                Step::Go(who) => {
                    if let Some((slot, ..)) = here.remove(&who) {
                        engine.remove(slot);
                    }
                }
                Step::Store(who, bytes) => {
                    if let Some((slot, seq, blocks)) = here.get_mut(&who) {
                        engine.drop_replica(*slot);
                        engine.apply(*slot, at(*seq), &stored(&engine, &TEXT[..bytes], 1));
                        *seq += 1;
                        *blocks = whole(bytes);
                    }
                }
                Step::Look => {
                    let expected: BTreeMap<String, u32> = here
                        .iter()
                        .filter(|(_, (.., blocks))| *blocks > 0)
                        .map(|(who, (.., blocks))| (format!("x{who}"), *blocks))
                        .collect();
                    prop_assert_eq!(matches(&engine, &mut gateway), expected);
                }
            }
        }
    }
}
