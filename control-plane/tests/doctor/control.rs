//! The control plane, running: what doctor says of it, and of a whole fleet.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use prefix_picker::config::Config;
use prefix_picker::doctor::Status::{Fail, Ok, Skipped, Warn};
use prefix_picker::doctor::control_plane::Engines;
use prefix_picker::doctor::{Options, Report, control_plane, examine};
use prefix_picker::serve::Serve;
use prefix_picker_core::sync::decisions::Decision;
use prefix_picker_core::sync::{MAJOR, Poll};
use tokio::sync::oneshot;

use super::filters::figure;
use super::fleet::{Fleet, expect, free_port, item, run, serve};
use super::gateways;
use super::requests::{decision, tell};

/// A control plane in this process; ends when dropped.
pub(crate) struct Running {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) config: Config,
    _stop: Mutex<Option<oneshot::Sender<()>>>,
}

impl Running {
    pub(crate) fn start(config: Config) -> Self {
        let running = Self::starting(config);
        running.wait("it is ready", |running| running.get("/readyz").0 == 200);
        running
    }

    /// One that may not be ready yet.
    pub(crate) fn starting(config: Config) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let owned = config.clone();
        runtime.spawn(async move {
            let serve = Serve::open(owned).await.unwrap();
            serve.run(async { drop(stopped.await) }).await.unwrap();
        });
        Self {
            runtime,
            config,
            _stop: Mutex::new(Some(stop)),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.config.listen)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let get = async {
            let response = reqwest::get(self.url(path)).await.ok()?;
            Some((response.status().as_u16(), response.text().await.ok()?))
        };
        self.runtime.block_on(get).unwrap_or_default()
    }

    pub(crate) fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "{what}: not within 30 s"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn has_metric(&self, line: &str) -> bool {
        self.get("/metrics").1.lines().any(|found| found == line)
    }

    /// What a gateway sends.
    pub(crate) fn post(&self, path: &str, token: &str, body: Vec<u8>) -> u16 {
        let post = reqwest::Client::new()
            .post(self.url(path))
            .bearer_auth(token);
        let response = self.runtime.block_on(post.body(body).send()).unwrap();
        response.status().as_u16()
    }

    pub(crate) fn poll(&self, token: &str) -> u16 {
        let poll = Poll {
            protocol: MAJOR,
            wait_ms: 0,
            ..Poll::default()
        };
        self.post("/v1/sync", token, serde_json::to_vec(&poll).unwrap())
    }

    pub(crate) fn doctor(&self) -> Report {
        run(&self.config, &Options::default())
    }
}

pub(crate) fn healthy(name: &str) -> (Fleet, Running) {
    let fleet = Fleet::start(name, |_| {});
    let running = Running::start(fleet.config());
    assert_eq!(running.poll("a-token"), 200);
    (fleet, running)
}

/// The admin pages of a gateway that belongs to the fleet.
pub(crate) fn gateway(runtime: &tokio::runtime::Runtime, fleet: &Fleet) -> String {
    gateway_with(runtime, fleet, |_| {})
}

/// The same, with other pages.
pub(crate) fn gateway_with(
    runtime: &tokio::runtime::Runtime,
    fleet: &Fleet,
    edit: impl FnOnce(&mut gateways::Pages),
) -> String {
    let mut pages = gateways::pages();
    edit(&mut pages);
    let ours = |text: String| {
        let mut text = text.replace("change-me-gateway-token", "a-token");
        for (port, engine) in [8101, 8102].into_iter().zip(&fleet.engines) {
            text = text.replace(&format!("{port}"), &engine.addr().port().to_string());
        }
        text
    };
    let mut clusters = pages.clusters;
    clusters["cluster_statuses"][0]["host_statuses"]
        .as_array_mut()
        .unwrap()
        .truncate(2);
    let (dump, clusters) = (
        ours(pages.config_dump.to_string()),
        ours(clusters.to_string()),
    );
    let info = pages.server_info.to_string();
    // The first look, and all after it.
    let looks = AtomicUsize::new(0);
    let (first, later) = (pages.stats, pages.later);
    let stats = move || {
        let is_first = looks.fetch_add(1, Ordering::Relaxed) == 0;
        let later = later.as_ref().filter(|_| !is_first);
        std::future::ready(later.unwrap_or(&first).clone())
    };
    let stats = std::sync::Arc::new(stats);
    let app = Router::new()
        .route("/config_dump", get(async || dump))
        .route("/clusters", get(async || clusters))
        .route("/server_info", get(async || info))
        .route("/stats", get(move || stats()));
    serve(runtime, app) + "/"
}

#[test]
fn a_whole_fleet_is_well() {
    let (fleet, running) = healthy("whole");
    let dashboard = fleet.state.0.join("dashboard.json");
    std::fs::write(
        &dashboard,
        r#"{"panels": [{"title": "a", "targets": [{"expr": "vllm:kv_cache_usage_perc"}]}]}"#,
    )
    .unwrap();
    let traffic: Vec<Decision> = (0..30).map(|_| decision(1, 2)).collect();
    tell(&running, traffic);
    let options = Options {
        envoy_admin: vec![gateway(&running.runtime, &fleet)],
        dashboards: vec![dashboard],
        ..Options::default()
    };
    let report = run(&running.config, &options);
    let bad: Vec<_> = report
        .items
        .iter()
        .filter(|item| item.status != Ok)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(!report.has_failed());
    let ids: std::collections::BTreeSet<_> = report.items.iter().map(|item| item.id).collect();
    assert!(ids.len() > 40, "{} {ids:?}", ids.len());
}

#[test]
fn control_plane_down() {
    let fleet = Fleet::start("no-control-plane", |_| {});
    let config = fleet.config();
    let url = config.listen;
    expect(
        &run(&config, &Options::default()),
        &["control_plane."],
        &[(
            "control_plane.reachable",
            &format!("http://{url}"),
            Fail,
            "nobody answers",
            "prefix-picker serve",
        )],
    );
}

#[test]
fn engine_restarted() {
    let (fleet, running) = healthy("restarted");
    // Known before, so that the restart shows.
    let _ = running.doctor();
    let seq = |n: u64| format!("prefix_picker_replica_last_seq{{pool=\"demo\",replica=\"b\"}} {n}");
    running.wait("the events are in", |running| {
        (0..9).any(|n| running.has_metric(&seq(n)))
    });
    fleet.engines[1].restart(Duration::from_millis(50));
    // The first event after it tells.
    let _ = running.doctor();
    let reset = "prefix_picker_replica_resets_total{pool=\"demo\",replica=\"b\",why=\"restart\"} 1";
    running.wait("the restart is seen", |running| running.has_metric(reset));
    running.wait("it is synced", |running| {
        running.has_metric("prefix_picker_replica_synced{pool=\"demo\",replica=\"b\"} 1")
    });
    let url = running.url("");
    expect(
        &running.doctor(),
        &["control_plane.", "engine."],
        &[("control_plane.resets", &url, Warn, "b (once)", "look why")],
    );
}

#[test]
fn not_synced() {
    let fleet = Fleet::start("unsynced", |engine| {
        (engine.events, engine.replay) = (None, None)
    });
    let mut config = fleet.config();
    config.startup_grace_ms = 100;
    let running = Running::start(config);
    assert_eq!(running.poll("a-token"), 200);
    // One fault, told where it is.
    let report = running.doctor();
    expect(
        &report,
        &["control_plane.", "engine."],
        &[("engine.events", "b", Fail, "nobody listens", "")],
    );
    let synced = item(&report, "control_plane.synced", "b");
    assert_eq!(synced.status, Skipped, "{synced:?}");
    assert!(synced.found.contains("see engine.events"), "{synced:?}");
    // Seen from here all is well: the fault is the control plane's.
    let pages = control_plane::Pages {
        ready: (200, String::new()),
        metrics: running.get("/metrics").1,
        status: serde_json::Value::Null,
    };
    let items = control_plane::judge(&running.config, "cp", &pages, &Engines::default());
    expect(
        &Report {
            items,
            ..Report::default()
        },
        &["control_plane."],
        &[(
            "control_plane.synced",
            "b",
            Fail,
            "no connection to its events",
            "engine.events",
        )],
    );
}

/// The control plane is right about an engine that is gone: that is no fault of its own.
#[test]
fn a_dead_engine_is_one_fault() {
    let (fleet, running) = healthy("one-fault");
    fleet.engines[1].die();
    let down = "prefix_picker_replica_state{pool=\"demo\",replica=\"b\",state=\"down\"} 1";
    running.wait("it is down", |running| running.has_metric(down));
    let unsynced = "prefix_picker_replica_synced{pool=\"demo\",replica=\"b\"} 0";
    running.wait("its events are gone", |running| {
        running.has_metric(unsynced)
    });
    let report = running.doctor();
    let faults = super::fleet::faults(&report, &["engine.", "pool.", "control_plane."]);
    let ids: Vec<_> = faults.iter().map(|item| item.id).collect();
    assert_eq!(ids, ["engine.reachable"], "{}", report.text(false));
    let replicas = item(&report, "control_plane.replicas", &running.url(""));
    assert!(
        replicas.found.contains("down as their engines are") && replicas.found.contains(": b"),
        "{replicas:?}"
    );
    let synced = item(&report, "control_plane.synced", "b");
    assert_eq!(synced.status, Skipped, "{synced:?}");
    assert!(synced.found.contains("see engine.reachable"), "{synced:?}");
}

/// A gateway that hears no control plane, because there is none.
#[test]
fn a_control_plane_that_is_gone_is_one_fault() {
    let fleet = Fleet::start("gone", |_| {});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let admin = gateway_with(&runtime, &fleet, |pages| {
        figure(pages, "table_age_seconds", 90);
    });
    let options = Options {
        envoy_admin: vec![admin.clone()],
        probe: false,
        ..Options::default()
    };
    let config = fleet.config();
    let report = run(&config, &options);
    let faults = super::fleet::faults(&report, &["control_plane.", "gateway."]);
    let ids: Vec<_> = faults.iter().map(|item| item.id).collect();
    assert_eq!(ids, ["control_plane.reachable"], "{}", report.text(false));
    let mut ages = report
        .items
        .iter()
        .filter(|item| item.id == "gateway.table_age");
    let age = ages.next().unwrap();
    assert_eq!(age.status, Skipped, "{age:?}");
    assert!(
        age.found.contains("90 s ago") && age.found.contains("see control_plane.reachable"),
        "{age:?}"
    );
    // There is one: then it is the gateway's fault.
    let running = Running::start(config);
    let report = run(&running.config, &options);
    let faults = super::fleet::faults(&report, &["gateway."]);
    let ids: Vec<_> = faults.iter().map(|item| item.id).collect();
    assert_eq!(ids, ["gateway.sync"], "{}", report.text(false));
}

#[test]
fn no_gateway_and_wrong_tokens() {
    let fleet = Fleet::start("tokens", |_| {});
    let running = Running::start(fleet.config());
    let url = running.url("");
    assert_eq!(running.poll("not-the-token"), 401);
    expect(
        &running.doctor(),
        &["control_plane."],
        &[
            (
                "control_plane.gateways",
                &url,
                Fail,
                "no gateway has had an answer",
                "control_plane.cluster",
            ),
            (
                "control_plane.tokens",
                &url,
                Warn,
                "1 poll came",
                "wrong `control_plane.token`",
            ),
        ],
    );
}

#[test]
fn another_configuration() {
    let (fleet, running) = healthy("other");
    let mut config = running.config.clone();
    let replica = &mut config.pools[0].replicas[1];
    "new".clone_into(&mut replica.name);
    let look = |config: &Config, fault: &str| {
        expect(
            &run(config, &Options::default()),
            &["control_plane."],
            &[(
                "control_plane.replicas",
                &running.url(""),
                Fail,
                fault,
                "another configuration",
            )],
        );
    };
    look(
        &config,
        "it does not have new; it has b, which the configuration has not",
    );
    // One that it has elsewhere than the configuration says.
    let mut config = running.config.clone();
    let had = config.pools[0].replicas[1].endpoint;
    config.pools[0].replicas[1].endpoint = "[::1]:9".parse().unwrap();
    look(&config, &format!("it has b at {had} (configured: [::1]:9)"));
    let mut config = running.config.clone();
    config.pools[0].replicas[1].data_parallel_rank = Some(1);
    look(&config, "b with no rank (configured: rank 1)");
    // One, and a whole pool, that it has and the configuration has not.
    let mut config = running.config.clone();
    config.pools[0].replicas.pop();
    look(&config, "it has b, which the configuration has not");
    "other".clone_into(&mut config.pools[0].name);
    look(&config, "the pool demo, which the configuration has not");
    drop(fleet);
}

#[test]
fn an_unreachable_gateway() {
    let fleet = Fleet::start("no-gateway", |_| {});
    let options = Options {
        envoy_admin: vec![format!("http://127.0.0.1:{}", free_port())],
        probe: false,
        ..Options::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime
        .block_on(examine(&fleet.config(), &options))
        .unwrap();
    let faults = super::fleet::faults(&report, &["gateway."]);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].id == "gateway.reachable" && faults[0].fix.contains("--envoy-admin"));
}
