//! Two Envoys at once, and an engine that an operator takes out of service.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::open_loop::{Fired, Run};
use prefix_picker_tests::stack::{Places, Stack, wait};
use serde_json::{Value, json};

use crate::faults::{chat, words};
use crate::{bursts, load, loss};

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

/// Requests start all the while, one in five under a prefix that nobody has seen; one engine is drained
/// with work in flight, and put back. What it has ends as usual, and nothing new lands there.
pub(crate) async fn drain(places: &Places) -> Result<()> {
    let at = Duration::from_secs;
    let mut options = loss::ENGINE.options(loss::ENGINES);
    options.control_plane_lines = vec!["admin_tokens: [operator]".to_owned()];
    let stack = Stack::start("drain", places, options).await?;
    let mut shots = loss::shots("drain", at(11));
    for (n, shot) in (0..).zip(&mut shots).filter(|(n, _)| n % 5 == 0) {
        shot.body = load::chat(&load::text(60_000 + n, 600), "Hello.", 24);
    }
    let run = Run::start(&[stack.ports.envoy], shots)?;
    run.reach(at(3)).await;
    operator(&stack, "engine-2", "drain").await?;
    let drained = run.start.elapsed();
    run.reach(at(7)).await;
    let undrained = run.start.elapsed();
    operator(&stack, "engine-2", "undrain").await?;
    let fired = run.finish().await?;
    load::all_good("while one is drained", &fired)?;
    let its = |f: &&Fired| f.engine.as_ref() == Some(&stack.endpoint(1));
    let its: Vec<&Fired> = fired.iter().filter(its).collect();
    let before = its.iter().filter(|f| f.due < drained).count();
    let running = its.iter().filter(|f| f.due < drained && f.end() > drained);
    let running = running.count();
    // Gateways hear of it with the answer to their long poll.
    let heard = drained + Duration::from_secs(1);
    let during = its.iter().filter(|f| f.due > heard && f.due < undrained);
    let during = during.count();
    let after = its.iter().filter(|f| f.due > undrained).count();
    println!(
        "  {} requests; on the engine {before} before, {running} of them running, {during} while drained, {after} after",
        fired.len()
    );
    ensure!(running > 0, "it had nothing in flight");
    ensure!(
        during == 0,
        "{during} requests landed on the drained engine"
    );
    ensure!(after > 0, "it gets nothing after");
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
