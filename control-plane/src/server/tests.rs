//! The server over HTTP, with engines that are not there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::sync::{Answer, MAJOR, Poll};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::engine::Engine;
use crate::engine::tests::{Gateway, at, config, stored};
use crate::serve::Serve;

mod admin;
mod news;
mod report;
mod status;

/// What takes longer is never done: a busy machine may need seconds for what is usually done in milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Takes connections, and never answers.
struct Mute(std::net::TcpListener);

impl Mute {
    fn new() -> Self {
        Self(std::net::TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// As long as this one is there, nothing is found out about a replica of that name.
    fn stands_for(&self, name: &str, config: &mut Config) {
        let url = format!("http://{}/", self.0.local_addr().unwrap());
        let mut replicas = config.pools.iter_mut().flat_map(|pool| &mut pool.replicas);
        let replica = replicas.find(|replica| replica.name == name).unwrap();
        (replica.health, replica.metrics) = (url.clone(), url);
        config.scrape_timeout_ms = 600_000;
    }
}

struct Running {
    base: String,
    engine: Arc<Engine>,
    dir: PathBuf,
    client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn start(name: &str, grace_ms: u64) -> Self {
        Self::start_with(name, |config| config.startup_grace_ms = grace_ms).await
    }

    async fn start_with(name: &str, change: impl FnOnce(&mut Config)) -> Self {
        let dir = std::env::temp_dir().join(format!(
            "prefix-picker-server-{name}-{}",
            std::process::id()
        ));
        let _ = std::fs::remove_dir_all(&dir);
        Self::start_in(dir, change).await
    }

    async fn start_in(dir: PathBuf, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(&dir);
        change(&mut config);
        let serve = Serve::open(config).await.unwrap();
        let base = format!("http://{}", serve.address().unwrap());
        let engine = serve.engine();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve.run(async {
            let _ = stopped.await;
        }));
        Self {
            base,
            engine,
            dir,
            client: reqwest::Client::new(),
            stop: Some(stop),
            task,
        }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = self
            .client
            .get(format!("{}{path}", self.base))
            .send()
            .await
            .unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn sync(&self, token: &str, body: impl Into<reqwest::Body>) -> (u16, Vec<u8>) {
        let request = self
            .client
            .post(format!("{}/v1/sync", self.base))
            .header("authorization", token)
            .body(body);
        let response = request.send().await.unwrap();
        (
            response.status().as_u16(),
            response.bytes().await.unwrap().to_vec(),
        )
    }

    async fn poll(&self, poll: &Poll) -> Answer {
        let (status, body) = self
            .sync("Bearer second-token", serde_json::to_vec(poll).unwrap())
            .await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        Answer::decode(&body).unwrap()
    }

    async fn until_ready(&self) {
        self.until("/readyz", |body| body == "ready\n").await;
    }

    /// Until a page says something.
    async fn until(&self, path: &str, says: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        loop {
            let body = self.get(path).await.1;
            if says(&body) {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "never said of {path}: {body}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn stop(mut self) -> PathBuf {
        drop(self.stop.take());
        self.task.await.unwrap().unwrap();
        self.dir
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_ask_and_what() {
    let running = Running::start("auth", 60_000).await;
    assert_eq!(running.get("/healthz").await.0, 200);
    running.until_ready().await;
    let poll = serde_json::to_vec(&Poll {
        protocol: MAJOR,
        ..Poll::default()
    })
    .unwrap();
    for (token, expected) in [
        ("Bearer first-token", 200),
        ("Bearer second-token", 200),
        ("Bearer third-token", 401),
        ("", 401),
    ] {
        assert_eq!(
            running.sync(token, poll.clone()).await.0,
            expected,
            "{token}"
        );
    }
    let other = serde_json::to_vec(&Poll {
        protocol: MAJOR + 1,
        ..Poll::default()
    })
    .unwrap();
    for (body, expected) in [
        (&b"{"[..], 400),
        (b"{}", 400),
        (&other, 400),
        (&[b' '; 300_000], 413),
    ] {
        assert_eq!(
            running.sync("Bearer first-token", body.to_vec()).await.0,
            expected
        );
    }
    assert_eq!(running.get("/v1/sync").await.0, 405);
    let (status, metrics) = running.get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "prefix_picker_polls_total{result=\"load\"} 2",
        "prefix_picker_polls_total{result=\"unauthorized\"} 2",
        "prefix_picker_polls_total{result=\"malformed\"} 2",
        "prefix_picker_replica_state{pool=\"one\",replica=\"a\",state=\"down\"} 1",
        "prefix_picker_build_info{version=\"",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let dir = running.stop().await;
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_ends_with_news_and_at_a_stop() {
    /// Half of what a poll takes that nothing ends.
    const AT_ONCE: Duration = Duration::from_secs(10);
    let running = Running::start("poll", 60_000).await;
    running.until_ready().await;
    let mut gateway = Gateway::default();
    gateway.settle(&running.engine);

    // Nothing new: it waits. What is found out of the replicas at the start may still be news.
    let mut polls = 0;
    let waited = loop {
        let begin = Instant::now();
        let answer = running
            .poll(&Poll {
                wait_ms: 150,
                ..gateway.poll()
            })
            .await;
        if !crate::engine::has_news(&answer) {
            break begin.elapsed();
        }
        gateway.take(&answer);
        polls += 1;
        assert!(polls < 20, "news without end: {answer:?}");
    };
    assert!(waited >= Duration::from_millis(150), "{waited:?}");

    // News: it ends, and the gateway sees the blocks.
    let text = "some words that are long enough for a block of ours and for more than one of the engine's ".repeat(8);
    let engine = running.engine.clone();
    let batch = stored(&engine, &text, 7);
    let waiting = Poll {
        wait_ms: 20_000,
        ..gateway.poll()
    };
    let publish = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begin = Instant::now();
        engine.apply(ReplicaIndex(0), at(0), &batch);
        begin
    };
    let (answer, published) = tokio::join!(running.poll(&waiting), publish);
    gateway.take(&answer);
    // What ended that poll may have been other, late news.
    while !gateway
        .matches(&text)
        .iter()
        .any(|(replica, blocks)| *replica == 0 && *blocks > 1)
    {
        assert!(published.elapsed() < AT_ONCE, "{:?}", published.elapsed());
        let waiting = Poll {
            wait_ms: 20_000,
            ..gateway.poll()
        };
        gateway.take(&running.poll(&waiting).await);
    }
    assert!(published.elapsed() < AT_ONCE, "{:?}", published.elapsed());

    // A stop: the poll is answered, the snapshot written.
    gateway.settle(&running.engine);
    let waiting = Poll {
        wait_ms: 20_000,
        ..gateway.poll()
    };
    let body = serde_json::to_vec(&waiting).unwrap();
    let request = running
        .client
        .post(format!("{}/v1/sync", running.base))
        .bearer_auth("first-token")
        .body(body)
        .send();
    let request = tokio::spawn(request);
    // One that is not there yet is refused.
    let waits = |metrics: &str| metrics.contains("prefix_picker_polls_waiting 1\n");
    running
        .until("/metrics", |metrics| {
            waits(metrics) || request.is_finished()
        })
        .await;
    let begin = Instant::now();
    let dir = running.stop().await;
    assert_eq!(request.await.unwrap().unwrap().status(), 200);
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    assert!(dir.join("pool-one.snapshot").exists() && dir.join("pool-two.snapshot").exists());
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answers_before_the_replicas_are_known_or_the_grace_is_over() {
    let poll = serde_json::to_vec(&Poll {
        protocol: MAJOR,
        ..Poll::default()
    })
    .unwrap();
    // One is neither followed nor down, and the grace is longer than any test.
    let mute = Mute::new();
    let running = Running::start_with("grace", |config| {
        config.startup_grace_ms = 600_000;
        mute.stands_for("a", config);
    })
    .await;
    let alone = "waiting for the events of: a\n";
    running.until("/readyz", |body| body == alone).await;
    assert_eq!(running.get("/readyz").await, (503, alone.to_owned()));
    let (status, _) = running.sync("Bearer first-token", poll.clone()).await;
    assert_eq!(status, 503);
    drop(mute);
    running.until_ready().await;
    let (status, _) = running.sync("Bearer first-token", poll).await;
    assert_eq!(status, 200);
    let dir = running.stop().await;
    std::fs::remove_dir_all(dir).unwrap();

    // Nothing is ever known of it.
    let mute = Mute::new();
    let begin = Instant::now();
    let running = Running::start_with("grace-over", |config| {
        config.startup_grace_ms = 600;
        mute.stands_for("a", config);
    })
    .await;
    running.until_ready().await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(600), "{took:?}");
    let dir = running.stop().await;
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test]
async fn an_adapter_is_forgotten_for_who_has_a_token() {
    let running = Running::start("forget", 60_000).await;
    let ask = async |token: &str, body: &'static str| {
        let url = format!("{}/v1/adapters/forget", running.base);
        let request = running.client.post(url).header("authorization", token);
        let response = request.body(body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let good = r#"{"pool": "one", "adapter": "team/sql"}"#;
    assert_eq!(ask("Bearer nobody", good).await.0, 401);
    let known = "Bearer second-token";
    assert_eq!(
        ask(known, good).await,
        (200, r#"{"dropped_blocks":0}"#.into())
    );
    assert_eq!(
        ask(known, r#"{"pool": "x", "adapter": "sql"}"#).await.0,
        404
    );
    assert_eq!(ask(known, r#"{"pool": "one"}"#).await.0, 400);
    running.stop().await;
}
