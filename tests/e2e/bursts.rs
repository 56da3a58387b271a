//! Requests that come faster than events.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::access_log::Entry;
use prefix_picker_tests::client::{Client, Reply};
use prefix_picker_tests::stack::{Options, Places, Stack, wait};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::faults::{chat, words};

const PATH: &str = "/v1/chat/completions";
const PATIENCE: Duration = Duration::from_secs(30);

/// As fast as a real engine: a prompt of 4,000 tokens takes 0.2 s.
pub(crate) fn options(engines: usize) -> Options {
    Options {
        more_engines: engines - 3,
        engine_args: vec!["--speed".to_owned(), "1".to_owned()],
        ..Options::default()
    }
}

/// Sends these, each so long after the one before; what came back and what Envoy logged, in order.
async fn burst(
    stack: &mut Stack,
    client: &Client,
    name: &str,
    bodies: Vec<Value>,
    apart: Duration,
) -> Result<Vec<(Reply, Entry)>> {
    let mut sent = Vec::new();
    for (n, body) in bodies.into_iter().enumerate() {
        let (client, id) = (client.clone(), format!("{name}-{n}"));
        sent.push(tokio::spawn(async move {
            tokio::time::sleep(apart * u32::try_from(n)?).await;
            let reply = client.post(PATH, &body, &id, &[]).await?;
            ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
            anyhow::Ok((reply, id))
        }));
    }
    let mut answered = Vec::new();
    for request in sent {
        let (reply, id) = request.await??;
        answered.push((reply, stack.log.wait(&id).await?));
    }
    Ok(answered)
}

fn engines_of(answered: &[(Reply, Entry)]) -> BTreeSet<&str> {
    let upstreams = answered.iter().map(|(_, entry)| entry.upstream.as_deref());
    upstreams.flatten().collect()
}

/// Waits until the control plane has heard from all engines that they have nothing to do.
async fn idle(stack: &Stack) -> Result<()> {
    wait("the engines to be idle", PATIENCE, async || {
        let Ok(status) = stack.status().await else {
            return false;
        };
        let replicas = status["pools"][0]["replicas"].as_array();
        replicas.is_some_and(|all| {
            !all.is_empty() && all.iter().all(|r| r["running"] == 0 && r["waiting"] == 0)
        })
    })
    .await?;
    stack.settle().await
}

/// 8 prompts that share 4,000 tokens, within 50 ms, on 8 idle engines: two engines at most compute
/// what they share, although no event can say yet who has it.
pub(crate) async fn siblings(places: &Places, short: bool) -> Result<()> {
    let mut stack = Stack::start("siblings", places, options(8)).await?;
    let client = stack.client()?;
    for round in 0..if short { 4 } else { 20 } {
        idle(&stack).await?;
        let system = words(100 + round, 3_000);
        let bodies = (0..8).map(|n| chat(&system, &words(1_000 + round * 10 + n, 30)));
        let name = format!("siblings-{round}");
        let apart = Duration::from_millis(6);
        let answered = burst(&mut stack, &client, &name, bodies.collect(), apart).await?;
        let reasons: Vec<&str> = answered
            .iter()
            .filter_map(|(_, e)| e.reason.as_deref())
            .collect();
        let engines = engines_of(&answered);
        let cached = answered.iter().map(|(reply, _)| reply.cached_tokens);
        let cached: Vec<u64> = cached.map(Option::unwrap_or_default).collect();
        println!(
            "  {} engines; {reasons:?}; cached {cached:?}",
            engines.len()
        );
        ensure!(engines.len() <= 2, "round {round}: {engines:?}");
        let hits = cached.iter().filter(|&&tokens| tokens > 2_000).count();
        ensure!(hits >= 6, "round {round}: only {hits} found it cached");
    }
    // Their figures are ahead of the events: no alarm.
    stack.settle().await?;
    let metrics = stack.control_plane_metrics().await?;
    let alarm = metrics
        .lines()
        .find(|l| l.starts_with("prefix_picker_prediction_mismatch{"));
    let alarm = alarm.context("no prediction_mismatch")?;
    ensure!(alarm.ends_with(" 0"), "{alarm}");
    Ok(())
}

/// Sends these on connections of their own, which are open already: in a millisecond or so. What Envoy
/// logged, in order, and how long the sending took.
async fn at_once(
    stack: &mut Stack,
    name: &str,
    bodies: Vec<Value>,
) -> Result<(Vec<Entry>, Duration)> {
    let mut open = Vec::new();
    for (n, body) in bodies.iter().enumerate() {
        let body = body.to_string();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: burst\r\nconnection: close\r\nx-request-id: {name}-{n}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let tcp = TcpStream::connect(("127.0.0.1", stack.ports.envoy)).await?;
        open.push((tcp, head + &body));
    }
    // Until Envoy's workers have taken the connections.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begin = Instant::now();
    for (tcp, request) in &mut open {
        tcp.write_all(request.as_bytes()).await?;
    }
    let took = begin.elapsed();
    let mut entries = Vec::new();
    for (n, (tcp, _)) in open.iter_mut().enumerate() {
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{name}-{n}: {answer}");
        entries.push(stack.log.wait(&format!("{name}-{n}")).await?);
    }
    Ok((entries, took))
}

/// 10 prompts that share nothing, within a millisecond, on 4 idle engines: three at least are used.
pub(crate) async fn cold(places: &Places, short: bool) -> Result<()> {
    let mut stack = Stack::start("cold", places, options(4)).await?;
    for round in 0..if short { 4 } else { 20 } {
        let bodies = (0..10).map(|n| chat(&words(5_000 + round * 10 + n, 400), "Hi."));
        let name = format!("cold-{round}");
        let (entries, took) = at_once(&mut stack, &name, bodies.collect()).await?;
        let engines: BTreeSet<&str> = entries
            .iter()
            .filter_map(|entry| entry.upstream.as_deref())
            .collect();
        println!(
            "  {} engines; sent within {:.2} ms",
            engines.len(),
            took.as_secs_f64() * 1_000.0
        );
        ensure!(engines.len() >= 3, "round {round}: {engines:?}");
        stack.settle().await?;
    }
    Ok(())
}
