//! Engines that answer, but not well.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::stack::{Options, Places, Stack};
use serde_json::{Value, json};

use crate::faults::{chat, plant, words};

const PATH: &str = "/v1/chat/completions";

/// Sends so many of the same; how many failed, and how many attempts were at `home`.
async fn send(
    stack: &mut Stack,
    body: &Value,
    name: &str,
    count: u32,
    home: &str,
) -> Result<(u32, u32)> {
    let (mut failed, mut there) = (0, 0);
    for n in 0..count {
        let id = format!("{name}-{n}");
        let reply = stack.client()?.post(PATH, body, &id, &[]).await?;
        failed += u32::from(reply.status != 200);
        let entry = stack.log.wait(&id).await?;
        let named = entry.endpoint.context("nothing named")?;
        there += u32::from(named.starts_with(home));
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    Ok((failed, there))
}

/// An engine that holds the prefix and answers with errors at once is left; one that has too much to do
/// costs no request; each gets the prefix's requests again once it works.
pub(crate) async fn engine_errors(places: &Places) -> Result<()> {
    let mut stack = Stack::start("engine-errors", places, Options::default()).await?;
    for (n, status) in [(1, 500), (2, 503)] {
        let body = chat(&words(n, 1_500), "Hello.");
        let name = format!("errors-{status}");
        let home = plant(&mut stack, &body, &name).await?;
        let engine = (0..3).find(|&i| stack.endpoint(i) == home);
        let engine = stack.engine_client(engine.context("an unknown endpoint")?)?;
        let fault = json!({"kind": "refuse", "requests": 1_000_000, "status": status});
        engine.post("/sim/fault", &fault, "fault", &[]).await?;
        let (failed, there) = send(&mut stack, &body, &name, 60, &home).await?;
        println!("  {status}: {failed} of 60 failed, {there} sent there first");
        ensure!(there <= 12, "{there} of 60 went to an engine that fails");
        // Errors are answers and not tried again; refusals for overload are.
        ensure!(
            failed <= if status == 503 { 0 } else { 12 },
            "{failed} failed"
        );
        let fault = json!({"kind": "refuse", "requests": 0, "status": status});
        engine.post("/sim/fault", &fault, "fault", &[]).await?;
        tokio::time::sleep(Duration::from_secs(12)).await;
        let (failed, _) = send(&mut stack, &body, &format!("{name}-after"), 20, &home).await?;
        ensure!(failed == 0, "{failed} failed afterwards");
    }
    let busy = stack
        .filter_metric("upstream_failures_total_kind=_=busy_=_")
        .await;
    println!("  503s that were seen: {busy:?}");
    Ok(())
}

/// Bodies that every engine refuses while they are still sent, by closing the connection, are no sign of a
/// bad engine: none is left alone, and prompts are found where they are.
pub(crate) async fn refused_uploads(places: &Places) -> Result<()> {
    let mut stack = Stack::start("refused-uploads", places, Options::default()).await?;
    let mut homes = Vec::new();
    for n in 0..6 {
        let body = chat(&words(n, 600), "Hello.");
        let home = plant(&mut stack, &body, &format!("uploads-{n}")).await?;
        homes.push((body, home));
    }
    // The simulated engine has no such interface.
    let upload = json!({"model": "sim", "input": "a".repeat(5_000_000)});
    let client = stack.client()?;
    let mut statuses = std::collections::BTreeMap::new();
    for n in 0..8 {
        let id = format!("upload-{n}");
        // Closed early, it may end without an answer.
        let reply = client.post("/v1/embeddings", &upload, &id, &[]).await;
        *statuses.entry(reply.map_or(0, |r| r.status)).or_insert(0) += 1;
    }
    let mut kept = 0;
    for (n, (body, home)) in homes.iter().enumerate() {
        let id = format!("uploads-after-{n}");
        let reply = stack.client()?.post(PATH, body, &id, &[]).await?;
        ensure!(reply.status == 200, "{id}: {}", reply.status);
        let entry = stack.log.wait(&id).await?;
        kept += u32::from(entry.upstream.as_ref() == Some(home));
    }
    let ejections = stack.filter_metric("ejections_total").await?;
    println!("  uploads by status: {statuses:?}; {ejections} ejections, {kept} of 6 at home");
    ensure!(
        ejections == 0 && kept == 6,
        "{ejections} ejections, {kept} kept"
    );
    Ok(())
}
