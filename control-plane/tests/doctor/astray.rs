//! Addresses that do not lead to the engine: redirects, web pages, names that do not resolve.

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Html;
use axum::routing::get;
use prefix_picker::config::{Config, ReplicaConfig};
use prefix_picker::doctor::Status::{Fail, Ok, Skipped};
use prefix_picker::doctor::{Options, Report};

use super::fleet::{Fleet, expect, item, run, serve};

/// What doctor says after an edit of the second replica.
fn doctor(fleet: &Fleet, edit: impl FnOnce(&mut ReplicaConfig)) -> Report {
    let mut config = Config::parse(&fleet.yaml()).unwrap();
    edit(&mut config.pools[0].replicas[1]);
    run(&config, &Options::default())
}

/// All that is not ok is said to follow from this item.
fn follows(report: &Report, ids: &[&str], cause: &str) {
    for id in ids {
        let item = item(report, &format!("engine.{id}"), "b");
        assert_eq!(item.status, Skipped, "{item:?}");
        assert!(item.found.ends_with(&format!("see {cause}")), "{item:?}");
    }
}

const OF_API: [&str; 7] = [
    "version",
    "events",
    "hashes",
    "tokenizer",
    "template",
    "cached_tokens",
    "stream_usage",
];

/// Redirects everything to the same path there.
fn redirecting(runtime: &tokio::runtime::Runtime, to: String) -> String {
    let app = Router::new().fallback(async move |uri: Uri| {
        let mut headers = HeaderMap::new();
        let to = format!("{to}{}", uri.path());
        headers.insert("location", to.parse().unwrap());
        (StatusCode::MOVED_PERMANENTLY, headers)
    });
    serve(runtime, app)
}

#[test]
fn the_api_redirects_to_the_engine() {
    let fleet = Fleet::start("redirect", |_| {});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = fleet.engines[1].url();
    let at = redirecting(&runtime, engine.clone());
    let report = doctor(&fleet, |b| b.api.clone_from(&at));
    let found = format!("`api` redirects to {engine} ({at}/v1/models: status 301)");
    let fix = format!("name {engine} itself in `api`");
    expect(
        &report,
        &["engine.", "pool."],
        &[("engine.models", "b", Fail, &found, &fix)],
    );
    assert_eq!(item(&report, "engine.reachable", "b").status, Ok);
    follows(&report, &OF_API, "engine.models");
    let report = doctor(&fleet, |b| b.metrics = format!("{at}/metrics"));
    let found = format!("`metrics` redirects to {engine}/metrics ({at}/metrics: status 301)");
    let fix = format!("name {engine}/metrics itself in `metrics`");
    expect(
        &report,
        &["engine."],
        &[("engine.reachable", "b", Fail, &found, &fix)],
    );
}

/// One fault, said once; and an address that could not be configured is no cure.
#[test]
fn the_endpoint_redirects() {
    let fleet = Fleet::start("redirects", |_| {});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = fleet.engines[1].url();
    for (to, fix) in [
        (
            engine.clone(),
            format!("name {engine} itself in `endpoint`"),
        ),
        (
            "https://user:secret@127.0.0.1:9".to_owned(),
            "let `endpoint` name the engine itself (http://)".to_owned(),
        ),
    ] {
        let at = redirecting(&runtime, to.clone());
        let report = doctor(&fleet, |b| {
            b.endpoint = at.strip_prefix("http://").unwrap().parse().unwrap();
            b.api.clone_from(&at);
            (b.health, b.metrics) = (format!("{at}/health"), format!("{at}/metrics"));
        });
        let to = to.replace("user:secret@", "");
        let found = format!("`endpoint` redirects to {to} ({at}/health: status 301, ");
        expect(
            &report,
            &["engine."],
            &[("engine.reachable", "b", Fail, &found, &fix)],
        );
        follows(&report, &["models", "events"], "engine.reachable");
        follows(&report, &OF_API, "engine.reachable");
        assert!(!report.text(false).contains("secret"));
    }
}

/// Answers what is asked by `GET`, and redirects what is sent.
#[test]
fn only_requests_are_redirected() {
    let fleet = Fleet::start("posts", |_| {});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let to = || (StatusCode::TEMPORARY_REDIRECT, [("location", "/elsewhere")]);
    let models = r#"{"data": [{"id": "sim"}]}"#;
    let app = Router::new()
        .route("/v1/models", get(async move || models))
        .fallback(async move || to());
    let at = serve(&runtime, app);
    let report = doctor(&fleet, |b| b.api.clone_from(&at));
    let found = format!("a request is answered with a redirect to {at}/elsewhere (status 307)");
    expect(
        &report,
        &["engine."],
        &[(
            "engine.reachable",
            "b",
            Fail,
            &found,
            "`api` and `endpoint`",
        )],
    );
    let tokenizer = item(&report, "engine.tokenizer", "b");
    assert!(
        tokenizer.found.contains("/tokenize: status 307"),
        "{tokenizer:?}"
    );
}

fn login(runtime: &tokio::runtime::Runtime) -> String {
    let page = "\n<!doctype html><html><body>Log in</body></html>";
    serve(runtime, Router::new().fallback(async move || Html(page)))
}

#[test]
fn a_web_page_in_place_of_metrics() {
    let fleet = Fleet::start("login", |_| {});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let at = login(&runtime);
    let url = format!("{at}/metrics");
    let report = doctor(&fleet, |b| b.metrics.clone_from(&url));
    let found = format!("{url}: no vLLM metric (`vllm:`) is there, but a web page");
    let fix = "let `metrics` be the engine's own /metrics";
    expect(
        &report,
        &["engine.", "pool."],
        &[("engine.reachable", "b", Fail, &found, fix)],
    );
    // Another's metrics.
    let app = Router::new().fallback(async || "# TYPE up gauge\nup{job=\"x\"} 1\n");
    let url = format!("{}/metrics", serve(&runtime, app));
    let report = doctor(&fleet, |b| b.metrics.clone_from(&url));
    let found = format!("{url}: no vLLM metric (`vllm:`) is there");
    expect(
        &report,
        &["engine.", "pool."],
        &[("engine.reachable", "b", Fail, &found, fix)],
    );
    let report = doctor(&fleet, |b| b.api.clone_from(&at));
    let found = format!("{at}/v1/models: not the engine answers, but a web page (HTML)");
    expect(
        &report,
        &["engine.", "pool."],
        &[(
            "engine.models",
            "b",
            Fail,
            &found,
            "let `api` be the engine's own",
        )],
    );
    follows(&report, &OF_API, "engine.models");
}

#[test]
fn web_pages_everywhere() {
    let fleet = Fleet::start("logins", |_| {});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let at = login(&runtime);
    let report = doctor(&fleet, |b| {
        b.api.clone_from(&at);
        (b.health, b.metrics) = (format!("{at}/health"), format!("{at}/metrics"));
    });
    let found = format!("{at}/metrics and {at}/v1/models: not the engine answers, but a web page");
    expect(
        &report,
        &["engine.", "pool."],
        &[(
            "engine.reachable",
            "b",
            Fail,
            &found,
            "let `metrics` and `api` be the engine's own",
        )],
    );
    follows(&report, &["models"], "engine.reachable");
    follows(&report, &OF_API, "engine.reachable");
}

/// A label of 64 letters is none, so that no resolver is asked for it.
fn nowhere() -> String {
    format!("{}.invalid", "n".repeat(64))
}

#[test]
fn names_that_do_not_resolve() {
    let fleet = Fleet::start("names", |_| {});
    let name = nowhere();
    let told = format!("the name {name} does not resolve");
    let report = doctor(&fleet, |b| b.events = format!("tcp://{name}:5559"));
    let found = format!("tcp://{name}:5559: {told}");
    expect(
        &report,
        &["engine."],
        &[(
            "engine.events",
            "b",
            Fail,
            &found,
            "correct the name in `events`",
        )],
    );
    follows(&report, &["topic"], "engine.events");
    let report = doctor(&fleet, |b| {
        b.events = format!("tcp://{name}:5559");
        b.replay = Some(format!("tcp://{name}:5560"));
    });
    expect(
        &report,
        &["engine."],
        &[(
            "engine.events",
            "b",
            Fail,
            &found,
            "correct the name in `events`",
        )],
    );
    let report = doctor(&fleet, |b| b.replay = Some(format!("tcp://{name}:5560")));
    expect(
        &report,
        &["engine."],
        &[("engine.replay", "b", Fail, &told, "`replay`")],
    );
    let report = doctor(&fleet, |b| b.api = format!("http://{name}:8102"));
    let found = format!("`api`: {told}");
    expect(
        &report,
        &["engine."],
        &[("engine.models", "b", Fail, &found, "correct the name")],
    );
    follows(&report, &OF_API, "engine.models");
}

/// One fault, said once.
#[test]
fn the_same_name_everywhere() {
    let fleet = Fleet::start("name", |_| {});
    let name = nowhere();
    let told = format!("the name {name} does not resolve");
    let report = doctor(&fleet, |b| {
        b.api = format!("http://{name}:8102");
        b.events = format!("tcp://{name}:5559");
        b.replay = None;
    });
    let api = format!("`api`: {told}");
    let none = "no `replay`";
    expect(
        &report,
        &["engine.models", "engine.events", "engine.topic"],
        &[("engine.models", "b", Fail, &api, "correct the name")],
    );
    assert!(item(&report, "engine.replay", "b").found.contains(none));
    let report = doctor(&fleet, |b| {
        b.api = format!("http://{name}:8102");
        (b.health, b.metrics) = (format!("{}/health", b.api), format!("{}/metrics", b.api));
    });
    let all = format!("`health`, `metrics` and `api`: {told}");
    expect(
        &report,
        &["engine."],
        &[("engine.reachable", "b", Fail, &all, "correct the name")],
    );
    follows(&report, &["models", "events", "replay"], "engine.reachable");
}

#[test]
fn a_server_without_models() {
    let fleet = Fleet::start("404", |_| {});
    let at = format!("{}/v1", fleet.engines[1].url());
    let report = doctor(&fleet, |b| b.api.clone_from(&at));
    let found =
        format!("{at}/v1/models: status 404: a server answers there, which has no /v1/models");
    expect(
        &report,
        &["engine."],
        &[(
            "engine.models",
            "b",
            Fail,
            &found,
            "is `api` (or `endpoint`) the engine's address?",
        )],
    );
    follows(&report, &OF_API, "engine.models");
}
