//! What the engine itself says of its events (`/kv_event_sources`), against the configuration.

use super::Subject;
use super::events::{NO_CACHING, SWITCH_ON, caching_is_off};
use crate::doctor::item::{Item, Status};
use crate::doctor::probe::Seen;
use crate::facts::sources::{Expected, Told, complaints, told};

const ID: &str = "engine.event_sources";
/// Items that see for themselves what the engine only says, in the order of cause and consequence.
const NAMED_BY: [&str; 4] = [
    "engine.ranks",
    "engine.events",
    "engine.topic",
    "engine.replay",
];

/// `items`: those of the same engine.
pub(super) fn judge(subject: &Subject<'_>, seen: &Seen, items: &[Item]) -> Option<Item> {
    let (name, replica) = (&subject.replica.name, subject.replica);
    let answer = seen.sources.as_ref()?;
    let expected = Expected {
        rank: replica.data_parallel_rank,
        events: replica.events.clone(),
        replay: replica.replay.clone(),
        topic: replica.topic.clone(),
    };
    let complaints = complaints(answer, &expected);
    if complaints.is_empty() {
        let found = "/kv_event_sources agrees with the configuration";
        return Some(Item::ok(ID, name, found));
    }
    let is_fault = |id: &&&str| {
        let mut faults = items
            .iter()
            .filter(|item| matches!(item.status, Status::Fail | Status::Warn));
        faults.any(|item| item.id == **id)
    };
    // One fault, said once.
    if caching_is_off(subject, seen) {
        return Some(Item::skipped(ID, name, NO_CACHING));
    }
    if let Some(id) = NAMED_BY.iter().find(is_fault) {
        let what = if *id == "engine.events" && seen.nobody_publishes() {
            "no events"
        } else {
            "the fault is told there"
        };
        return Some(Item::skipped(ID, name, format!("{what}: see {id}")));
    }
    let complaints = complaints.join("; ");
    if seen.requests.as_ref().is_some_and(|r| r.stored.is_some()) {
        let found = format!("{complaints}. But events do arrive: ports are mapped on the way");
        return Some(Item::ok(ID, name, found));
    }
    let fix = if says_no_events(answer) {
        SWITCH_ON
    } else {
        "let the replica's `events`, `replay` and `topic` agree with the engine's --kv-events-config; nothing is to be \
         done where ports are mapped on the way"
    };
    Some(Item::warn(ID, name, complaints, fix))
}

/// Whether it says that it publishes none, in any of its ranks.
fn says_no_events(answer: &[u8]) -> bool {
    let ranks: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let is_off = |rank: &serde_json::Value| {
        rank["enable_kv_cache_events"] == false
            || rank["publisher"].as_str().is_some_and(|kind| kind != "zmq")
    };
    ranks
        .as_object()
        .is_some_and(|ranks| ranks.values().all(is_off))
}

/// Where the engine says that its events and their replay are.
pub(super) fn where_they_are(subject: &Subject<'_>, seen: &Seen) -> Option<Told> {
    let replica = subject.replica;
    let answer = seen.sources.as_ref()?;
    told(answer, replica.data_parallel_rank, replica.endpoint.ip())
}
