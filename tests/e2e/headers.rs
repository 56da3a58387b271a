//! Who may choose the endpoint.

use std::time::Duration;

use anyhow::{Result, ensure};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack};
use serde_json::Value;

use crate::faults::{chat, words};

const HEADER: &str = "x-gateway-destination-endpoint";

/// A route's metadata goes before the filter's configuration: in shadow endpoints are chosen and nothing is
/// named, so that Envoy's own balancer decides. The control plane's report says what ours would have brought.
pub(crate) async fn shadow(places: &Places) -> Result<()> {
    let route = "              - match: {prefix: \"/\"}\n";
    let metadata = "metadata: {filter_metadata: {prefix-picker: {mode: enforce, percent: 0}}}";
    let options = Options {
        envoy_edits: vec![(
            route.to_owned(),
            format!("{route}                {metadata}\n"),
        )],
        ..Options::default()
    };
    let mut stack = Stack::start("shadow", places, options).await?;
    let client = stack.client()?;
    let body = chat(&words(7, 300), "Hi.");
    let mut engines = std::collections::BTreeSet::new();
    for i in 0..20 {
        stack.settle().await?;
        let id = format!("shadow-{i}");
        let reply = client.post("/v1/chat/completions", &body, &id, &[]).await?;
        ensure!(reply.status == 200, "{id}: {}", reply.status);
        let entry = stack.log.wait(&id).await?;
        ensure!(entry.endpoint.is_some(), "{id}: nothing chosen");
        engines.extend(entry.upstream);
    }
    let shadowed = stack.filter_metric("shadow_total").await?;
    let agreed = stack.filter_metric("shadow_agreed_total").await?;
    let named = stack.filter_metric("named_total").await?;
    let predicted = stack.filter_metric("shadow_predicted_tokens_total").await?;
    let cached = stack.filter_metric("shadow_cached_tokens_total").await?;
    println!(
        "  {shadowed} in shadow, {agreed} agreed; predicted {predicted}, cached {cached} tokens"
    );
    ensure!(
        (shadowed, named) == (20, 0),
        "{shadowed} in shadow, {named} named"
    );
    ensure!(engines.len() > 1, "all went to {engines:?}");
    ensure!(
        agreed < shadowed && predicted > 0 && cached > 0,
        "nothing was compared"
    );
    reported(&stack, (agreed, cached)).await
}

/// The report has the 20 requests, and what is known of them.
async fn reported(stack: &Stack, (agreed, cached): (u64, u64)) -> Result<()> {
    let mut told = Value::Null;
    for _ in 0..50 {
        told = stack.report()?;
        if told["pools"][0]["shadow"]["requests"] == 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let pool = &told["pools"][0];
    let of = |path: &str| pool.pointer(path).and_then(Value::as_u64);
    let shadow = |path: &str| of(&format!("/shadow/{path}")).unwrap_or(0);
    ensure!(
        shadow("requests") == 20 && of("/enforced/requests") == Some(0) && told["lost"] == 0,
        "not the 20 requests: {told}"
    );
    ensure!(shadow("agreed") == agreed, "not {agreed} agreed: {told}");
    ensure!(
        shadow("measured/requests") == 20 && shadow("measured/cached_tokens") == cached,
        "not {cached} tokens cached: {told}"
    );
    let prompt = shadow("prompt_tokens");
    let chosen = shadow("predicted_today/chosen_hit_tokens");
    let served = shadow("predicted_today/served_hit_tokens");
    let would = shadow("counterfactual/hit_tokens");
    println!(
        "  of {prompt} tokens: {served} where they went, {chosen} where we chose, {would} if they had gone there"
    );
    // One prompt again and again: all but the first find it somewhere; each engine has it once it has
    // got it.
    ensure!(
        chosen * 10 >= prompt * 7 && chosen < prompt && 0 < served && served <= chosen,
        "predicted otherwise: {told}"
    );
    ensure!(
        shadow("counterfactual/requests") == 20 && would * 10 >= prompt * 6 && would < prompt,
        "counterfactual otherwise: {told}"
    );
    Ok(())
}

/// A client's own destination header changes nothing: not for a matched prompt, not for an unmatched
/// one, not for requests that the filter leaves alone.
pub(crate) async fn forged(places: &Places) -> Result<()> {
    let mut stack = Stack::start("forged", places, Options::default()).await?;
    let client = stack.client()?;
    let body = chat(&words(7, 300), "Hello.");
    let first = client
        .post("/v1/chat/completions", &body, "forged-first", &[])
        .await?;
    ensure!(first.status == 200, "{}: {}", first.status, first.body);
    let home = stack
        .log
        .wait("forged-first")
        .await?
        .upstream
        .unwrap_or_default();
    stack.settle().await?;

    let others: Vec<String> = (0..3)
        .map(|i| stack.endpoint(i))
        .filter(|e| *e != home)
        .collect();
    let mut moved = 0;
    for i in 0..20 {
        let id = format!("forged-{i}");
        let forged = others.get(i % others.len()).map_or("", String::as_str);
        client
            .post("/v1/chat/completions", &body, &id, &[(HEADER, forged)])
            .await?;
        let entry = stack.log.wait(&id).await?;
        ensure!(
            entry.predicted_tokens > Some(256),
            "{id}: predicted {:?}",
            entry.predicted_tokens
        );
        moved += usize::from(entry.upstream.as_deref() != Some(home.as_str()));
    }
    ensure!(
        moved == 0,
        "{moved} of 20 matched requests went where the client said"
    );

    // Paths that the filter does not look at, and prompts that it has never seen: spread, not obeyed.
    for (what, count) in [("models", 30), ("unmatched", 30)] {
        let obeyed = obeyed(&mut stack, &client, what, count, &others).await?;
        println!("  {what}: {obeyed} of {count} happened to go where the client said");
        ensure!(obeyed < count, "{what}: the client's header was obeyed");
    }
    Ok(())
}

async fn obeyed(
    stack: &mut Stack,
    client: &Client,
    what: &str,
    count: usize,
    others: &[String],
) -> Result<usize> {
    let forged = others.first().map_or("", String::as_str);
    let mut obeyed = 0;
    for i in 0..count {
        let id = format!("forged-{what}-{i}");
        if what == "models" {
            client
                .get_with("/v1/models", &[("x-request-id", &id), (HEADER, forged)])
                .await?;
        } else {
            let body = chat(&words(1000 + i as u64, 40), "Hi.");
            client
                .post("/v1/chat/completions", &body, &id, &[(HEADER, forged)])
                .await?;
        }
        obeyed += usize::from(stack.log.wait(&id).await?.upstream.as_deref() == Some(forged));
    }
    Ok(obeyed)
}
