//! Are the filter's polls answered now? Counters are totals since Envoy's start, tokens change, control
//! planes come and go.

use prefix_picker::doctor::Status::{Fail, Ok, Skipped, Warn};
use prefix_picker::doctor::{Item, Options, Report};
use serde_json::json;

use super::control::{Running, gateway_with, healthy};
use super::filters::figure;
use super::fleet::{Fleet, expect, free_port, item, run};
use super::gateways::{Pages, settings};

const OK: &str = "sync_polls_total_result=_=ok_=_";
const UNAUTHORIZED: &str = "sync_polls_total_result=_=unauthorized_=_";
const STATUS: &str = "sync_polls_total_result=_=status_=_";
const AGE: &str = "table_age_seconds";

fn set(pages: &mut Pages, figures: &[(&str, u64)]) {
    figures
        .iter()
        .for_each(|(name, value)| figure(pages, name, *value));
}

/// What the filter tells at the first look, and at those after it.
fn twice(pages: &mut Pages, first: &[(&str, u64)], later: &[(&str, u64)]) {
    let mut second = pages.clone();
    set(pages, first);
    set(&mut second, first);
    set(&mut second, later);
    pages.later = Some(second.stats);
}

/// A whole fleet whose gateway tells this.
fn look(running: &Running, fleet: &Fleet, edit: impl FnOnce(&mut Pages)) -> Report {
    let options = Options {
        envoy_admin: vec![gateway_with(&running.runtime, fleet, edit)],
        probe: false,
        ..Options::default()
    };
    run(&running.config, &options)
}

fn of<'a>(report: &'a Report, id: &str) -> &'a Item {
    report.items.iter().find(|item| item.id == id).unwrap()
}

/// One fault, or none, of the gateway and of the control plane.
fn only(report: &Report, id: &str, status: prefix_picker::doctor::Status, found: &str, fix: &str) {
    let subject = of(report, id).subject.clone();
    let prefixes = ["gateway.", "control_plane."];
    expect(report, &prefixes, &[(id, &subject, status, found, fix)]);
}

/// The control plane was restarted with another token; the filter and the file have the old one.
#[test]
fn the_control_plane_has_another_token() {
    let fleet = Fleet::start("new-token", |_| {});
    let mut config = fleet.config();
    config.tokens = vec!["new-token".to_owned()];
    let mut running = Running::start(config);
    assert_eq!(running.poll("a-token"), 401);
    running.config.tokens = vec!["a-token".to_owned()];
    let report = look(&running, &fleet, |pages| {
        let first = [(OK, 2_788), (UNAUTHORIZED, 50), (AGE, 20)];
        twice(pages, &first, &[(UNAUTHORIZED, 51), (AGE, 21)]);
    });
    only(
        &report,
        "gateway.sync",
        Fail,
        "polls are refused now",
        "restart the control plane",
    );
    let sync = of(&report, "gateway.sync");
    assert!(
        sync.found.contains("other tokens than this file"),
        "{sync:?}"
    );
    assert_eq!(of(&report, "gateway.token").status, Ok);
    for id in [
        "gateway.table_age",
        "control_plane.gateways",
        "control_plane.tokens",
    ] {
        let follows = of(&report, id);
        assert_eq!(follows.status, Skipped, "{follows:?}");
        assert!(follows.found.contains("see gateway.sync"), "{follows:?}");
    }
}

/// The file was changed, the control plane was not restarted: the gateway works, and must go on to.
#[test]
fn the_file_has_another_token() {
    let (fleet, mut running) = healthy("changed-file");
    running.config.tokens = vec!["new-token".to_owned()];
    let report = look(&running, &fleet, |_| {});
    only(
        &report,
        "gateway.token",
        Warn,
        "its polls are answered: the control plane that runs has other tokens than this file",
        "restart the control plane with that file, and only then give the filter the new one",
    );
    assert_eq!(of(&report, "gateway.sync").status, Ok);
    // Once it was: then they are refused.
    let report = look(&running, &fleet, |pages| {
        let first = [(OK, 2_788), (UNAUTHORIZED, 50), (AGE, 20)];
        twice(pages, &first, &[(UNAUTHORIZED, 51), (AGE, 21)]);
    });
    only(
        &report,
        "gateway.token",
        Fail,
        "its polls are refused",
        "`control_plane.token`",
    );
    let sync = of(&report, "gateway.sync");
    assert_eq!(sync.status, Skipped, "{sync:?}");
    assert!(sync.found.ends_with("see gateway.token"), "{sync:?}");
}

/// Whether the filter's token is right is not known where the file's cannot be read.
#[test]
fn tokens_that_cannot_be_read() {
    let (fleet, mut running) = healthy("unreadable");
    running.config.token_files = vec!["/nowhere/token".into()];
    let report = look(&running, &fleet, |pages| {
        set(pages, &[(OK, 0), (UNAUTHORIZED, 7), (AGE, 20)]);
    });
    only(
        &report,
        "gateway.sync",
        Fail,
        "polls are refused now",
        "be one of the control plane's `tokens`",
    );
    let sync = of(&report, "gateway.sync");
    assert!(!sync.found.contains("this file"), "{sync:?}");
}

/// The cluster for the control plane leads to a port where nobody is, or to an engine.
#[test]
fn the_cluster_leads_elsewhere() {
    let fleet = Fleet::start("leads-elsewhere", |_| {});
    let running = Running::start(fleet.config());
    let nobody = free_port();
    let leads_to = |pages: &mut Pages, port: u16| {
        let host = &mut pages.clusters["cluster_statuses"][1]["host_statuses"][0];
        host["address"]["socket_address"]["port_value"] = json!(port);
        set(pages, &[(OK, 0), (STATUS, 10), (AGE, 40)]);
        pages.server_info["uptime_current_epoch"] = json!("40s");
    };
    let report = look(&running, &fleet, |pages| leads_to(pages, nobody));
    only(
        &report,
        "gateway.sync",
        Fail,
        "no poll was answered since Envoy's start (10 times status: another than 200, or Envoy's own 503",
        "another address",
    );
    let sync = of(&report, "gateway.sync");
    let leads = format!("cluster prefix_picker leads to 127.0.0.1:{nobody};");
    assert!(sync.found.contains(&leads), "{sync:?}");
    let listens = format!("doctor has the control plane at {}", running.url(""));
    assert!(sync.found.contains(&listens), "{sync:?}");
    for id in ["gateway.table_age", "control_plane.gateways"] {
        let follows = of(&report, id);
        assert_eq!(follows.status, Skipped, "{follows:?}");
        assert!(follows.found.contains("see gateway.sync"), "{follows:?}");
    }
    // The right address: then that is not said.
    let report = look(&running, &fleet, |pages| {
        leads_to(pages, running.config.listen.port());
    });
    only(
        &report,
        "gateway.sync",
        Fail,
        "no poll was answered",
        "does it run",
    );
    let sync = of(&report, "gateway.sync");
    assert!(!sync.found.contains("doctor has"), "{sync:?}");
    // A name that gives none.
    let report = look(&running, &fleet, |pages| {
        leads_to(pages, 1);
        pages.clusters["cluster_statuses"][1]["host_statuses"] = json!([]);
    });
    let no_address = "cluster prefix_picker has no address";
    only(
        &report,
        "gateway.sync",
        Fail,
        no_address,
        "lead to the control plane",
    );
}

/// The control plane was held up for a while, and goes on.
#[test]
fn polls_are_answered_again() {
    let (fleet, running) = healthy("again");
    let report = look(&running, &fleet, |pages| {
        let first = [(OK, 100), (STATUS, 9), (AGE, 20)];
        twice(pages, &first, &[(OK, 101), (AGE, 1)]);
    });
    expect(&report, &["gateway.", "control_plane."], &[]);
    let age = of(&report, "gateway.table_age");
    assert_eq!(age.status, Ok, "{age:?}");
    assert!(age.found.contains(" 1 s ago"), "{age:?}");
    let sync = of(&report, "gateway.sync");
    assert!(sync.found.contains("101 were, and 9 failed"), "{sync:?}");
}

/// What failed before the last answer is not why there is none now.
#[test]
fn failures_of_former_times_are_not_the_cause() {
    let (fleet, running) = healthy("former");
    let first = [(OK, 100), (UNAUTHORIZED, 50), (STATUS, 9), (AGE, 20)];
    let report = look(&running, &fleet, |pages| {
        twice(pages, &first, &[(STATUS, 11), (AGE, 22)]);
    });
    only(
        &report,
        "gateway.sync",
        Fail,
        "no poll was answered for 22 s (2 times status",
        "lead to the control plane",
    );
    let report = look(&running, &fleet, |pages| set(pages, &first));
    only(
        &report,
        "gateway.sync",
        Fail,
        "for 20 s (none has ended while doctor looked)",
        "lead to the control plane",
    );
    let subject = &of(&report, "gateway.sync").subject;
    let age = item(&report, "gateway.table_age", subject);
    assert!(age.found.ends_with("20 s ago: see gateway.sync"), "{age:?}");
}

/// The filter's token is wrong, and its cluster leads nowhere: two faults.
#[test]
fn a_wrong_token_explains_refusals_only() {
    let (fleet, running) = healthy("two-faults");
    let report = look(&running, &fleet, |pages| {
        set(pages, &[(OK, 0), (STATUS, 10), (AGE, 40)]);
        settings(pages, |s| s["control_plane"]["token"] = json!("old"));
    });
    let faults = super::fleet::faults(&report, &["gateway."]);
    let ids: Vec<_> = faults.iter().map(|item| item.id).collect();
    assert_eq!(ids, ["gateway.token", "gateway.sync"]);
}
