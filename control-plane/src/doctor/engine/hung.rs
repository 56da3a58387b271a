//! Engines that do not answer: nobody is there, or connections are accepted and no more.

use super::Subject;
use crate::doctor::item::Item;
use crate::doctor::probe::{Failed, Seen};
use crate::doctor::samples::samples;

/// What is not known of an engine that does not answer.
const OTHERS: [&str; 13] = [
    "engine.models",
    "engine.version",
    "engine.prefix_caching",
    "engine.ranks",
    "engine.disaggregated",
    "engine.events",
    "engine.topic",
    "engine.replay",
    "engine.hashes",
    "engine.tokenizer",
    "engine.template",
    "engine.cached_tokens",
    "engine.stream_usage",
];

/// One fault, said once, where nothing is answered.
pub(super) fn judge(subject: &Subject<'_>, seen: &Seen) -> Option<Vec<Item>> {
    let (Err(Failed::Late(time)), Err(Failed::Late(_))) = (&seen.health, &seen.models) else {
        return None;
    };
    let name = &subject.replica.name;
    let reachable = Item::fail(
        "engine.reachable",
        name,
        format!(
            "{}: connections are accepted, but not answered within {} s: the engine hangs",
            subject.replica.health,
            time.as_secs()
        ),
        "look at the engine's log, then restart it; a liveness probe on /health does so by itself",
    );
    let why = "the engine hangs: see engine.reachable";
    Some(only(reachable, name, why))
}

/// Whether nobody is there: neither where its health is asked, nor where its API is.
pub(super) fn is_gone(seen: &Seen) -> bool {
    let gone = Failed::Unreachable;
    seen.health.as_ref().err() == Some(&gone) && seen.models.as_ref().err() == Some(&gone)
}

/// One fault, said once: all else is skipped.
pub(super) fn only(reachable: Item, name: &str, why: &str) -> Vec<Item> {
    let skipped = OTHERS.map(|id| Item::skipped(id, name, why));
    std::iter::once(reachable).chain(skipped).collect()
}

/// An engine whose API server is well and that does not compute.
pub(super) fn request(id: &'static str, name: &str, metrics: &str, seen: &Seen) -> Option<Item> {
    let requests = seen.requests.as_ref()?;
    let Some(Err(Failed::Late(time))) = &requests.first else {
        return None;
    };
    let found = format!(
        "/health and /metrics answer, but a request of one token was not answered within {} s",
        time.as_secs()
    );
    let at_work: Vec<f64> = samples(metrics)
        .filter(|sample| {
            matches!(
                sample.name,
                "vllm:num_requests_running" | "vllm:num_requests_waiting"
            )
        })
        .map(|sample| sample.value)
        .collect();
    let idle = !at_work.is_empty() && at_work.iter().all(|count| *count == 0.0);
    Some(if idle {
        Item::fail(
            id,
            name,
            format!("{found}, though it had nothing else to do: it hangs"),
            "look at the engine's log, then restart it",
        )
    } else {
        Item::warn(
            id,
            name,
            format!("{found}: it is very busy, or hangs"),
            "does vllm:generation_tokens_total still grow? If not, look at its log and restart it",
        )
    })
}
