//! Replicas that the control plane has discovered.

use axum::Router;
use axum::routing::get;
use prefix_picker::config::Config;
use prefix_picker::doctor::Status::{Fail, Ok};
use prefix_picker::doctor::control_plane::Engines;
use prefix_picker::doctor::{Options, control_plane};

use super::fleet::{Fleet, expect, run, serve};

/// What the control plane tells of replicas that it has found.
fn status(runtime: &tokio::runtime::Runtime, replicas: serde_json::Value) -> String {
    let status = serde_json::json!({"schema": "prefix-picker.status/1", "pools": [{"pool": "demo", "replicas": replicas}]});
    let app = Router::new().route("/v1/status", get(async move || status.to_string()));
    serve(runtime, app)
}

#[test]
fn replicas_that_were_discovered_are_looked_at() {
    let fleet = Fleet::start("discovered", |_| {});
    let yaml = fleet.yaml();
    let (head, _) = yaml.split_once("  replicas:\n").unwrap();
    let config = Config::parse(&format!(
        "{head}  discovery: {{dns: {{name: vllm.example}}}}\n"
    ))
    .unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let look = |replicas: serde_json::Value| {
        let options = Options {
            urls: vec![status(&runtime, replicas)],
            ..Options::default()
        };
        run(&config, &options)
    };
    // The engines say themselves where their events are: on other ports than 5557 and 5558.
    let one = |n: usize| serde_json::json!({"replica": format!("pod-{n}"), "endpoint": fleet.engines[n].addr().to_string()});
    let report = look(serde_json::json!([one(0), one(1)]));
    expect(&report, &["engine.", "pool."], &[]);
    let events = report
        .items
        .iter()
        .filter(|item| item.id == "engine.events" && item.status == Ok);
    assert_eq!(events.count(), 2, "{}", report.text(false));
    let none = look(serde_json::json!([]));
    expect(
        &none,
        &["pool."],
        &[(
            "pool.discovery",
            "demo",
            Fail,
            "found no replica",
            "selector",
        )],
    );
}

/// Of a pool with discovery only those that the file lists are compared: the others come and go.
#[test]
fn what_was_discovered_is_not_in_the_file() {
    let fleet = Fleet::start("not-in-file", |_| {});
    let listed = fleet.yaml();
    let with = |more: &str| Config::parse(&format!("{listed}{more}")).unwrap();
    let replica =
        |name: &str, endpoint: String| serde_json::json!({"replica": name, "endpoint": endpoint});
    let mut all: Vec<_> = fleet
        .engines
        .iter()
        .map(|engine| replica(engine.name(), engine.addr().to_string()))
        .collect();
    all.push(replica("pod-7", "[fd00::7]:8000".to_owned()));
    let pages = |replicas: &[serde_json::Value]| control_plane::Pages {
        ready: (200, String::new()),
        metrics: String::new(),
        status: serde_json::json!({"pools": [{"pool": "demo", "replicas": replicas}]}),
    };
    let look = |config: &Config, replicas: &[serde_json::Value]| {
        let items = control_plane::judge(config, "cp", &pages(replicas), &Engines::default());
        let mut items = items.into_iter();
        let item = items.find(|item| item.id == "control_plane.replicas");
        item.unwrap()
    };
    let discovers = with("  discovery: {dns: {name: vllm.example}}\n");
    assert_eq!(look(&discovers, &all).status, Ok);
    let missing = look(&discovers, &all[1..]);
    assert!(missing.found.ends_with("does not have a"), "{missing:?}");
    let more = look(&with(""), &all);
    assert_eq!(more.status, Fail);
    assert!(more.found.contains("it has pod-7, which"), "{more:?}");
}
