//! The status and the page, over HTTP.

use prefix_picker_core::recent::place;
use prefix_picker_core::sync::decisions::{Decision, Decisions};
use serde_json::Value;

use super::Running;

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
