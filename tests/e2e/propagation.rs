//! How long news takes: from an engine's publish to the first request that a filter places by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack};
use prefix_picker_tests::stats::percentile;
use serde_json::{Value, json};

use crate::faults::{chat, words};

/// Time between probes.
const PROBE_EVERY: Duration = Duration::from_millis(1);

fn now_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_micros() as u64)
}

/// Sends a new prompt straight to an engine and, all the while, the same prompt with `max_tokens: 0`
/// through Envoy: the filter predicts, the engine refuses, nothing is cached by the probe. The first
/// probe sent that the filter matched ends the time, which begins with the engine's own time stamp.
pub(crate) async fn propagation(places: &Places, rounds: usize) -> Result<()> {
    let mut stack = Stack::start("propagation", places, Options::default()).await?;
    let mut took = Vec::new();
    for round in 0..rounds {
        took.push(one(&mut stack, round).await?);
    }
    let (p50, p99) = (percentile(&took, 50.0), percentile(&took, 99.0));
    let max = percentile(&took, 100.0);
    println!(
        "  engine's publish -> filter uses it, {rounds} prompts: p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms (goal 20 / 100)"
    );
    ensure!(p50 <= 100.0, "p50 {p50:.1} ms is far from the goal");
    Ok(())
}

async fn one(stack: &mut Stack, round: usize) -> Result<f64> {
    let engine = round % 3;
    let text = words(50_000 + round as u64, 200);
    let mut probe = chat(&text, "Hello.");
    if let Some(map) = probe.as_object_mut() {
        map.insert("max_tokens".to_owned(), json!(0));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let prober = tokio::spawn(probes(stack.client()?, round, probe, Arc::clone(&stop)));

    let direct = stack.engine_client(engine)?;
    let before = stack.engine_state(engine).await?["next_seq"]
        .as_u64()
        .context("next_seq")?;
    let reply = direct
        .post(
            "/v1/chat/completions",
            &chat(&text, "Hello."),
            "direct",
            &[],
        )
        .await?;
    ensure!(reply.status == 200, "{}: {}", reply.status, reply.body);
    let (_, state) = direct.get(&format!("/sim/state?since={before}")).await?;
    let state: Value = serde_json::from_str(&state)?;
    let published = state
        .pointer("/batches/0/wall_us")
        .and_then(Value::as_u64)
        .context("no batch was published")?;

    // Long enough for any news; then the log tells which probe was the first to know.
    let mut patience = 200;
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        stack.log.refresh()?;
        let known = stack
            .log
            .any(|e| is_probe(e.request_id.as_deref(), round) && e.predicted_tokens > Some(0));
        patience -= 1;
        if known || patience == 0 {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let sent = prober.await??;
    let mut first: Option<u64> = None;
    for (id, at_us) in sent {
        if stack.log.wait(&id).await?.predicted_tokens > Some(0) {
            first = Some(first.map_or(at_us, |f: u64| f.min(at_us)));
        }
    }
    let first = first.with_context(|| format!("round {round}: never used within 2 s"))?;
    Ok(first.saturating_sub(published) as f64 / 1000.0)
}

fn is_probe(id: Option<&str>, round: usize) -> bool {
    id.is_some_and(|id| id.starts_with(&format!("probe-{round}-")))
}

async fn probes(
    client: Client,
    round: usize,
    body: Value,
    stop: Arc<AtomicBool>,
) -> Result<Vec<(String, u64)>> {
    let mut sent = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let id = format!("probe-{round}-{}", sent.len());
        sent.push((id.clone(), now_us()));
        let reply = client.post("/v1/chat/completions", &body, &id, &[]).await?;
        ensure!(
            reply.status == 400,
            "a probe was answered {}: {}",
            reply.status,
            reply.body
        );
        tokio::time::sleep(PROBE_EVERY).await;
    }
    Ok(sent)
}
