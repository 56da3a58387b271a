//! Two Envoys at once, and an engine that an operator takes out of service.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack, wait};
use serde_json::{Value, json};

use crate::bursts;
use crate::faults::{chat, words};

const PATH: &str = "/v1/chat/completions";

async fn control_plane_gauge(stack: &Stack, name: &str) -> Result<u64> {
    let text = stack.control_plane_metrics().await?;
    let start = format!("prefix_picker_{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    Ok(line.with_context(|| format!("no {name}"))?.parse()?)
}

/// 8 prompts that share 4,000 tokens, four by each of two Envoys within 200 ms, on 8 idle engines: two
/// engines at most compute what they share. Then one Envoy is killed with a request in flight: within
/// 5 s the other knows nothing of it any more.
pub(crate) async fn two_gateways(places: &Places, short: bool) -> Result<()> {
    let mut stack = Stack::start("two-gateways", places, bursts::options(8)).await?;
    let mut second = stack.another_envoy("envoy-2").await?;
    wait("both Envoys' news", Duration::from_secs(10), async || {
        stack
            .filter_metric("other_gateways")
            .await
            .is_ok_and(|n| n == 1)
    })
    .await?;
    let clients = [stack.client()?, second.client.clone()];
    for round in 0..if short { 4 } else { 20 } {
        let system = words(300 + round, 3_000);
        let mut sent = Vec::new();
        for n in 0..8u64 {
            let at = usize::from(n >= 4);
            let client = clients.get(at).context("two clients")?.clone();
            let body = chat(&system, &words(3_000 + round * 10 + n, 30));
            let id = format!("two-{round}-{n}");
            // 0 to 24 ms by the first, 150 to 174 ms by the second.
            let begin = Duration::from_millis(if n < 4 { n * 8 } else { 150 + (n - 4) * 8 });
            sent.push(tokio::spawn(async move {
                tokio::time::sleep(begin).await;
                let reply = client.post(PATH, &body, &id, &[]).await?;
                ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
                anyhow::Ok((at, id))
            }));
        }
        let mut engines = BTreeSet::new();
        for request in sent {
            let (at, id) = request.await??;
            let log = if at == 0 {
                &mut stack.log
            } else {
                &mut second.log
            };
            engines.extend(log.wait(&id).await?.upstream);
        }
        println!("  {} engines", engines.len());
        ensure!(engines.len() <= 2, "round {round}: {engines:?}");
    }
    ensure!(control_plane_gauge(&stack, "news_gateways").await? == 2);
    let client = second.client.clone();
    let long = json!({"model": "sim", "max_tokens": 4_000, "stream": true,
        "messages": [{"role": "user", "content": words(9_999, 200)}]});
    let open = tokio::spawn(async move { client.post(PATH, &long, "two-open", &[]).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    second.process.kill();
    let begin = std::time::Instant::now();
    wait(
        "the dead Envoy to be forgotten",
        Duration::from_secs(5),
        async || {
            stack
                .filter_metric("other_gateways")
                .await
                .is_ok_and(|n| n == 0)
        },
    )
    .await?;
    println!("  forgotten after {:.1} s", begin.elapsed().as_secs_f64());
    ensure!(control_plane_gauge(&stack, "news_gateways").await? == 1);
    ensure!(
        open.await?.is_err(),
        "the request was over before its Envoy was killed"
    );
    Ok(())
}

/// Requests run all the while; one engine is drained, and put back.
pub(crate) async fn drain(places: &Places) -> Result<()> {
    let options = Options {
        control_plane_lines: vec!["admin_tokens: [operator]".to_owned()],
        ..Options::default()
    };
    let mut stack = Stack::start("drain", places, options).await?;
    let client = stack.client()?;
    let drained = stack.endpoint(1);
    // Three requests at a time, so that all engines are of use.
    let mut next = 0u64;
    let mut some = async |stack: &mut Stack, count: u64| -> Result<Vec<String>> {
        let mut upstreams = Vec::new();
        for _ in 0..count {
            let ask = |n: u64| {
                let (client, id) = (client.clone(), format!("drain-{n}"));
                let body = chat(&words(7_000 + n % 7, 200), &words(n, 20));
                async move {
                    let reply = client.post(PATH, &body, &id, &[]).await?;
                    ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
                    anyhow::Ok(id)
                }
            };
            let (a, b, c) = tokio::join!(ask(next), ask(next + 1), ask(next + 2));
            next += 3;
            for id in [a?, b?, c?] {
                upstreams.extend(stack.log.wait(&id).await?.upstream);
            }
        }
        Ok(upstreams)
    };
    let before = some(&mut stack, 20).await?;
    ensure!(before.contains(&drained), "it got nothing before");
    operator(&stack, "engine-2", "drain").await?;
    // Gateways hear of it with the answer to their long poll.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let during = some(&mut stack, 40).await?;
    ensure!(
        !during.contains(&drained),
        "a request landed on the drained engine"
    );
    ensure!(during.len() == 120, "{} requests", during.len());
    operator(&stack, "engine-2", "undrain").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let after = some(&mut stack, 40).await?;
    ensure!(after.contains(&drained), "it gets nothing after");
    Ok(())
}

/// What `prefix-picker drain` and `undrain` ask for.
async fn operator(stack: &Stack, replica: &str, what: &str) -> Result<()> {
    let client = Client::new(stack.ports.control_plane)?;
    let headers = [("authorization", "Bearer operator")];
    let path = format!("/v1/replicas/{replica}/{what}");
    let reply = client.post(&path, &Value::Null, what, &headers).await?;
    ensure!(
        reply.status == 200,
        "{path}: {} {}",
        reply.status,
        reply.body
    );
    Ok(())
}
