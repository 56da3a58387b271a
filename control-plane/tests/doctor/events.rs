//! One fault of an engine's KV events, or of what is configured of them, each.

use prefix_picker::doctor::Options;
use prefix_picker::doctor::Status::{Fail, Ok, Skipped, Warn};

use super::engines::check;
use super::fleet::{Fleet, expect, healthy, item, run};

#[test]
fn no_events() {
    let fleet = Fleet::start("no-events", |engine| {
        (engine.events, engine.replay) = (None, None);
    });
    let report = fleet.doctor();
    expect(
        &report,
        &["engine.", "pool."],
        &[(
            "engine.events",
            "b",
            Fail,
            "nobody listens",
            "enable_kv_cache_events",
        )],
    );
    for id in ["engine.topic", "engine.replay", "engine.event_sources"] {
        let item = item(&report, id, "b");
        assert_eq!(item.status, Skipped, "{item:?}");
        assert_eq!(item.found, "no events: see engine.events");
    }
}

/// What the engine says of its events tells the cure, and is no second fault.
#[test]
fn events_and_replay_at_other_ports() {
    let fleet = Fleet::start("ports", |_| {});
    let engine = &fleet.engines[1];
    let (events, replay) = (
        engine.events_endpoint().unwrap(),
        engine.replay_endpoint().unwrap(),
    );
    let nobody = format!("tcp://127.0.0.1:{}", super::fleet::free_port());
    let at = |field: &str, from: &str, to: &str| {
        let yaml = fleet.yaml();
        let from = format!(", {field}: '{from}'");
        assert!(yaml.contains(&from), "{yaml}");
        let to = match to {
            "" => String::new(),
            to => format!(", {field}: '{to}'"),
        };
        let yaml = yaml.replace(&from, &to);
        run(
            &prefix_picker::config::Config::parse(&yaml).unwrap(),
            &Options::default(),
        )
    };
    for (field, from, to, id, status, found) in [
        (
            "events",
            &events,
            nobody.as_str(),
            "engine.events",
            Fail,
            "nobody listens there",
        ),
        (
            "replay",
            &replay,
            &nobody,
            "engine.replay",
            Fail,
            "nobody listens there",
        ),
        ("replay", &replay, &events, "engine.replay", Fail, "(PUB)"),
        ("replay", &replay, "", "engine.replay", Warn, "no `replay`"),
    ] {
        let report = at(field, from, to);
        let cure = format!("`{field}`");
        expect(&report, &["engine."], &[(id, "b", status, found, &cure)]);
        let fault = item(&report, id, "b");
        assert!(fault.fix.contains(from.as_str()), "{fault:?}");
        assert!(!fault.fix.contains("start the engine"), "{fault:?}");
        let sources = item(&report, "engine.event_sources", "b");
        assert_eq!(sources.status, Skipped, "{sources:?}");
        assert!(sources.found.contains(id), "{sources:?}");
    }
}

/// A port of another number leads to the engine's own, as a service's or a container's may.
#[test]
fn ports_are_mapped_on_the_way() {
    let fleet = Fleet::start("mapped", |_| {});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let inner = fleet.engines[1].events_endpoint().unwrap();
    let at = inner.strip_prefix("tcp://").unwrap().to_owned();
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let outer = format!("tcp://{}", listener.local_addr().unwrap());
    runtime.spawn(async move {
        while let Result::Ok((mut from, _)) = listener.accept().await {
            let at = at.clone();
            tokio::spawn(async move {
                let mut to = tokio::net::TcpStream::connect(at).await.unwrap();
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    let yaml = fleet.yaml().replace(&inner, &outer);
    let report = run(
        &prefix_picker::config::Config::parse(&yaml).unwrap(),
        &Options::default(),
    );
    expect(&report, &["engine."], &[]);
    let sources = item(&report, "engine.event_sources", "b");
    assert_eq!(sources.status, Ok, "{sources:?}");
    assert!(sources.found.contains("ports are mapped"), "{sources:?}");
}

/// Without requests nothing else tells: what is found and its cure must agree.
#[test]
fn what_only_the_engine_says_of_its_events() {
    let mut fleet = Fleet::start("only-sources", |_| {});
    fleet.replica = ", topic: kv@".to_owned();
    let quiet = Options {
        probe: false,
        ..Options::default()
    };
    let report = run(&fleet.config(), &quiet);
    let sources = item(&report, "engine.event_sources", "b");
    assert_eq!(sources.status, Warn, "{sources:?}");
    assert!(
        sources.found.contains("topic") && sources.fix.contains("`topic`"),
        "{sources:?}"
    );
}

#[test]
fn wrong_topic() {
    let mut fleet = Fleet::start("topic", |engine| engine.topic = "kv@pod-b@sim".to_owned());
    fleet.replica = ", topic: kv@".to_owned();
    fleet.engines[0] = engine_sim::spawn(engine_sim::Config {
        topic: "kv@pod-a@sim".to_owned(),
        ..healthy("a")
    })
    .unwrap();
    expect(&fleet.doctor(), &["engine."], &[]);
    fleet.replica = ", topic: kv@pod-a".to_owned();
    expect(
        &fleet.doctor(),
        &["engine."],
        &[(
            "engine.topic",
            "b",
            Fail,
            "\"kv@pod-b@sim\"",
            "set the replica's `topic` to \"kv@pod-b@sim\"",
        )],
    );
}

#[test]
fn replay_missing() {
    check(
        "replay",
        |engine| engine.replay = None,
        &[(
            "engine.replay",
            "b",
            Fail,
            "does not answer",
            "replay_endpoint",
        )],
    );
}

#[test]
fn hash_seed() {
    let seed = |seed: &str| {
        let seed = seed.to_owned();
        move |engine: &mut engine_sim::Config| engine.python_hash_seed = Some(seed)
    };
    check(
        "seed",
        seed("0"),
        &[(
            "engine.hashes",
            "b",
            Warn,
            "PYTHONHASHSEED=0",
            "must all have the same",
        )],
    );
    check(
        "seed",
        seed("8215"),
        &[(
            "engine.hashes",
            "b",
            Warn,
            "not those of vLLM's own seed",
            "--python-hash-seed",
        )],
    );
    // All have one, and it is told: the one without it is the odd one.
    let fleet = Fleet::start("seed", seed("8215"));
    let options = Options {
        python_hash_seed: Some("8215".to_owned()),
        ..Options::default()
    };
    expect(
        &run(&fleet.config(), &options),
        &["engine."],
        &[(
            "engine.hashes",
            "a",
            Warn,
            "no PYTHONHASHSEED",
            "set PYTHONHASHSEED=8215",
        )],
    );
}
