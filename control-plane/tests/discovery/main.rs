//! Discovery over real sockets: an API server in memory, engines that only tell, and the control plane.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test

#[path = "../common/mod.rs"]
mod common;

mod api;
mod cases;
#[allow(dead_code)] // the look-ups' own tests need all of it
mod dns_server;
mod engines;
mod failing;
mod heap;
mod soak;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prefix_picker::config::Config;
use prefix_picker::engine::{Engine, Member};
use prefix_picker::serve::Serve;
use prefix_picker_core::sync::ReplicaState;
use tokio::sync::oneshot;

use api::Api;
use engines::{Engines, Ports};

/// What takes longer is never done. The longest pause of a watch that fails is 10 s.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The configuration's text; `discovery` is what is in its braces.
pub(crate) fn config(dir: &Path, discovery: &str) -> String {
    format!(
        "
listen: 127.0.0.1:0
tokens: [token]
fleet_secret: a-secret-of-the-tests
data_dir: {}
scrape_interval_ms: 100
models_interval_ms: 300
startup_grace_ms: 3000
log_level: warn
pools:
  - name: one
    model_dir: {}
    models: [sim]
    clusters: [pool]
    discovery: {{{discovery}}}
",
        dir.display(),
        common::model(),
    )
}

/// Discovery by labels, or by what `which` says.
pub(crate) fn kubernetes(api: &Api, ports: Ports, which: &str) -> String {
    format!(
        "kubernetes: {{namespace: ml, {which}, api_server: 'http://{}'}}, events_port: {}, replay_port: {}",
        api.address, ports.events, ports.replay
    )
}

/// A control plane in this process.
pub(crate) struct ControlPlane {
    engine: Arc<Engine>,
    base: String,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl ControlPlane {
    pub(crate) async fn start(dir: &Path, discovery: &str) -> Self {
        let config = Config::parse(&config(dir, discovery)).unwrap();
        let serve = Serve::open(config).await.unwrap();
        let (engine, base) = (
            serve.engine(),
            format!("http://{}", serve.address().unwrap()),
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve.run(async {
            let _ = stopped.await;
        }));
        Self {
            engine,
            base,
            stop: Some(stop),
            task,
        }
    }

    pub(crate) async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.task.await.unwrap().unwrap();
    }

    pub(crate) fn member(&self, name: &str) -> Option<Member> {
        self.engine
            .members()
            .into_iter()
            .find(|member| member.name == name)
    }

    /// Names with their states, in order.
    pub(crate) fn states(&self) -> Vec<(String, ReplicaState)> {
        let members = self.engine.members().into_iter();
        let mut states: Vec<_> = members.map(|m| (m.name, m.head.state)).collect();
        states.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        states
    }

    pub(crate) async fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < WAIT_MAX, "{what}: {:?}", self.states());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Until these replicas are there, in these states.
    pub(crate) async fn until_states(&self, wanted: &[(&str, ReplicaState)]) {
        self.until(&format!("{wanted:?}"), |this| {
            let states = this.states();
            let mut pairs = states.iter().zip(wanted);
            states.len() == wanted.len()
                && pairs.all(|(is, wanted)| (is.0.as_str(), is.1) == *wanted)
        })
        .await;
    }

    /// Engine blocks that are known of a replica.
    pub(crate) fn blocks(&self, name: &str) -> usize {
        self.member(name)
            .map_or(0, |member| self.engine.replica_blocks(member.slot))
    }

    pub(crate) async fn metrics(&self) -> String {
        let response = reqwest::get(format!("{}/metrics", self.base))
            .await
            .unwrap();
        response.text().await.unwrap()
    }

    /// Until a metric, by the beginning of its line, is so: 0 where it is not there.
    pub(crate) async fn until_metric(&self, line: &str, is: impl Fn(f64) -> bool) {
        let begin = Instant::now();
        loop {
            let value = self.metric(line).await.unwrap_or(0.0);
            if is(value) {
                return;
            }
            assert!(begin.elapsed() < WAIT_MAX, "{line}: {value}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Until the metrics say so: they may do so later than the engine does.
    pub(crate) async fn until_metrics(&self, say: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        loop {
            let text = self.metrics().await;
            if say(&text) {
                return;
            }
            assert!(begin.elapsed() < WAIT_MAX, "{text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A metric's value, by the beginning of its line.
    pub(crate) async fn metric(&self, line: &str) -> Option<f64> {
        let text = self.metrics().await;
        let found = text.lines().find_map(|l| l.strip_prefix(line))?;
        found.trim().parse().ok()
    }
}

pub(crate) fn temp(name: &str) -> (common::Temp, PathBuf) {
    let temp = common::Temp::new(&format!("discovery-{name}"));
    let path = temp.0.clone();
    (temp, path)
}

/// API server and engines.
pub(crate) async fn world() -> (Api, Engines) {
    (Api::start().await, Engines::start().await)
}
