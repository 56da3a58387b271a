//! The status and the page, over HTTP.

use prefix_picker_core::recent::place;
use prefix_picker_core::sync::decisions::{Decision, Decisions};
use serde_json::Value;

use super::{Duration, Instant, LIMIT, Mute, Running};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gateways_tell_is_in_the_status() {
    let running = Running::start("status", 0).await;
    running.until_ready().await;
    let decisions = Decisions {
        records: vec![
            Decision {
                chosen: place("127.0.0.1:4"),
                prompt_tokens: 500,
                reason: 1,
                ..Decision::default()
            };
            3
        ],
        counts: vec![(1, 3)],
        ..Decisions::default()
    };
    let posted = running
        .client
        .post(format!("{}/v1/decisions", running.base))
        .bearer_auth("first-token")
        .body(decisions.encode().unwrap());
    assert_eq!(posted.send().await.unwrap().status(), 200);
    let (code, text) = running.get("/v1/status?decisions_after=1").await;
    assert_eq!(code, 200);
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["schema"], "prefix-picker.status/1");
    assert_eq!(status["decisions"].as_array().unwrap().len(), 2);
    assert_eq!(status["decisions"][0]["replica"], "b");
    assert_eq!(status["reasons"][0]["reason"], "prefix");
    for query in ["?decisions_after=x", "?decisions=1", "?decisions_after=-1"] {
        let (code, text) = running.get(&format!("/v1/status{query}")).await;
        assert_eq!(code, 400, "{query}");
        assert!(text.contains("decisions_after=NUMBER"), "{text}");
    }
    running.stop().await;
}

/// Packed it is the same, and much less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_gzip_gets_it() {
    use std::io::Read as _;

    let running = Running::start("status-gzip", 0).await;
    running.until_ready().await;
    let ask = |path: &'static str, coding: &'static str| {
        let url = format!("{}{path}", running.base);
        let request = running.client.get(url).header("accept-encoding", coding);
        async move {
            let response = request.send().await.unwrap();
            let coded = response.headers().get("content-encoding").cloned();
            assert_eq!(response.headers()["vary"], "accept-encoding");
            let is_json = response.headers()["content-type"] == "application/json";
            assert_eq!(is_json, path == "/v1/status");
            (coded, response.bytes().await.unwrap())
        }
    };
    let unpack = |bytes: &[u8]| {
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(bytes);
        decoder.read_to_string(&mut text).unwrap();
        text
    };
    // Something may have become known between the two.
    let begin = Instant::now();
    let (plain, bytes) = loop {
        let (coded, plain) = ask("/v1/status", "br, gzip;q=0").await;
        assert_eq!(coded, None);
        let told: Value = serde_json::from_slice(&plain).unwrap();
        let (coded, bytes) = ask("/v1/status", "br, gzip").await;
        assert_eq!(coded.unwrap(), "gzip");
        let packed: Value = serde_json::from_str(&unpack(&bytes)).unwrap();
        if packed["pools"] == told["pools"] {
            break (plain, bytes);
        }
        assert!(begin.elapsed() < LIMIT, "{packed} is not {told}");
    };
    assert!(
        bytes.len() * 3 < plain.len(),
        "{} of {}",
        bytes.len(),
        plain.len()
    );
    // As Prometheus asks.
    let (coded, bytes) = ask("/metrics", "gzip").await;
    assert_eq!(coded.unwrap(), "gzip");
    assert!(unpack(&bytes).ends_with("# EOF\n"));
    assert_eq!(ask("/metrics", "identity").await.0, None);
    running.stop().await;
}

/// A gateway that is started anew has another name, and leaves a poll behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_started_anew_is_counted_once() {
    use std::io::Write as _;

    use prefix_picker_core::sync::{Poll, ReplicaHead};

    use crate::engine::tests::Gateway;

    // Nothing becomes known of a replica later, so that nothing ends a poll.
    let mute = Mute::new();
    let running = Running::start_with("status-gateways", |config| {
        config.startup_grace_ms = 0;
        for name in ["a", "b", "c"] {
            mute.stands_for(name, config);
        }
    })
    .await;
    running.until_ready().await;
    // But for this: the first look at loads finds them not ready, hence new to what comes.
    let is_old = |replica: &ReplicaHead| replica.pace.ramp_permille > 0;
    let begin = Instant::now();
    while running.engine.head().replicas.iter().any(is_old) {
        assert!(begin.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut settled = Gateway::default();
    settled.settle(&running.engine);
    // There is nothing new for them, so that they wait.
    let poll = |gateway: &str| {
        let poll = Poll {
            gateway: gateway.to_owned(),
            wait_ms: 60_000,
            ..settled.poll()
        };
        // As a socket, which closes as that of a process that ends.
        let body = serde_json::to_string(&poll).unwrap();
        let text = format!(
            "POST /v1/sync HTTP/1.1\r\nhost: a\r\nauthorization: Bearer first-token\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut socket =
            std::net::TcpStream::connect(running.base.trim_start_matches("http://")).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        socket
    };
    let until = async |count: u64| {
        let begin = Instant::now();
        loop {
            let (_, text) = running.get("/v1/status").await;
            let status: Value = serde_json::from_str(&text).unwrap();
            let gateways = &status["gateways"];
            if gateways["count"] == count {
                assert_eq!(gateways["silent"], 0);
                return;
            }
            assert!(begin.elapsed() < LIMIT, "not {count}: {gateways}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (old, other) = (poll("old"), poll("other"));
    until(2).await;
    // All three are there before one goes: it counts for three seconds only.
    let new = poll("new");
    until(3).await;
    drop(old);
    // Without what its going tells it would count for a minute.
    until(2).await;
    drop((other, new));
    running.stop().await;
}

/// What a browser is told of all of it: nothing from elsewhere, nothing to be kept, framed or guessed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_there_with_strict_headers() {
    let running = Running::start("page", 60_000).await;
    let files = [
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/page.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
        ("/v1/status", "application/json"),
    ];
    for (path, kind) in files {
        let url = format!("{}{path}", running.base);
        let response = running
            .client
            .get(url)
            .header("origin", "http://elsewhere.example");
        let response = response.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok());
        assert!(header("content-type").unwrap().starts_with(kind), "{path}");
        assert_eq!(header("x-content-type-options"), Some("nosniff"));
        assert_eq!(header("cache-control"), Some("no-store"));
        assert_eq!(header("access-control-allow-origin"), None);
        let policy = header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        let text = response.text().await.unwrap();
        assert!(!text.is_empty(), "{path}");
        if kind != "application/json" {
            // No other host, no inline script or style, nothing made of text.
            for word in [
                "//cdn",
                "https://",
                "innerHTML",
                "insertAdjacentHTML",
                "eval(",
                " style=",
                "onclick=",
            ] {
                assert!(!text.contains(word), "{path} has {word}");
            }
        }
    }
    running.stop().await;
}
