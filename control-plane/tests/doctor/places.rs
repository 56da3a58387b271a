//! Addresses that are another's: of events, of engines, of the control plane.

use std::net::TcpListener;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use prefix_picker::config::Config;
use prefix_picker::doctor::Status::{Fail, Skipped};
use prefix_picker::doctor::{Options, Report};
use serde_json::json;

use super::fleet::{Fleet, expect, free_port, item, run};
use super::gateways;

fn doctor(yaml: &str) -> Report {
    run(&Config::parse(yaml).unwrap(), &Options::default())
}

fn events(fleet: &Fleet, n: usize) -> String {
    fleet.engines[n].events_endpoint().unwrap()
}

fn replay(fleet: &Fleet, n: usize) -> String {
    fleet.engines[n].replay_endpoint().unwrap()
}

/// Each has the other's.
fn swapped(text: &str, a: &str, b: &str) -> String {
    text.replace(a, "FIRST").replace(b, a).replace("FIRST", b)
}

#[test]
fn events_of_two_engines_swapped() {
    let fleet = Fleet::start("swapped", |_| {});
    let yaml = swapped(&fleet.yaml(), &events(&fleet, 0), &events(&fleet, 1));
    let report = doctor(&yaml);
    let faults = super::fleet::faults(&report, &["engine.events", "engine.topic", "engine.replay"]);
    assert_eq!(faults.len(), 2, "{}", report.text(false));
    for (fault, (name, other)) in faults.iter().zip([("a", "b"), ("b", "a")]) {
        let told =
            format!("these are the events of {other}, and {other} has those of {name}: swapped");
        assert_eq!((fault.id, fault.status), ("engine.events", Fail));
        assert!(fault.found.contains(&told), "{fault:?}");
        let cure = format!("swap the `events` of {name} and {other}");
        assert!(fault.fix.contains(&cure), "{fault:?}");
        assert_eq!(item(&report, "engine.replay", name).status, Skipped);
    }
}

#[test]
fn both_have_the_events_of_one() {
    let fleet = Fleet::start("copied", |_| {});
    // By another name, else the configuration is refused.
    let of_first = events(&fleet, 0).replace("127.0.0.1", "localhost");
    let yaml = fleet.yaml().replace(&events(&fleet, 1), &of_first);
    let report = doctor(&yaml);
    expect(
        &report,
        &[
            "engine.events",
            "engine.topic",
            "engine.replay",
            "engine.hashes",
        ],
        &[(
            "engine.events",
            "b",
            Fail,
            "these are the events of a, not of b",
            "let `events` of b name its own engine",
        )],
    );
}

#[test]
fn the_replay_port_as_events() {
    let fleet = Fleet::start("router", |_| {});
    let yaml = fleet.yaml();
    let from = format!("events: '{}'", events(&fleet, 1));
    let at_replay = yaml.replace(&from, &format!("events: '{}'", replay(&fleet, 1)));
    expect(
        &doctor(&at_replay),
        &["engine.events", "engine.topic", "engine.replay"],
        &[(
            "engine.events",
            "b",
            Fail,
            "this is the replay socket (ROUTER)",
            "name the port of \"endpoint\"",
        )],
    );
    let both = swapped(&yaml, &events(&fleet, 1), &replay(&fleet, 1));
    expect(
        &doctor(&both),
        &["engine.events", "engine.replay"],
        &[(
            "engine.events",
            "b",
            Fail,
            "`replay` names that of the events",
            "swap the replica's `events` and `replay`",
        )],
    );
}

#[test]
fn an_http_port_as_events() {
    let fleet = Fleet::start("http-events", |_| {});
    let http = format!("tcp://{}", fleet.engines[1].addr());
    let report = doctor(&fleet.yaml().replace(&events(&fleet, 1), &http));
    expect(
        &report,
        &["engine.events"],
        &[(
            "engine.events",
            "b",
            Fail,
            "does not speak ZeroMQ",
            "not its HTTP port",
        )],
    );
}

/// Accepts, and never answers: one fault, said once.
#[test]
fn an_engine_that_hangs() {
    let fleet = Fleet::start("hangs", |_| {});
    let held: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let at = |n: usize| held[n].local_addr().unwrap().to_string();
    let yaml = fleet.yaml();
    let yaml = yaml.replace(&fleet.engines[1].addr().to_string(), &at(0));
    let yaml = yaml.replace(&events(&fleet, 1), &format!("tcp://{}", at(1)));
    let yaml = yaml.replace(&replay(&fleet, 1), &format!("tcp://{}", at(2)));
    let report = doctor(&yaml);
    expect(
        &report,
        &["engine.", "pool."],
        &[(
            "engine.reachable",
            "b",
            Fail,
            "not answered within 3 s: the engine hangs",
            "restart it",
        )],
    );
    let others: Vec<_> = report
        .items
        .iter()
        .filter(|item| item.subject == "b" && item.id != "engine.reachable")
        .collect();
    // As many as of the other one, which has sources besides.
    assert_eq!(others.len(), 13, "{}", report.text(false));
    for other in others {
        assert_eq!(other.status, Skipped, "{other:?}");
        assert!(other.found.contains("the engine hangs"), "{other:?}");
    }
}

/// The API server is well, the engine behind it is not.
#[test]
fn an_engine_that_does_not_compute() {
    let fleet = Fleet::start("stalls", |_| {});
    let url = format!("{}/sim/fault", fleet.engines[1].url());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fault = json!({"kind": "stall", "ms": 60_000});
    let post = reqwest::Client::new().post(url).json(&fault).send();
    assert!(runtime.block_on(post).unwrap().status().is_success());
    expect(
        &fleet.doctor(),
        &["engine."],
        &[(
            "engine.reachable",
            "b",
            Fail,
            "a request of one token was not answered within 5 s, though it had nothing else to do",
            "restart it",
        )],
    );
}

/// Serves pages for ever, with this `server` header.
fn serve(runtime: &tokio::runtime::Runtime, server: &'static str, app: Router) -> String {
    let name = move |mut response: axum::response::Response| {
        let value = axum::http::HeaderValue::from_static(server);
        response.headers_mut().insert("server", value);
        std::future::ready(response)
    };
    let app = app.layer(axum::middleware::map_response(name));
    super::fleet::serve(runtime, app)
}

#[test]
fn the_control_planes_address_is_anothers() {
    let fleet = Fleet::start("url", |_| {});
    let config = fleet.config();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let info = gateways::pages().server_info.to_string();
    let admin = Router::new()
        .route("/server_info", get(async || info))
        .route("/stats", get(async || "a: 1\n"));
    let listener = Router::new().fallback(async || StatusCode::NOT_FOUND);
    let nothing = format!("http://127.0.0.1:{}", free_port());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let cases = [
        (
            fleet.engines[0].url(),
            "an engine answers there (version 0.32.0)",
            "engines are those of --config",
        ),
        (
            serve(&runtime, "envoy", admin),
            "Envoy's admin pages answer there",
            "as --envoy-admin",
        ),
        (
            serve(&runtime, "envoy", listener),
            "one of Envoy's listeners answers there",
            "--url is the control plane's address",
        ),
        (
            serve(&runtime, "nginx", Router::new()),
            "something else answers there",
            "--url is the control plane's address",
        ),
        (nothing, "nobody answers", "start it (`prefix-picker serve"),
        (
            format!("http://{}", silent.local_addr().unwrap()),
            "not answered within 5 s: it hangs",
            "restart it",
        ),
    ];
    let listen = format!("http://{}", config.listen);
    for (url, found, fix) in cases {
        let options = Options {
            urls: vec![format!("{url}/")],
            probe: false,
            ..Options::default()
        };
        let report = run(&config, &options);
        expect(
            &report,
            &["control_plane."],
            &[("control_plane.reachable", &url, Fail, found, fix)],
        );
        let item = item(&report, "control_plane.reachable", &url);
        assert!(item.fix.contains(&listen), "{item:?}");
        let hangs = item.found.contains("hangs");
        assert!(
            !hangs || !item.fix.contains("prefix-picker serve"),
            "{item:?}"
        );
    }
}

#[test]
fn the_admin_address_is_anothers() {
    let fleet = Fleet::start("admin", |_| {});
    let options = Options {
        envoy_admin: vec![fleet.engines[0].url()],
        probe: false,
        ..Options::default()
    };
    let report = run(&fleet.config(), &options);
    let address = fleet.engines[0].addr().to_string();
    expect(
        &report,
        &["gateway."],
        &[(
            "gateway.reachable",
            &address,
            Fail,
            "an engine answers there",
            "--envoy-admin is the address",
        )],
    );
}
