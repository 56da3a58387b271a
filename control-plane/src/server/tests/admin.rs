//! Replicas out of service and back in, by HTTP and by the command line.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use prefix_picker_core::sync::ReplicaState;
use serde_json::Value;

use super::*;
use crate::cli::{self, Cli};

fn dir(name: &str) -> PathBuf {
    let name = format!("prefix-picker-admin-{name}-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

fn with_operator(config: &mut Config) {
    config.admin_tokens = vec!["operator".into()];
    config.startup_grace_ms = 60_000;
}

async fn ask(running: &Running, token: &str, replica: &str, what: &str) -> (u16, String) {
    let url = format!("{}/v1/replicas/{replica}/{what}", running.base);
    let request = running.client.post(url).header("authorization", token);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

fn state(running: &Running, replica: usize) -> ReplicaState {
    running.engine.head().replicas[replica].state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_operators_drain_and_a_restart_changes_nothing() {
    let dir = dir("restart");
    let running = Running::start_in(dir.clone(), with_operator).await;
    for (token, expected, says) in [
        ("", 401, "token is needed"),
        ("Bearer nobody", 401, "token is needed"),
        ("Bearer first-token", 403, "gateways may not"),
    ] {
        let (status, text) = ask(&running, token, "b", "drain").await;
        assert_eq!(status, expected, "{token}: {text}");
        assert!(text.contains(says), "{text}");
    }
    let (status, text) = ask(&running, "Bearer operator", "x", "drain").await;
    assert_eq!(status, 404);
    assert_eq!(text, "no replica \"x\"; known are a, b, c\n");
    assert_eq!(state(&running, 1), ReplicaState::Down);

    let (status, text) = ask(&running, "Bearer operator", "b", "drain").await;
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["state"], "draining");
    assert_eq!(answer["pool"], "one");
    assert_eq!(answer["changed"], true);
    assert_eq!(state(&running, 1), ReplicaState::Draining);
    let (_, text) = ask(&running, "Bearer operator", "b", "drain").await;
    assert!(text.contains("\"changed\":false"), "{text}");
    let metrics = running.get("/metrics").await.1;
    let line = "prefix_picker_replica_state{pool=\"one\",replica=\"b\",state=\"draining\"} 1";
    assert!(metrics.contains(line));
    running.stop().await;

    let running = Running::start_in(dir.clone(), with_operator).await;
    assert_eq!(state(&running, 1), ReplicaState::Draining);
    let (status, text) = ask(&running, "Bearer operator", "b", "undrain").await;
    assert_eq!((status, text.contains("\"state\":\"down\"")), (200, true));
    running.stop().await;

    // Without a word of operators in the configuration nobody may.
    let running = Running::start_in(dir.clone(), |_| {}).await;
    assert_eq!(state(&running, 1), ReplicaState::Down, "undrained for good");
    let (status, text) = ask(&running, "Bearer first-token", "b", "drain").await;
    assert_eq!(status, 403);
    assert!(text.contains("admin_tokens"), "{text}");
    running.stop().await;
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_kept_is_not_done() {
    let dir = dir("kept");
    let running = Running::start_in(dir.clone(), with_operator).await;
    std::fs::create_dir(dir.join("drained.json.new")).unwrap();
    let (status, text) = ask(&running, "Bearer operator", "a", "drain").await;
    assert_eq!(status, 500);
    assert!(text.contains("drained.json cannot be written"), "{text}");
    assert_eq!(state(&running, 0), ReplicaState::Down);
    std::fs::remove_dir(dir.join("drained.json.new")).unwrap();
    running.stop().await;
    // A broken file drains nobody, and nobody is kept from starting.
    std::fs::write(dir.join("drained.json"), "{").unwrap();
    let running = Running::start_in(dir.clone(), with_operator).await;
    assert_eq!(state(&running, 0), ReplicaState::Down);
    running.stop().await;
    std::fs::remove_dir_all(dir).unwrap();
}

async fn run(line: Vec<String>) -> Result<ExitCode, String> {
    let cli = Cli::try_parse_from(line).unwrap();
    let run = move || cli::run(cli).map_err(|error| format!("{error:#}"));
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn line(what: &str, replica: &str, url: &str, token: &Path) -> Vec<String> {
    let words = ["prefix-picker", what, replica, "--url", url, "--token-file"];
    let words = words.into_iter().map(str::to_owned);
    words.chain([token.display().to_string()]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_ranks_one_is_drained_by_its_name() {
    let dir = dir("ranks");
    let running = Running::start_in(dir.clone(), |config| {
        with_operator(config);
        for (rank, replica) in (0..).zip(&mut config.pools[0].replicas) {
            replica.endpoint = "127.0.0.1:1".parse().unwrap();
            replica.data_parallel_rank = Some(rank);
            replica.name = format!("127.0.0.1:1#{rank}");
        }
    })
    .await;
    let token = dir.join("good.token");
    std::fs::write(&token, "operator\n").unwrap();
    let drain = line("drain", "127.0.0.1:1#1", &running.base, &token);
    assert_eq!(run(drain).await, Ok(ExitCode::SUCCESS));
    let head = running.engine.head();
    let told = head.replicas.iter().map(|r| (r.dp_rank, r.state));
    let (down, draining) = (ReplicaState::Down, ReplicaState::Draining);
    let expected = [(Some(0), down), (Some(1), draining), (None, down)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    running.stop().await;
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_drains_too() {
    let dir = dir("cli");
    let running = Running::start_in(dir.clone(), with_operator).await;
    let (good, bad) = (dir.join("good.token"), dir.join("bad.token"));
    std::fs::write(&good, "operator\n").unwrap();
    std::fs::write(&bad, "first-token\n").unwrap();
    let base = running.base.clone();
    assert_eq!(
        run(line("drain", "c", &base, &good)).await,
        Ok(ExitCode::SUCCESS)
    );
    assert_eq!(state(&running, 2), ReplicaState::Draining);
    let mut waiting = line("drain", "c", &base, &good);
    waiting.extend(["--wait".into(), "60".into()]);
    assert_eq!(run(waiting).await, Ok(ExitCode::SUCCESS));
    assert_eq!(
        run(line("undrain", "c", &base, &good)).await,
        Ok(ExitCode::SUCCESS)
    );
    assert_eq!(state(&running, 2), ReplicaState::Down);
    let body = dir.join("body.json");
    std::fs::write(&body, r#"{"model": "sim", "prompt": "x"}"#).unwrap();
    let explain = |path: &str| {
        let mut line = line("explain", "--json", &base, &bad);
        let body = body.display().to_string();
        line.extend(["--path".into(), path.into(), "--request".into(), body]);
        line
    };
    running.until_ready().await;
    let asked = run(explain("/v1/completions")).await;
    assert_eq!(asked, Ok(ExitCode::SUCCESS), "a gateway's token is enough");
    assert_eq!(run(explain("/v1/models")).await, Ok(ExitCode::from(2)));
    assert_eq!(
        run(line("drain", "10.0.0.7:8000", &base, &good)).await,
        Ok(ExitCode::from(2))
    );
    let error = run(line("drain", "c", &base, &bad)).await.unwrap_err();
    assert!(
        error.contains("403") && error.contains("gateways may not"),
        "{error}"
    );
    let error = run(line("drain", "c", "https://x", &good))
        .await
        .unwrap_err();
    assert!(error.contains("http://host:9400"), "{error}");
    let error = run(line("drain", "c", "http://127.0.0.1:1", &good))
        .await
        .unwrap_err();
    assert!(error.contains("does not answer"), "{error}");
    let error = run(line("drain", "c", &base, &dir.join("none")))
        .await
        .unwrap_err();
    assert!(error.contains("cannot be read"), "{error}");
    running.stop().await;
    std::fs::remove_dir_all(dir).unwrap();
}
