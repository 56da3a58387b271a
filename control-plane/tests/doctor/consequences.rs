//! One fault, one fail: what only follows from a fault is skipped, and names the item that has it.

use std::net::TcpListener;
use std::time::Duration;

use prefix_picker::config::Config;
use prefix_picker::doctor::Status::{Fail, Ok, Skipped, Warn};
use prefix_picker::doctor::control_plane::{Engines, Pages, judge};
use prefix_picker::doctor::{Item, Options, Report};
use serde_json::{Value, json};

use super::control::{Running, gateway_with, healthy};
use super::filters::figure;
use super::fleet::{Fleet, Temp, expect, faults, free_port, item, run, well_formed};
use super::gateways::settings;

/// Asks the second engine for one token after a prompt of its own.
fn ask(running: &Running, fleet: &Fleet, n: usize) {
    let url = format!("{}/v1/completions", fleet.engines[1].url());
    let prompt = format!("{n} is asked for something that fills a block or two. ").repeat(8);
    let body = json!({"model": "sim", "prompt": prompt, "max_tokens": 1});
    let post = reqwest::Client::new().post(url).json(&body).send();
    assert!(
        running
            .runtime
            .block_on(post)
            .unwrap()
            .status()
            .is_success()
    );
}

fn alarms(running: &Running) -> Vec<Value> {
    let status: Value = serde_json::from_str(&running.get("/v1/status").1).unwrap();
    status["alarms"].as_array().unwrap().clone()
}

/// What the control plane's pages say, judged beside these faults of engines.
fn judged(config: &Config, pages: &Pages, engines: &Engines) -> Report {
    let report = Report {
        items: judge(config, "cp", pages, engines),
        ..Report::default()
    };
    well_formed(&report);
    report
}

fn pages_of(running: &Running) -> Pages {
    let (status, text) = running.get("/readyz");
    Pages {
        ready: (status, text),
        metrics: running.get("/metrics").1,
        status: serde_json::from_str(&running.get("/v1/status").1).unwrap(),
    }
}

/// The connection stands and replays bring what it does not: everything looked well but `engine.topic`.
#[test]
fn a_wrong_topic() {
    let mut fleet = Fleet::start("pass-by", |engine| engine.topic = "events".to_owned());
    fleet.replica = ", topic: kv".to_owned();
    fleet.engines[0] = engine_sim::spawn(engine_sim::Config {
        topic: "kv@a".to_owned(),
        ..super::fleet::healthy("a")
    })
    .unwrap();
    let running = Running::start(fleet.config());
    assert_eq!(running.poll("a-token"), 200);
    let mut asked = 0;
    running.wait("an alarm", |running| {
        asked += 1;
        ask(running, &fleet, asked);
        alarms(running)
            .iter()
            .any(|alarm| alarm["id"] == "events_pass_by")
    });
    let all = alarms(&running);
    let alarm = all.iter().find(|alarm| alarm["id"] == "events_pass_by");
    let word = |name: &str| alarm.unwrap()[name].as_str().unwrap().to_owned();
    assert!(word("text").ends_with(": b"), "{alarm:?}");
    assert!(word("fix").contains("`topic`"), "{alarm:?}");
    let passes_by = |name: &str, value: u8| {
        let line = format!(
            "prefix_picker_replica_events_pass_by{{pool=\"demo\",replica=\"{name}\"}} {value}"
        );
        assert!(running.has_metric(&line), "{line}");
    };
    passes_by("a", 0);
    passes_by("b", 1);
    let report = running.doctor();
    expect(
        &report,
        &["control_plane.", "engine."],
        &[("engine.topic", "b", Fail, "\"events\"", "`topic`")],
    );
    let synced = item(&report, "control_plane.synced", "b");
    assert_eq!(synced.status, Skipped, "{synced:?}");
    assert!(synced.found.ends_with("see engine.topic"), "{synced:?}");
    assert_eq!(item(&report, "control_plane.synced", "a").status, Ok);
    // The events are of an engine that is silent: that is told of the engine, too.
    let mut engines = Engines::default();
    engines.note("demo", "b", &[Item::fail("engine.events", "b", "x", "y")]);
    let report = judged(&running.config, &pages_of(&running), &engines);
    expect(&report, &["control_plane."], &[]);
    // The file is mended, the control plane runs on with the old one.
    let report = judged(&running.config, &pages_of(&running), &Engines::default());
    expect(
        &report,
        &["control_plane."],
        &[(
            "control_plane.synced",
            "b",
            Fail,
            "live events do not come",
            "restart it",
        )],
    );
}

/// Events that were missed cannot be had again: the control plane is right to wait.
#[test]
fn no_replay() {
    let (_fleet, running) = healthy("no-replay");
    let mut pages = pages_of(&running);
    let synced = "prefix_picker_replica_synced{pool=\"demo\",replica=\"b\"} ";
    pages.metrics = pages
        .metrics
        .replace(&format!("{synced}1"), &format!("{synced}0"));
    let mut engines = Engines::default();
    engines.note("demo", "b", &[Item::fail("engine.replay", "b", "x", "y")]);
    let report = judged(&running.config, &pages, &engines);
    expect(&report, &["control_plane."], &[]);
    let synced = item(&report, "control_plane.synced", "b");
    assert_eq!(synced.status, Skipped, "{synced:?}");
    assert!(synced.found.ends_with("see engine.replay"), "{synced:?}");
    // Without a connection it is another fault.
    let connected = "prefix_picker_replica_connected{pool=\"demo\",replica=\"b\"} ";
    pages.metrics = pages
        .metrics
        .replace(&format!("{connected}1"), &format!("{connected}0"));
    let report = judged(&running.config, &pages, &engines);
    assert_eq!(item(&report, "control_plane.synced", "b").status, Fail);
}

/// Replicas of two pools may have the same name.
#[test]
fn the_fault_of_another_pools_replica() {
    let fleet = Fleet::start("two-pools", |_| {});
    let of = |pool: &str, family: &str, value: u8| {
        format!("prefix_picker_replica_{family}pool=\"{pool}\",replica=\"b\"}} {value}\n")
    };
    let both = ["one", "two"].map(|pool| {
        of(pool, "state{state=\"warming\",", 1)
            + &of(pool, "synced{", 0)
            + &of(pool, "connected{", 0)
    });
    let pages = Pages {
        ready: (200, String::new()),
        metrics: both.concat(),
        status: Value::Null,
    };
    let mut engines = Engines::default();
    engines.note("one", "b", &[Item::fail("engine.events", "b", "x", "y")]);
    let report = judged(&fleet.config(), &pages, &engines);
    let synced = report.items.iter();
    let synced = synced.filter(|item| item.id == "control_plane.synced");
    let statuses: Vec<_> = synced.map(|item| item.status).collect();
    assert_eq!(statuses, [Skipped, Fail], "{}", report.text(false));
}

/// Just started, and it waits for an engine that publishes no events.
#[test]
fn a_control_plane_that_waits_for_an_engine() {
    let fleet = Fleet::start("waits", |engine| {
        (engine.events, engine.replay) = (None, None)
    });
    let mut config = fleet.config();
    config.startup_grace_ms = 120_000;
    let running = Running::starting(config);
    running.wait("it waits for b alone", |running| {
        let (status, text) = running.get("/readyz");
        status == 503 && text.trim().ends_with("the events of: b")
    });
    let admin = gateway_with(&running.runtime, &fleet, |pages| {
        figure(pages, "table_age_seconds", 90);
        figure(pages, "sync_polls_total_result=_=ok_=_", 0);
        figure(pages, "sync_polls_total_result=_=status_=_", 5);
        pages.server_info["uptime_current_epoch"] = json!("60s");
    });
    let options = Options {
        envoy_admin: vec![admin],
        ..Options::default()
    };
    let report = run(&running.config, &options);
    expect(
        &report,
        &["control_plane.", "engine.", "gateway."],
        &[("engine.events", "b", Fail, "nobody listens", "")],
    );
    let url = running.url("");
    for (id, cause) in [
        ("control_plane.ready", "b (see engine.events)"),
        ("control_plane.gateways", "see control_plane.ready"),
    ] {
        let follows = item(&report, id, &url);
        assert_eq!(follows.status, Skipped, "{follows:?}");
        assert!(follows.found.ends_with(cause), "{follows:?}");
    }
    let mut syncs = report.items.iter().filter(|item| item.id == "gateway.sync");
    let sync = syncs.next().unwrap();
    assert!(sync.found.ends_with("see control_plane.ready"), "{sync:?}");
    // For no reason that is known: then it is its own fault, and the gateways' still not Envoy's.
    let report = judged(&running.config, &pages_of(&running), &Engines::default());
    let told = faults(&report, &["control_plane.ready", "control_plane.gateways"]);
    let ids: Vec<_> = told.iter().map(|item| item.id).collect();
    assert_eq!(ids, ["control_plane.ready"], "{}", report.text(false));
}

/// The gateway that was looked at polls nowhere: no wonder that none is seen.
#[test]
fn a_gateway_that_polls_elsewhere() {
    let fleet = Fleet::start("elsewhere", |_| {});
    let running = Running::start(fleet.config());
    let admin = gateway_with(&running.runtime, &fleet, |pages| {
        figure(pages, "table_age_seconds", 90);
        figure(pages, "sync_polls_total_result=_=ok_=_", 0);
        figure(pages, "sync_polls_total_result=_=refused_=_", 5);
        settings(pages, |s| s["control_plane"]["cluster"] = json!("nowhere"));
    });
    let options = Options {
        envoy_admin: vec![admin],
        probe: false,
        ..Options::default()
    };
    let report = run(&running.config, &options);
    let told = faults(&report, &["control_plane.", "gateway."]);
    let ids: Vec<_> = told.iter().map(|item| item.id).collect();
    let only = ["gateway.control_plane_cluster"];
    assert_eq!(ids, only, "{}", report.text(false));
    let gateways = item(&report, "control_plane.gateways", &running.url(""));
    assert_eq!(gateways.status, Skipped, "{gateways:?}");
    assert!(gateways.found.contains(only[0]), "{gateways:?}");
}

/// Gateways ask one control plane at a time: the other stands by.
#[test]
fn a_control_plane_that_stands_by_is_well() {
    let (fleet, first) = healthy("stands-by");
    let dir = Temp::new("stands-by-2");
    let second = Running::start(Config {
        listen: std::net::SocketAddr::from(([127, 0, 0, 1], free_port())),
        data_dir: dir.0.clone(),
        ..fleet.config()
    });
    let options = Options {
        urls: vec![first.url(""), second.url("")],
        probe: false,
        ..Options::default()
    };
    let report = run(&first.config, &options);
    let told = faults(&report, &["control_plane."]);
    assert!(told.is_empty(), "{}", report.text(false));
    let idle = item(&report, "control_plane.gateways", &second.url(""));
    assert_eq!(idle.status, Skipped, "{idle:?}");
    assert!(
        idle.found.contains("one control plane at a time"),
        "{idle:?}"
    );
}

/// A gateway that has answers, or none that could: nothing that a control plane without polls says besides.
#[test]
fn why_nobody_has_polled_is_said_once() {
    let fleet = Fleet::start("nobody", |_| {});
    let running = Running::start(fleet.config());
    let admin = gateway_with(&running.runtime, &fleet, |_| ());
    let dead = format!("http://127.0.0.1:{}", free_port());
    for (admin, only) in [(admin, None), (dead, Some("gateway.reachable"))] {
        let options = Options {
            envoy_admin: vec![admin],
            probe: false,
            ..Options::default()
        };
        let report = run(&running.config, &options);
        let told = faults(&report, &["control_plane.", "gateway."]);
        let ids: Vec<_> = told.iter().map(|item| item.id).collect();
        assert_eq!(ids, Vec::from_iter(only), "{}", report.text(false));
        let gateways = item(&report, "control_plane.gateways", &running.url(""));
        assert_eq!(gateways.status, Skipped, "{gateways:?}");
    }
}

/// Whoever looks an id up finds it, also of what does not answer.
#[test]
fn all_ids_are_there() {
    let fleet = Fleet::start("ids", |_| {});
    let nobody = free_port();
    let options = Options {
        urls: vec![format!("http://[::1]:{nobody}")],
        envoy_admin: vec![format!("http://[::1]:{nobody}/")],
        probe: false,
        ..Options::default()
    };
    let report = run(&fleet.config(), &options);
    let (url, admin) = (format!("http://[::1]:{nobody}"), format!("[::1]:{nobody}"));
    let mut looked_up = 0;
    for id in super::docs::listed() {
        let (subject, group) = match id.split('.').next().unwrap() {
            "control_plane" | "traffic" => (&url, "control_plane"),
            "gateway" => (&admin, "gateway"),
            _ => continue,
        };
        looked_up += 1;
        let found = item(&report, &id, subject);
        if id.ends_with(".reachable") {
            assert_eq!(found.status, Fail, "{found:?}");
        } else {
            assert_eq!(found.status, Skipped, "{found:?}");
            let cause = format!("see {group}.reachable");
            assert!(found.found.ends_with(&cause), "{found:?}");
        }
    }
    assert!(looked_up > 25, "{looked_up}");
}

/// And of replicas for which there was no time.
#[test]
fn all_ids_of_an_engine_are_there() {
    let fleet = Fleet::start("no-time", |_| {});
    let options = Options {
        time: Duration::ZERO,
        ..Options::default()
    };
    let report = run(&fleet.config(), &options);
    let listed = super::docs::listed().into_iter();
    // Sources are told by some engines only.
    let ids = listed.filter(|id| id.starts_with("engine.") && !id.ends_with("_sources"));
    for id in ids {
        let found = item(&report, &id, "b");
        assert_eq!(found.status, Skipped, "{found:?}");
        assert!(found.found.contains("--time"), "{found:?}");
    }
}

/// The same of a gateway without the filter.
#[test]
fn all_ids_of_a_gateway_without_the_filter_are_there() {
    let report = super::gateways::look(|pages| {
        pages.config_dump = json!({"configs": []});
    });
    for id in super::docs::listed() {
        let is_ours = id.starts_with("gateway.") && id != "gateway.reachable";
        let mut all = report.items.iter();
        assert!(
            !is_ours || all.any(|item| item.id == id),
            "no {id}: {}",
            report.text(false)
        );
    }
}

/// It accepts connections, as a stopped process does.
#[test]
fn an_envoy_that_hangs() {
    let fleet = Fleet::start("hung-envoy", |_| {});
    let silent = TcpListener::bind("[::1]:0").unwrap();
    let subject = silent.local_addr().unwrap().to_string();
    let options = Options {
        envoy_admin: vec![format!("http://{subject}")],
        probe: false,
        ..Options::default()
    };
    let report = run(&fleet.config(), &options);
    expect(
        &report,
        &["gateway."],
        &[(
            "gateway.reachable",
            &subject,
            Fail,
            "not answered within 8 s: it hangs",
            "restart it",
        )],
    );
}

/// What is over is no fault for ever.
#[test]
fn faults_that_are_over() {
    let (_fleet, running) = healthy("over");
    let mut pages = pages_of(&running);
    let reset = |why: &str, count: u8| {
        format!(
            "prefix_picker_replica_resets_total{{pool=\"demo\",replica=\"b\",why=\"{why}\"}} {count}\n"
        )
    };
    let refused = "prefix_picker_polls_total{result=\"unauthorized\"} 3\n";
    let metrics = pages.metrics.clone();
    let with = |lines: &str| metrics.replace("# EOF", &format!("{lines}# EOF"));
    let look = |pages: &Pages| judged(&running.config, pages, &Engines::default());
    let ids = |report: &Report| -> Vec<&str> {
        let all = faults(report, &["control_plane."]);
        all.iter().map(|item| item.id).collect()
    };
    pages.status["uptime_s"] = json!(7_200);
    let dropped = |pages: &mut Pages, ago_s: u64| {
        pages.status["pools"][0]["replicas"][1]["reset_age_ms"] = json!(ago_s * 1_000);
    };
    for (count, told) in [(1, "b (once)"), (2, "b (twice)"), (3, "b (3 times)")] {
        pages.metrics = with(&reset("restart", count));
        dropped(&mut pages, 299);
        let now = look(&pages);
        assert_eq!(ids(&now), ["control_plane.resets"]);
        assert!(
            item(&now, "control_plane.resets", "cp")
                .found
                .contains(told)
        );
        dropped(&mut pages, 300);
        let later = look(&pages);
        assert_eq!(ids(&later), Vec::<&str>::new());
        assert!(
            item(&later, "control_plane.resets", "cp")
                .found
                .contains(told)
        );
    }
    // Again and again.
    pages.metrics = with(&reset("restart", 9));
    assert_eq!(ids(&look(&pages)), ["control_plane.resets"]);
    // Of two kinds: both are told.
    pages.metrics = with(&(reset("restart", 1) + &reset("history_lost", 2)));
    dropped(&mut pages, 10);
    let both = look(&pages);
    let both = item(&both, "control_plane.resets", "cp");
    assert!(
        both.found.contains("b (once)") && both.found.contains("b (history_lost: 2)"),
        "{both:?}"
    );
    assert_eq!(both.status, Warn);
    // Refused polls, while the alarm lasts and after.
    pages.metrics = with(refused);
    pages.status["alarms"] = json!([{"id": "refused_token"}]);
    assert_eq!(ids(&look(&pages)), ["control_plane.tokens"]);
    pages.status["alarms"] = json!([]);
    let over = look(&pages);
    assert_eq!(ids(&over), Vec::<&str>::new());
    let tokens = item(&over, "control_plane.tokens", "cp");
    assert!(
        tokens.found.contains("3 polls")
            && tokens
                .found
                .contains("no poll was refused in the last 5 minutes")
    );
}
