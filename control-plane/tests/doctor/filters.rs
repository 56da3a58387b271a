//! What a gateway's filter says of itself, as in `gateways`: faults of its own, each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use prefix_picker::doctor::Status::{Fail, Ok, Skipped, Warn};
use prefix_picker::doctor::envoy::{ControlPlanes, Pages, judge};
use prefix_picker::doctor::{Options, Report};
use serde_json::json;

use super::fleet::expect;
use super::gateways::{check, config, look, pages, remove, settings};

#[test]
fn wrong_token() {
    let wrong = |pages: &mut Pages| settings(pages, |s| s["control_plane"]["token"] = json!("old"));
    check(
        |pages| {
            wrong(pages);
            figure(pages, "table_age_seconds", 90);
            figure(pages, "sync_polls_total_result=_=ok_=_", 0);
            figure(pages, "sync_polls_total_result=_=unauthorized_=_", 12);
        },
        "gateway.token",
        Fail,
        "none of the control plane's: its polls are refused",
        "`tokens`",
    );
    // As the filter counts it.
    check(
        |pages| {
            let ok = "polls_total_result=_=ok_=_: 6";
            assert!(pages.stats.contains(ok));
            pages.stats = pages.stats.replace(ok, "polls_total_result=_=ok_=_: 0");
            let refused = "polls_total_result=_=unauthorized_=_: ";
            pages.stats = pages
                .stats
                .replace(&format!("{refused}0"), &format!("{refused}12"));
        },
        "gateway.sync",
        Fail,
        "12 times",
        "control_plane.token",
    );
}

/// What follows from a control plane that is not there is said once; a wrong token is not of that.
#[test]
fn no_control_plane_is_told_once() {
    let look = |edit: &dyn Fn(&mut Pages)| {
        let mut pages = pages();
        edit(&mut pages);
        let beside = ControlPlanes {
            absent: Some("control_plane.ready"),
            ..ControlPlanes::default()
        };
        let items = judge(&config(), "gw", &pages, beside);
        Report {
            items,
            ..Report::default()
        }
    };
    let no_polls = |pages: &mut Pages| {
        figure(pages, "table_age_seconds", 90);
        figure(pages, "sync_polls_total_result=_=ok_=_", 0);
    };
    let report = look(&no_polls);
    expect(&report, &["gateway."], &[]);
    for id in ["gateway.sync", "gateway.table_age"] {
        let item = report.items.iter().find(|item| item.id == id).unwrap();
        assert_eq!(item.status, Skipped, "{item:?}");
        assert!(item.found.ends_with("see control_plane.ready"), "{item:?}");
    }
    expect(&look(&|_| {}), &["gateway."], &[]);
    let refused = look(&|pages| {
        no_polls(pages);
        let line = "wasmcustom.prefix_picker_filter_sync_polls_total_result=_=unauthorized_=_: 4\n";
        pages.stats.push_str(line);
    });
    expect(
        &refused,
        &["gateway."],
        &[("gateway.sync", "gw", Fail, "polls are refused now", "token")],
    );
}

/// A figure of the filter's is another one.
pub(crate) fn figure(pages: &mut Pages, name: &str, value: u64) {
    let mut found = false;
    let line = |line: &str| match line.split_once(": ") {
        Some((full, _)) if full.ends_with(name) => {
            found = true;
            format!("{full}: {value}\n")
        }
        _ => format!("{line}\n"),
    };
    pages.stats = pages.stats.lines().map(line).collect();
    assert!(found, "no {name}");
}

#[test]
fn figures_of_the_filter() {
    check(
        |pages| figure(pages, "table_age_seconds", 90),
        "gateway.sync",
        Fail,
        "no poll was answered for 90 s",
        "lead to the control plane",
    );
    check(
        |pages| figure(pages, "filter_sync_loads_total", 0),
        "gateway.sync",
        Fail,
        "no table has come",
        "/readyz",
    );
    check(
        |pages| figure(pages, ".vm_reload", 3),
        "gateway.traps",
        Warn,
        "3 times",
        "log",
    );
    let missed = |pages: &mut Pages| {
        figure(pages, "filter_named_total", 100);
        figure(pages, "filter_missed_override_total", 40);
    };
    check(
        missed,
        "gateway.missed_override",
        Warn,
        "40 of 100",
        "gateway.endpoints",
    );
}

#[test]
fn standalone_needs_no_control_plane() {
    let report = look(|pages| {
        settings(pages, |s| {
            remove(s, "control_plane");
            s["standalone"] = json!({"pools": []});
        });
    });
    expect(&report, &["gateway."], &[]);
    let skipped = report.items.iter().filter(|item| item.status == Skipped);
    assert_eq!(skipped.count(), 4, "{}", report.text(false));
}

/// A filter that is told to do less than it could is named, since one forgotten costs all of it.
#[test]
fn left_in_shadow_or_off() {
    for (name, value, fault) in [
        ("mode", json!("off"), "mode off"),
        ("mode", json!("shadow"), "mode shadow"),
        ("percent", json!(0), "0 percent"),
    ] {
        check(
            |pages| settings(pages, |s| s[name] = value),
            "gateway.filter",
            Warn,
            fault,
            "`mode` and `percent`",
        );
    }
    let report = look(|pages| {
        settings(pages, |s| {
            s["percent"] = json!(5);
            s["path_prefixes"] = json!(["/api"]);
        });
    });
    let item = report.items.iter().find(|item| item.id == "gateway.filter");
    let item = item.unwrap();
    assert_eq!(item.status, Ok);
    assert!(
        item.found
            .ends_with("mode enforce of 5 percent, only paths below /api"),
        "{}",
        item.found
    );
}

/// Nobody has polled in its first seconds: that is no fault.
#[test]
fn just_started() {
    for (name, value) in [
        ("state", json!("INITIALIZING")),
        ("uptime_current_epoch", json!("2s")),
    ] {
        let report = look(|pages| {
            pages.server_info[name] = value;
            pages.stats = String::new();
        });
        let sync = report.items.iter().find(|item| item.id == "gateway.sync");
        let sync = sync.unwrap();
        assert_eq!(sync.status, Skipped, "{sync:?}");
        assert!(sync.found.contains("just started"), "{sync:?}");
    }
}

/// It compiles the filter first, and polls then: a while without any poll is no fault, failing polls are.
#[test]
fn nothing_was_polled_yet() {
    let sync = |uptime: &str, figures: &[(&str, u64)]| {
        let report = look(|pages| {
            pages.server_info["uptime_current_epoch"] = json!(uptime);
            figure(pages, "sync_polls_total_result=_=ok_=_", 0);
            for (name, value) in figures {
                figure(pages, name, *value);
            }
        });
        let mut all = report.items.into_iter();
        all.find(|item| item.id == "gateway.sync").unwrap()
    };
    let refused = ("sync_polls_total_result=_=refused_=_", 3);
    let none = sync("12s", &[]);
    assert_eq!(none.status, Skipped, "{none:?}");
    assert!(
        none.found.contains("started 12 s ago") && none.found.contains("look again"),
        "{none:?}"
    );
    let failing = sync("12s", &[refused]);
    assert_eq!(failing.status, Fail, "{failing:?}");
    assert_eq!(sync("4s", &[refused]).status, Skipped);
    let late = sync("31s", &[]);
    assert_eq!(late.status, Fail, "{late:?}");
    assert!(late.found.contains("none was sent"), "{late:?}");
    // Answered, and the table is on its way.
    let answered = ("sync_polls_total_result=_=ok_=_", 1);
    let no_table = ("filter_sync_loads_total", 0);
    assert_eq!(sync("12s", &[answered, no_table]).status, Skipped);
    assert_eq!(sync("31s", &[answered, no_table]).status, Fail);
}

/// Doctor itself looks again.
#[test]
fn polled_a_moment_later() {
    let mut first = pages();
    first.server_info["uptime_current_epoch"] = json!("4s");
    figure(&mut first, "sync_polls_total_result=_=ok_=_", 0);
    let looks = Arc::new(AtomicUsize::new(0));
    let stats = move || {
        let is_first = looks.fetch_add(1, Ordering::Relaxed) == 0;
        std::future::ready(if is_first {
            first.stats.clone()
        } else {
            pages().stats
        })
    };
    let info = first.server_info.to_string();
    let app = Router::new()
        .route(
            "/config_dump",
            get(async || pages().config_dump.to_string()),
        )
        .route("/clusters", get(async || pages().clusters.to_string()))
        .route("/server_info", get(async || info))
        .route("/stats", get(stats));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let admin = super::fleet::serve(&runtime, app);
    let options = Options {
        envoy_admin: vec![admin.clone()],
        probe: false,
        ..Options::default()
    };
    let report = super::fleet::run(&config(), &options);
    let subject = admin.strip_prefix("http://").unwrap();
    let sync = super::fleet::item(&report, "gateway.sync", subject);
    assert_eq!(sync.status, Ok, "{sync:?}");
}

/// What leaves a filter without answers is told once.
#[test]
fn polls_that_lead_nowhere_are_one_fault() {
    let silent = |pages: &mut Pages| {
        figure(pages, "table_age_seconds", 90);
        figure(pages, "sync_polls_total_result=_=ok_=_", 0);
    };
    let misspelt = |pages: &mut Pages| {
        silent(pages);
        figure(pages, "sync_polls_total_result=_=refused_=_", 7);
        settings(pages, |s| s["control_plane"]["cluster"] = json!("nowhere"));
    };
    let wrong_token = |pages: &mut Pages| {
        silent(pages);
        figure(pages, "sync_polls_total_result=_=unauthorized_=_", 7);
        settings(pages, |s| s["control_plane"]["token"] = json!("old"));
    };
    for (report, id) in [
        (look(misspelt), "gateway.control_plane_cluster"),
        (look(wrong_token), "gateway.token"),
    ] {
        let faults = super::fleet::faults(&report, &["gateway."]);
        let ids: Vec<_> = faults.iter().map(|item| item.id).collect();
        assert_eq!(ids, [id], "{}", report.text(false));
        let sync = super::fleet::item(&report, "gateway.sync", "gw");
        assert_eq!(sync.status, Skipped, "{sync:?}");
        assert!(sync.found.contains("7 times"), "{sync:?}");
        assert!(sync.found.ends_with(&format!("see {id}")), "{sync:?}");
    }
}
