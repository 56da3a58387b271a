//! Do the engine's events arrive, with the topic that is taken, and can lost ones be had again?

use super::{Subject, caching};
use crate::config::ReplicaConfig;
use crate::doctor::item::Item;
use crate::doctor::probe::{Replayed, Requests, Seen};

const EVENTS: &str = "engine.events";
const TOPIC: &str = "engine.topic";
const REPLAY: &str = "engine.replay";
const SWITCH_ON: &str = "start the engine with --enable-prefix-caching --kv-events-config '{\"enable_kv_cache_events\":true,\
    \"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5558\"}', and let `events` name that port";

pub(super) fn unreachable(name: &str, replica: &ReplicaConfig, why: &str) -> Item {
    let found = format!("{}: {why}", replica.events);
    Item::fail(EVENTS, name, found, SWITCH_ON)
}

pub(super) fn judge(subject: &Subject<'_>, seen: &Seen) -> Vec<Item> {
    vec![
        events(subject, seen),
        topic(subject, seen),
        replay(subject, seen),
    ]
}

fn events(subject: &Subject<'_>, seen: &Seen) -> Item {
    let name = &subject.replica.name;
    if let Err(why) = &seen.events {
        return unreachable(name, subject.replica, why);
    }
    let Some(requests) = &seen.requests else {
        let why = "the connection stands; whether events come was not tried";
        return Item::skipped(EVENTS, name, why);
    };
    if let Some(stored) = &requests.stored {
        let found = format!(
            "a request's {} block(s) of {} tokens were announced",
            stored.hashes.len(),
            stored.block_size
        );
        return Item::ok(EVENTS, name, found);
    }
    if requests.api.is_none() {
        let why = match &requests.first {
            Some(Err(why)) => why.to_string(),
            _ => "not sent".to_owned(),
        };
        return Item::skipped(EVENTS, name, format!("the request failed: {why}"));
    }
    if let Some(why) = too_short(subject, seen, requests) {
        return Item::skipped(EVENTS, name, why);
    }
    let heard = &requests.heard;
    if heard.undecodable > 0 && heard.stored == 0 {
        return Item::fail(
            EVENTS,
            name,
            format!("{} batches came that cannot be read", heard.undecodable),
            "is it a version of the engine that this build does not know? Update prefix-picker",
        );
    }
    if heard.stored > 0 {
        return Item::fail(
            EVENTS,
            name,
            format!(
                "events come from {}, but not those of a request to {}",
                subject.replica.events, subject.replica.api
            ),
            "they are of different engines or ranks: let `events` and `endpoint` name the same one",
        );
    }
    Item::fail(
        EVENTS,
        name,
        "the connection stands, but a request's blocks were not announced",
        SWITCH_ON,
    )
}

/// Prompts that fill no block announce nothing.
fn too_short(subject: &Subject<'_>, seen: &Seen, requests: &Requests) -> Option<String> {
    let block = caching::config_label(subject, seen, "block_size")?;
    let (ids, _) = requests.prompt.as_ref()?;
    let short = block.parse::<usize>().is_ok_and(|block| ids.len() < block);
    short.then(|| {
        format!(
            "blocks of {block} tokens: the request of {} fills none",
            ids.len()
        )
    })
}

fn topic(subject: &Subject<'_>, seen: &Seen) -> Item {
    let (name, wanted) = (&subject.replica.name, &subject.replica.topic);
    let heard = seen
        .requests
        .as_ref()
        .map(|requests| &requests.heard.topics);
    let Some(topics) = heard.filter(|topics| !topics.is_empty()) else {
        return Item::skipped(TOPIC, name, "no event was heard");
    };
    let told = topics.iter().map(|topic| format!("{topic:?}"));
    let told = told.collect::<Vec<_>>().join(", ");
    if topics
        .iter()
        .any(|topic| topic.starts_with(wanted.as_str()))
    {
        Item::ok(TOPIC, name, format!("{told}, taken"))
    } else {
        Item::fail(
            TOPIC,
            name,
            format!("events come with topic {told}, taken are those that begin with {wanted:?}"),
            format!("set the replica's `topic` to {told}, or leave it out"),
        )
    }
}

fn replay(subject: &Subject<'_>, seen: &Seen) -> Item {
    let (name, replica) = (&subject.replica.name, subject.replica);
    let endpoint = replica.replay.as_deref().unwrap_or_default();
    match seen.replay {
        None => Item::warn(
            REPLAY,
            name,
            "no `replay`: one lost event or connection costs all that is known of the replica",
            "add \"replay_endpoint\":\"tcp://*:5558\" to the engine's --kv-events-config, and `replay: tcp://HOST:5558` to the replica",
        ),
        Some(Replayed::Answered) => Item::ok(REPLAY, name, format!("{endpoint} answers")),
        Some(Replayed::Lacks(seq)) => Item::fail(
            REPLAY,
            name,
            format!("{endpoint} answers, but does not have batch {seq}, which was just published"),
            "it is another engine's or rank's: let `replay` and `events` name the same one",
        ),
        Some(Replayed::Silent) => Item::fail(
            REPLAY,
            name,
            format!(
                "{endpoint} does not answer: one lost event costs all that is known of the replica"
            ),
            "add \"replay_endpoint\":\"tcp://*:5558\" to the engine's --kv-events-config, and let `replay` name that port",
        ),
    }
}
