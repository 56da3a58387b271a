//! Prefix caching, and whether responses tell of it.

use serde_json::Value;

use super::Subject;
use crate::doctor::item::Item;
use crate::doctor::probe::{Failed, Requests, Seen};
use crate::doctor::samples::samples;

/// A label of the engine's `vllm:cache_config_info`.
pub(super) fn config_label<'a>(
    subject: &Subject<'_>,
    seen: &'a Seen,
    label: &str,
) -> Option<&'a str> {
    let rank = subject.replica.data_parallel_rank;
    let rank = rank.map(|rank| rank.to_string());
    let text = seen.metrics.as_deref().unwrap_or_default();
    let mut lines = samples(text).filter(|sample| sample.name == "vllm:cache_config_info");
    let line = lines.find(|line| rank.is_none() || line.label("engine") == rank.as_deref())?;
    line.label(label)
}

/// Whether the engine says that it caches no prefixes.
pub(super) fn is_off(subject: &Subject<'_>, seen: &Seen) -> bool {
    config_label(subject, seen, "enable_prefix_caching") == Some("False")
}

/// Cached tokens as `usage` tells them.
fn cached_tokens(usage: &Value) -> Option<u64> {
    usage
        .pointer("/prompt_tokens_details/cached_tokens")?
        .as_u64()
}

pub(super) fn enabled(subject: &Subject<'_>, seen: &Seen) -> Item {
    const ID: &str = "engine.prefix_caching";
    const FIX: &str =
        "start the engine with --enable-prefix-caching: without it there is nothing to route by";
    let name = &subject.replica.name;
    let again = seen.requests.as_ref().and_then(|r| r.again.as_ref());
    let found = again.and_then(|again| cached_tokens(again.as_ref().ok()?.get("usage")?));
    let block = config_label(subject, seen, "block_size").unwrap_or("?");
    // A prompt that fills no block is never found again.
    let fills = |ids: &[u32]| block.parse().is_ok_and(|block: usize| ids.len() > block);
    let prompt = seen.requests.as_ref().and_then(|r| r.prompt.as_ref());
    let found = found.filter(|found| *found > 0 || prompt.is_some_and(|(ids, _)| fills(ids)));
    match (config_label(subject, seen, "enable_prefix_caching"), found) {
        (Some("False"), _) => Item::fail(ID, name, "prefix caching is off", FIX),
        (_, Some(0)) => Item::warn(
            ID,
            name,
            "the same prompt twice, and nothing of it was found cached the second time",
            "is the cache full to the brim, or reset all the time? Look at vllm:kv_cache_usage_perc and at who calls /reset_prefix_cache",
        ),
        (_, Some(tokens)) => Item::ok(
            ID,
            name,
            format!(
                "on, blocks of {block} tokens; the same prompt again found {tokens} tokens cached"
            ),
        ),
        (Some(_), None) => Item::ok(ID, name, format!("on, blocks of {block} tokens")),
        (None, None) => Item::skipped(
            ID,
            name,
            "the metrics have no vllm:cache_config_info (SGLang?)",
        ),
    }
}

/// Whether responses tell what was found cached, whole and streamed.
pub(super) fn usage(name: &str, seen: &Seen) -> Vec<Item> {
    const CACHED: &str = "engine.cached_tokens";
    const STREAM: &str = "engine.stream_usage";
    let Some(requests) = &seen.requests else {
        let why = "no request was sent";
        return vec![
            Item::skipped(CACHED, name, why),
            Item::skipped(STREAM, name, why),
        ];
    };
    if !requests.generates() {
        let why = "no request that generates was answered";
        return vec![
            Item::skipped(CACHED, name, why),
            Item::skipped(STREAM, name, why),
        ];
    }
    vec![
        cached(CACHED, name, requests),
        stream(STREAM, name, requests),
    ]
}

fn cached(id: &'static str, name: &str, requests: &Requests) -> Item {
    let answer = match &requests.again {
        Some(Ok(answer)) => answer,
        Some(Err(why)) => return Item::skipped(id, name, failed(why)),
        None => return Item::skipped(id, name, "no request was sent"),
    };
    match answer.get("usage").and_then(cached_tokens) {
        Some(_) => Item::ok(id, name, "usage tells cached_tokens"),
        None => Item::warn(
            id,
            name,
            "usage does not tell cached_tokens: whether predictions are right is only seen by the engine's counters",
            "start the engine with --enable-prompt-tokens-details",
        ),
    }
}

fn stream(id: &'static str, name: &str, requests: &Requests) -> Item {
    match &requests.stream {
        Some(Ok(Some(_))) => Item::ok(id, name, "streams end with usage, asked for or not"),
        Some(Ok(None)) => Item::warn(
            id,
            name,
            "streams have usage only where the client asks for it (stream_options.include_usage): the others are not measured",
            "start the engine with --enable-force-include-usage, if clients bear it, or let them ask",
        ),
        Some(Err(why)) => Item::skipped(id, name, failed(why)),
        None => Item::skipped(id, name, "no request was sent"),
    }
}

fn failed(why: &Failed) -> String {
    format!("the request failed: {why}")
}
