//! One fault of an engine, or of what is configured of it, each.

use engine_sim::WireVersion;
use prefix_picker::doctor::Options;
use prefix_picker::doctor::Status::{self, Fail, Ok, Skipped, Warn};

use super::fleet::{Fleet, expect, healthy, item, run};

pub(crate) type Expected<'a> = (&'a str, &'a str, Status, &'a str, &'a str);

/// The second engine differs: these faults of engines and pools, and no other.
pub(crate) fn check(
    name: &str,
    edit: impl FnOnce(&mut engine_sim::Config),
    expected: &[Expected<'_>],
) {
    expect(
        &Fleet::start(name, edit).doctor(),
        &["engine.", "pool."],
        expected,
    );
}

#[test]
fn all_is_well() {
    let report = Fleet::start("well", |_| {}).doctor();
    let is_of_engines = |id: &str| id.starts_with("engine.") || id.starts_with("pool.");
    let ours = || report.items.iter().filter(|item| is_of_engines(item.id));
    let bad: Vec<_> = ours().filter(|item| item.status != Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let ids: std::collections::BTreeSet<_> = ours().map(|item| item.id).collect();
    assert_eq!(ids.len(), 18, "{ids:?}");
}

#[test]
fn an_old_version_is_well_too() {
    for version in [WireVersion(0, 15, 0), WireVersion(0, 24, 0)] {
        let mut fleet = Fleet::start("old", |_| {});
        fleet.engines = ["a", "b"]
            .map(|name| {
                let wire = version;
                engine_sim::spawn(engine_sim::Config {
                    wire,
                    ..healthy(name)
                })
                .unwrap()
            })
            .into();
        let report = fleet.doctor();
        expect(&report, &["engine.", "pool."], &[]);
        // Its hashes begin at random.
        let skipped = report.items.iter().filter(|item| item.status == Skipped);
        let skipped: Vec<_> = skipped.filter(|item| item.id == "engine.hashes").collect();
        assert_eq!(skipped.len(), 2, "{}", report.text(false));
    }
}

#[test]
fn engine_down() {
    let fleet = Fleet::start("down", |_| {});
    fleet.engines[1].die();
    let started = std::time::Instant::now();
    let report = fleet.doctor();
    expect(
        &report,
        &["engine.", "pool."],
        &[(
            "engine.reachable",
            "b",
            Fail,
            "nobody answers",
            "start the engine",
        )],
    );
    assert!(started.elapsed().as_secs() < 20);
    // As of one that hangs.
    let others = report.items.iter();
    let others = others.filter(|item| item.subject == "b" && item.id != "engine.reachable");
    let others: Vec<_> = others.collect();
    assert_eq!(others.len(), 13, "{}", report.text(false));
    for other in others {
        assert_eq!(other.status, Skipped, "{other:?}");
        assert_eq!(other.found, "nobody answers: see engine.reachable");
    }
}

/// The health check is asked where nobody is, and the engine is there.
#[test]
fn health_is_asked_elsewhere() {
    let mut fleet = Fleet::start("health", |_| {});
    fleet.engines.truncate(1);
    let nobody = super::fleet::free_port();
    fleet.replica = format!(", health: 'http://127.0.0.1:{nobody}/health'");
    let report = fleet.doctor();
    expect(
        &report,
        &["engine."],
        &[("engine.reachable", "a", Fail, "nobody answers", "`health`")],
    );
    assert_eq!(item(&report, "engine.models", "a").status, Ok);
}

#[test]
fn a_dead_fleet_is_told_in_time() {
    let mut fleet = Fleet::start("dead", |_| {});
    fleet.engines.iter().for_each(engine_sim::Engine::die);
    let yaml = fleet.yaml();
    // As many dead ones as a page has room for; 192.0.2.0/24 leads nowhere.
    let more = (1..=200).map(|n| {
        format!("  - {{endpoint: '192.0.2.{n}:8000', events: 'tcp://192.0.2.{n}:5557', replay: 'tcp://192.0.2.{n}:5558'}}\n")
    });
    let config = prefix_picker::config::Config::parse(&(yaml + &more.collect::<String>())).unwrap();
    let started = std::time::Instant::now();
    let report = run(&config, &Options::default());
    // It is cut off after 25 s, and a busy machine may be late.
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    let told = report
        .items
        .iter()
        .filter(|item| item.id == "engine.reachable");
    assert_eq!(told.count(), 202);
    assert!(report.has_failed());
    fleet.engines.clear();
}

#[test]
fn an_unhealthy_engine() {
    let fleet = Fleet::start("unhealthy", |_| {});
    let url = format!("{}/sim/fault", fleet.engines[1].url());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fault = serde_json::json!({"kind": "unhealthy"});
    let post = reqwest::Client::new().post(url).json(&fault).send();
    assert!(runtime.block_on(post).unwrap().status().is_success());
    let report = fleet.doctor();
    let faults = super::fleet::faults(&report, &["engine.reachable"]);
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].found.contains("503") && faults[0].fix.contains("restart"),
        "{faults:?}"
    );
}

#[test]
fn prefix_caching_off() {
    let fleet = Fleet::start("caching", |engine| engine.prefix_caching = false);
    let report = fleet.doctor();
    expect(
        &report,
        &["engine.", "pool."],
        &[(
            "engine.prefix_caching",
            "b",
            Fail,
            "prefix caching is off",
            "--enable-prefix-caching",
        )],
    );
    for id in ["events", "topic", "replay", "event_sources"] {
        let follows = item(&report, &format!("engine.{id}"), "b");
        assert_eq!(follows.status, Skipped, "{follows:?}");
        assert!(
            follows.found.contains("see engine.prefix_caching"),
            "{follows:?}"
        );
    }
}

#[test]
fn mixed_block_sizes() {
    check(
        "blocks",
        |engine| engine.block_size = 32,
        &[(
            "pool.block_size",
            "demo",
            Warn,
            "16 (a), 32 (b)",
            "--block-size",
        )],
    );
}

#[test]
fn mixed_versions() {
    check(
        "versions",
        |engine| engine.wire = WireVersion(0, 31, 0),
        &[(
            "pool.version",
            "demo",
            Warn,
            "0.31.0 (b), 0.32.0 (a)",
            "roll-out",
        )],
    );
}

#[test]
fn prefill_and_decode_apart() {
    for role in ["kv_producer", "kv_consumer"] {
        check(
            "roles",
            |engine| engine.kv_role = Some(role.to_owned()),
            &[(
                "engine.disaggregated",
                "b",
                Fail,
                role,
                "take engines that only prefill",
            )],
        );
    }
    check(
        "roles",
        |engine| engine.kv_role = Some("kv_both".to_owned()),
        &[],
    );
}

#[test]
fn ranks_that_are_not_configured() {
    let ports = held_ports::Held::in_a_row(4).unwrap();
    check(
        "ranks",
        |engine| {
            engine.data_parallel_size = 2;
            engine.events = Some(format!("tcp://*:{}", ports.at(0)));
            engine.replay = Some(format!("tcp://*:{}", ports.at(2)));
        },
        &[(
            "engine.ranks",
            "b",
            Fail,
            "2 data-parallel ranks",
            "list a replica for each rank",
        )],
    );
}

#[test]
fn another_model_name() {
    check(
        "names",
        |engine| engine.model = "other".to_owned(),
        &[(
            "engine.models",
            "b",
            Fail,
            "\"other\"",
            "--served-model-name",
        )],
    );
}

#[test]
fn engines_by_ipv6() {
    let mut fleet = Fleet::start("ipv6", |_| {});
    fleet.engines = vec![
        engine_sim::spawn(engine_sim::Config {
            listen: "[::1]:0".parse().unwrap(),
            events: Some("tcp://[::1]:0".to_owned()),
            replay: Some("tcp://[::1]:0".to_owned()),
            ..healthy("[::1]")
        })
        .unwrap(),
    ];
    let yaml = fleet.yaml().replace("name: [::1], ", "");
    assert!(
        yaml.contains("endpoint: '[::1]:") && yaml.contains("tcp://[::1]:"),
        "{yaml}"
    );
    let report = run(
        &prefix_picker::config::Config::parse(&yaml).unwrap(),
        &Options::default(),
    );
    let bad = report
        .items
        .iter()
        .filter(|item| item.id.starts_with("engine.") && item.status != Ok);
    assert_eq!(bad.count(), 0, "{}", report.text(false));
    assert!(
        report
            .items
            .iter()
            .any(|item| item.subject.starts_with("[::1]:"))
    );
}
