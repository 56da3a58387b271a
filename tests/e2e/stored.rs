//! Requests that build on an answer which one engine keeps.

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::stack::{Options, Places, Stack};
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";

/// Each goes to the engine that gave the answer, and none is answered 404; streamed or not, and whichever
/// worker it comes by.
pub(crate) async fn stored_answers(places: &Places) -> Result<()> {
    let mut stack = Stack::start("stored", places, Options::default()).await?;
    let client = stack.client()?;
    let mut keepers = std::collections::BTreeSet::new();
    for conversation in 0..20 {
        let (mut previous, mut keeper) = (None::<String>, None::<String>);
        for turn in 0..4 {
            let id = format!("stored-{conversation}-{turn}");
            let body = json!({"model": "sim", "input": format!("{id}?"), "stream": turn % 2 == 1,
                "previous_response_id": previous});
            let reply = client.post(PATH, &body, &id, &[]).await?;
            ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
            let entry = stack.log.wait(&id).await?;
            if let Some(keeper) = &keeper {
                let reason = entry.reason.as_deref();
                ensure!(reason == Some("pinned"), "{id}: {reason:?}");
                ensure!(
                    entry.upstream.as_ref() == Some(keeper),
                    "{id}: not at {keeper}"
                );
            }
            keeper = entry.upstream;
            previous = Some(name(&reply.body).with_context(|| reply.body.clone())?);
        }
        keepers.extend(keeper);
    }
    ensure!(keepers.len() == 3, "answers are kept by {keepers:?} only");
    println!("  60 requests went where the answer is that they build on, 3 engines");
    // Nobody can serve this one; it goes on all the same.
    let body = json!({"model": "sim", "input": "?", "previous_response_id": "resp_unknown"});
    let reply = client.post(PATH, &body, "stored-unknown", &[]).await?;
    let reason = stack.log.wait("stored-unknown").await?.reason;
    ensure!(
        reply.status == 404 && reason.as_deref() == Some("stored_history"),
        "{} {reason:?}",
        reply.status
    );
    Ok(())
}

/// The answer's name, of a body or a stream.
fn name(body: &str) -> Option<String> {
    let data = body.lines().find_map(|line| line.strip_prefix("data:"));
    let value: Value = serde_json::from_str(data.unwrap_or(body)).ok()?;
    let places = ["/id", "/response/id"].iter();
    let id = places.filter_map(|at| value.pointer(at)).next()?;
    id.as_str().map(str::to_owned)
}
