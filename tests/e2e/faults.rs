//! Parts die and come back, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use prefix_picker_tests::access_log::Entry;
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack, wait};
use prefix_picker_tests::workload::{Random, Sizes, Workload};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// `count` words that depend on `seed` only.
pub(crate) fn words(seed: u64, count: usize) -> String {
    let mut random = Random::new(seed);
    let words: Vec<String> = (0..count)
        .map(|_| format!("w{:x}", random.below(1 << 20)))
        .collect();
    words.join(" ")
}

/// A short chat request under a system prompt.
pub(crate) fn chat(system: &str, user: &str) -> Value {
    json!({"model": "sim", "max_tokens": 2, "messages": [
        {"role": "system", "content": system}, {"role": "user", "content": user}]})
}

/// The sizes of the load behind the faults.
pub(crate) fn sizes() -> Sizes {
    let model = "sim".to_owned();
    Sizes {
        model,
        shared: 6,
        shared_sentences: 40,
        open: 24,
        turns: 6,
        token_ids_below: 2000,
        max_tokens: 24,
    }
}

/// What background load came to.
#[derive(Debug, Default)]
pub(crate) struct Load {
    sent: usize,
    failed: Vec<String>,
}

/// Clients that send one request after the other until told to stop.
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Load>>,
}

impl Background {
    pub(crate) fn start(stack: &Stack, clients: usize) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..clients)
            .map(|i| Ok(tokio::spawn(client(stack.client()?, i, Arc::clone(&stop)))))
            .collect::<Result<_>>()?;
        Ok(Self { stop, clients })
    }

    pub(crate) async fn finish(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Load::default();
        for client in self.clients {
            let load = client.await?;
            all.sent += load.sent;
            all.failed.extend(load.failed);
        }
        println!(
            "  background load: {} requests, {} failed",
            all.sent,
            all.failed.len()
        );
        let first = all.failed.first().cloned().unwrap_or_default();
        ensure!(
            all.failed.is_empty(),
            "{} of {} requests failed; the first: {first}",
            all.failed.len(),
            all.sent
        );
        Ok(all.sent)
    }
}

async fn client(client: Client, number: usize, stop: Arc<AtomicBool>) -> Load {
    let mut workload = Workload::new(number as u64, sizes());
    let mut load = Load::default();
    while !stop.load(Ordering::Relaxed) {
        let request = workload.request();
        let id = format!("load-{number}-{}", load.sent);
        load.sent += 1;
        match client.post(request.path, &request.body, &id, &[]).await {
            Ok(reply) if reply.status == 200 => {
                workload.answered(request.conversation, &reply.text)
            }
            Ok(reply) => load
                .failed
                .push(format!("{id}: {} {}", reply.status, reply.body)),
            Err(error) => load.failed.push(format!("{id}: {error:#}")),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    load
}

/// Asks what the filter would predict, without an effect on any engine (which refuses `max_tokens: 0`).
pub(crate) async fn predict(stack: &mut Stack, body: &Value, id: &str) -> Result<Entry> {
    let mut body = body.clone();
    if let Some(map) = body.as_object_mut() {
        map.insert("max_tokens".to_owned(), json!(0));
    }
    let reply = stack
        .client()?
        .post("/v1/chat/completions", &body, id, &[])
        .await?;
    ensure!(reply.status == 400, "{id}: {} {}", reply.status, reply.body);
    stack.log.wait(id).await
}

/// Sends a prompt once and waits until the filter knows who has it: that endpoint.
pub(crate) async fn plant(stack: &mut Stack, body: &Value, id: &str) -> Result<String> {
    let reply = stack
        .client()?
        .post("/v1/chat/completions", body, id, &[])
        .await?;
    ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
    // An engine may answer before it has published what it stored.
    for attempt in 0..100 {
        stack.settle().await?;
        let entry = predict(stack, body, &format!("{id}-planted-{attempt}")).await?;
        if entry.predicted_tokens >= Some(256) {
            return stack.log.wait(id).await?.upstream.context("no upstream");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("{id}: not known two seconds after it was sent")
}

/// `kill -9` of the control plane under load.
pub(crate) async fn control_plane_killed(places: &Places, short: bool) -> Result<()> {
    let mut stack = Stack::start("cp-killed", places, Options::default()).await?;
    let (clients, pause) = if short { (4, 2) } else { (8, 6) };
    let body = chat(&words(1, 300), "Hello.");
    plant(&mut stack, &body, "known").await?;
    let load = Background::start(&stack, clients)?;
    tokio::time::sleep(Duration::from_secs(pause)).await;
    if let Some(control_plane) = &mut stack.control_plane {
        control_plane.kill();
    }
    tokio::time::sleep(Duration::from_secs(pause)).await;
    let entry = predict(&mut stack, &body, "while-down").await?;
    // Under load another may get it: that one holds more is known from the table all the same.
    let matched = matches!(entry.reason.as_deref(), Some("prefix" | "load_over_prefix"));
    ensure!(matched, "no match from the last table: {entry:?}");
    stack.start_control_plane()?;
    tokio::time::sleep(Duration::from_secs(pause)).await;
    load.finish().await?;
    stack.settle().await?;
    let body = chat(&words(2, 300), "Hello.");
    plant(&mut stack, &body, "after").await?;
    Ok(())
}

/// A prefix whose events the engine no longer has for replay.
pub(crate) async fn snapshot(places: &Places) -> Result<()> {
    let options = Options {
        engine_args: ["--buffer-steps", "40"].map(String::from).to_vec(),
        control_plane_lines: vec!["snapshot_interval_ms: 300".to_owned()],
        ..Options::default()
    };
    let mut stack = Stack::start("snapshot", places, options).await?;
    let body = chat(&words(3, 300), "Hello.");
    let home = plant(&mut stack, &body, "old").await?;
    let engine = (0..3)
        .find(|&i| stack.endpoint(i) == home)
        .context("an unknown endpoint")?;
    let planted = stack.engine_state(engine).await?["next_seq"]
        .as_u64()
        .unwrap_or(0);
    let direct = stack.engine_client(engine)?;
    for i in 0..80 {
        let other = chat(&words(10_000 + i, 60), "Hello.");
        direct
            .post("/v1/chat/completions", &other, "direct", &[])
            .await?;
    }
    let (_, state) = direct.get("/sim/state?since=0").await?;
    let state: Value = serde_json::from_str(&state)?;
    let oldest = state
        .pointer("/batches/0/seq")
        .and_then(Value::as_u64)
        .context("no batches")?;
    ensure!(
        oldest > planted,
        "the ring still has {planted}: it begins at {oldest}"
    );
    stack.settle().await?;
    // One that began after all that: the one under way, if any, and another.
    let written = snapshots(&stack).await?;
    wait("a snapshot", Duration::from_secs(60), async || {
        snapshots(&stack).await.is_ok_and(|n| n >= written + 2)
    })
    .await?;
    if let Some(control_plane) = &mut stack.control_plane {
        control_plane.kill();
    }
    direct
        .post(
            "/v1/chat/completions",
            &chat(&words(20_000, 60), "Hello."),
            "direct",
            &[],
        )
        .await?;
    let loads = stack.filter_metric("sync_loads_total").await?;
    stack.start_control_plane()?;
    wait(
        "the new control plane's table",
        Duration::from_secs(20),
        async || {
            stack
                .filter_metric("sync_loads_total")
                .await
                .is_ok_and(|n| n > loads)
        },
    )
    .await?;
    stack.settle().await?;
    let entry = predict(&mut stack, &body, "old-again").await?;
    println!(
        "  published at seq {planted}, the ring begins at {oldest}; predicted again: {:?}",
        entry.predicted_tokens
    );
    ensure!(entry.predicted_tokens >= Some(256), "forgotten: {entry:?}");
    ensure!(
        entry.endpoint.unwrap_or_default().starts_with(&home),
        "credited to another engine"
    );
    Ok(())
}

/// Envoy dies; how long until a new one places by prefix.
pub(crate) async fn envoy_restarted(places: &Places) -> Result<()> {
    let mut stack = Stack::start("envoy-restarted", places, Options::default()).await?;
    let mut bodies = Vec::new();
    for i in 0..20 {
        let body = chat(&words(100 + i, 300), "Hello.");
        plant(&mut stack, &body, &format!("known-{i}")).await?;
        bodies.push(body);
    }
    let mut took = Vec::new();
    for round in 0..3 {
        if let Some(envoy) = &mut stack.envoy {
            envoy.kill();
        }
        stack.start_envoy()?;
        let admin = Client::new(stack.ports.admin)?;
        wait("Envoy", Duration::from_secs(20), async || {
            admin.get("/ready").await.is_ok_and(|a| a.0 == 200)
        })
        .await?;
        let ready = Instant::now();
        wait("the table", Duration::from_secs(20), async || {
            stack
                .filter_metric("sync_loads_total")
                .await
                .is_ok_and(|n| n > 0)
        })
        .await?;
        took.push(ready.elapsed().as_secs_f64() * 1000.0);
        for (i, body) in bodies.iter().enumerate() {
            let entry = predict(&mut stack, body, &format!("again-{round}-{i}")).await?;
            ensure!(
                entry.predicted_tokens >= Some(256),
                "prefix {i} is not known to the new Envoy: {entry:?}"
            );
        }
    }
    println!("  Envoy ready -> whole table: {took:.0?} ms");
    ensure!(took.iter().all(|t| *t <= 2000.0), "longer than 2 s");
    Ok(())
}

/// An engine starts anew: sequence numbers from 0, an empty cache.
pub(crate) async fn engine_restarted(places: &Places) -> Result<()> {
    let mut stack = Stack::start("engine-restarted", places, Options::default()).await?;
    let mut known = Vec::new();
    for i in 0..30 {
        let body = chat(&words(200 + i, 200), "Hello.");
        let home = plant(&mut stack, &body, &format!("planted-{i}")).await?;
        known.push((body, home));
    }
    let victim = stack.endpoint(0);
    let lost: Vec<_> = known
        .iter()
        .filter(|k| k.1 == victim)
        .map(|k| k.0.clone())
        .collect();
    let kept: Vec<_> = known
        .iter()
        .filter(|k| k.1 != victim)
        .map(|k| k.0.clone())
        .collect();
    ensure!(
        !lost.is_empty() && !kept.is_empty(),
        "{} of {} prefixes on the victim",
        lost.len(),
        known.len()
    );
    for round in 0..2 {
        stack.restart_engine(0).await?;
        // One request makes it publish sequence 0, by which the restart shows at the latest.
        let direct = stack.engine_client(0)?;
        direct
            .post(
                "/v1/chat/completions",
                &chat(&words(round, 60), "Hello."),
                "direct",
                &[],
            )
            .await?;
        wait(
            "the restart to be noticed",
            Duration::from_secs(10),
            async || stack.settled().await.unwrap_or(false),
        )
        .await?;
        stack.settle().await?;
        for (i, body) in lost.iter().enumerate() {
            let entry = predict(&mut stack, body, &format!("lost-{round}-{i}")).await?;
            // The shared chat header alone is shorter than a block: anything is a match of old blocks.
            ensure!(
                entry.predicted_tokens.unwrap_or(0) == 0,
                "an old block of the restarted engine: {entry:?}"
            );
        }
        for (i, body) in kept.iter().enumerate() {
            let entry = predict(&mut stack, body, &format!("kept-{round}-{i}")).await?;
            ensure!(
                entry.predicted_tokens >= Some(256),
                "lost with the other engine: {entry:?}"
            );
        }
    }
    println!(
        "  {} prefixes gone with the engine, {} kept by the others, two restarts",
        lost.len(),
        kept.len()
    );
    Ok(())
}

/// An engine dies under load; retries and health must hide it.
pub(crate) async fn engine_down(places: &Places) -> Result<()> {
    let mut stack = Stack::start("engine-down", places, Options::default()).await?;
    let body = chat(&words(1, 300), "Hello.");
    let home = plant(&mut stack, &body, "known").await?;
    let engine = (0..3)
        .find(|&i| stack.endpoint(i) == home)
        .context("an unknown endpoint")?;
    // In-flight requests of a dead engine fail with any proxy, so it dies while none run.
    if let Some(engine) = stack.engines.get_mut(engine) {
        engine.kill();
    }
    let load = Background::start(&stack, 4)?;
    for i in 0..20 {
        let id = format!("down-{i}");
        let reply = stack
            .client()?
            .post("/v1/chat/completions", &body, &id, &[])
            .await?;
        ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let entry = stack.log.wait("down-19").await?;
    ensure!(
        entry.endpoint.unwrap_or_default() != home,
        "the dead engine is still named after 2 s"
    );
    stack.restart_engine(engine).await?;
    load.finish().await?;
    Ok(())
}

/// Snapshots that the control plane has written.
async fn snapshots(stack: &Stack) -> Result<u64> {
    let text = stack.control_plane_metrics().await?;
    let name = "prefix_picker_snapshots_total{result=\"written\"}";
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    Ok(value.unwrap_or(0))
}
