//! Addresses given to `--envoy-admin` and `--url`: with a path, twice, of another Envoy, of nobody.

use axum::Router;
use axum::routing::get;
use prefix_picker::doctor::Options;
use prefix_picker::doctor::Status::{Fail, Skipped};
use serde_json::json;

use super::control::{gateway, healthy};
use super::fleet::{Fleet, expect, free_port, item, run, serve};
use super::gateways;

#[test]
fn another_envoy() {
    let report = gateways::look(|pages| {
        let clusters = json!([{"cluster": {"name": "web"}}]);
        pages.config_dump = json!({"configs": [{"static_clusters": clusters}]});
    });
    expect(
        &report,
        &["gateway."],
        &[(
            "gateway.filter",
            "gw",
            Fail,
            "in none of the listeners, and none of the pools' clusters is there",
            "is this the Envoy that requests to the pools go through?",
        )],
    );
    let clusters = item(&report, "gateway.clusters", "gw demo");
    assert_eq!(clusters.status, Skipped, "{clusters:?}");
    for id in ["gateway.override_host", "gateway.endpoints"] {
        let follows = item(&report, id, "gw");
        assert!(follows.found.ends_with("see gateway.filter"), "{follows:?}");
    }
    assert!(clusters.found.ends_with("see gateway.filter"));
}

/// Whoever copies a page's address from the browser.
#[test]
fn addresses_with_a_path() {
    let (fleet, running) = healthy("path");
    let admin = gateway(&running.runtime, &fleet);
    let admin = admin.trim_end_matches('/');
    let options = Options {
        urls: vec![running.url("/v1/status")],
        envoy_admin: vec![format!("{admin}/config_dump")],
        probe: false,
        ..Options::default()
    };
    let report = run(&running.config, &options);
    let subject = format!("{}/config_dump", admin.strip_prefix("http://").unwrap());
    expect(
        &report,
        &["gateway.", "control_plane."],
        &[
            (
                "control_plane.reachable",
                &running.url("/v1/status"),
                Fail,
                &format!("A control plane is at {}", running.url("")),
                &format!("leave the path out: --url {}", running.url("")),
            ),
            (
                "gateway.reachable",
                &subject,
                Fail,
                &format!("Envoy's admin pages are at {admin}"),
                &format!("leave the path out: --envoy-admin {admin}"),
            ),
        ],
    );
}

/// A path, and not the right one without it either.
#[test]
fn a_path_of_anothers_address() {
    let (fleet, running) = healthy("anothers-path");
    let other = serve(&running.runtime, Router::new().route("/", get(async || "")));
    let options = Options {
        urls: vec![format!("{}/v1", fleet.engines[0].url())],
        envoy_admin: vec![format!("{other}/stats")],
        probe: false,
        ..Options::default()
    };
    let report = run(&running.config, &options);
    let told = super::fleet::faults(&report, &["gateway.", "control_plane."]);
    assert!(told[0].found.contains("an engine answers there"));
    assert!(told[0].fix.contains("without a path"), "{told:?}");
    assert!(told[1].found.contains("something else answers there"));
    assert!(told[1].fix.contains("leave the path out"), "{told:?}");
}

#[test]
fn the_same_address_twice() {
    let (fleet, running) = healthy("twice");
    let admin = gateway(&running.runtime, &fleet);
    let bare = admin.trim_end_matches('/').to_owned();
    let options = Options {
        urls: vec![running.url(""), running.url("/")],
        envoy_admin: vec![admin, bare],
        probe: false,
        ..Options::default()
    };
    let report = run(&running.config, &options);
    for id in ["gateway.reachable", "control_plane.reachable"] {
        let found = report.items.iter().filter(|item| item.id == id);
        assert_eq!(found.count(), 1, "{}", report.text(false));
    }
}

#[test]
fn an_envoy_that_does_not_run() {
    let fleet = Fleet::start("no-envoy", |_| {});
    let subject = format!("127.0.0.1:{}", free_port());
    let options = Options {
        envoy_admin: vec![format!("http://{subject}")],
        probe: false,
        ..Options::default()
    };
    expect(
        &run(&fleet.config(), &options),
        &["gateway."],
        &[(
            "gateway.reachable",
            &subject,
            Fail,
            "nobody answers",
            "start that Envoy, if it does not run: its log says why it ended",
        )],
    );
}
