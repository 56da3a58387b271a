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
