//! Do the engine's events arrive, with the topic that is taken, and can lost ones be had again?

use super::{Subject, caching, sources};
use crate::config::ReplicaConfig;
use crate::doctor::item::Item;
use crate::doctor::probe::{Failed, Peer, Replayed, Requests, Seen};

const EVENTS: &str = "engine.events";
const TOPIC: &str = "engine.topic";
const REPLAY: &str = "engine.replay";
/// Events switched on.
pub(super) const SWITCH_ON: &str = "start the engine with --enable-prefix-caching --kv-events-config '{\"enable_kv_cache_events\":true,\
    \"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5558\"}', and let `events` name that port";

const NO_EVENTS: &str = "no events: see engine.events";
/// Said of all that follows from caching being off.
pub(super) const NO_CACHING: &str = "no events without prefix caching: see engine.prefix_caching";
const SAME: &str = "the same fault: see engine.events";
const COMES_FIRST: &str = "these are another replica's events: see engine.events";

/// What is at `events` in place of a socket that publishes.
fn not_heard(subject: &Subject<'_>, seen: &Seen, peer: &Peer) -> Item {
    let (name, endpoint) = (&subject.replica.name, &subject.replica.events);
    let own_port = "let `events` name the port of \"endpoint\" in the engine's --kv-events-config";
    let swapped = is_publisher(seen.replay.as_ref());
    let (found, fix) = match peer {
        Peer::Socket(kind) if kind == "ROUTER" && swapped => (
            format!("{endpoint}: this is the replay socket, and `replay` names that of the events"),
            "swap the replica's `events` and `replay`".to_owned(),
        ),
        Peer::Socket(kind) if kind == "ROUTER" => (
            format!("{endpoint}: this is the replay socket (ROUTER), which publishes no events"),
            format!("{own_port}, and `replay` that of \"replay_endpoint\""),
        ),
        Peer::Socket(kind) => (
            format!("{endpoint}: a socket of kind {kind} is there, not one that publishes (PUB)"),
            own_port.to_owned(),
        ),
        Peer::Other => (
            format!("{endpoint}: what listens there does not speak ZeroMQ"),
            format!("{own_port}, not its HTTP port"),
        ),
        Peer::Silent(seconds) => (
            format!("{endpoint}: connections are accepted, but nothing is said within {seconds} s"),
            format!("does the engine hang? Else something else is there: {own_port}"),
        ),
        Peer::NoName(lost) => (
            format!("{endpoint}: {lost}"),
            "correct the name in `events` (and `replay`), or run doctor where it resolves: the control plane's pod is a \
             good place"
                .to_owned(),
        ),
        Peer::Nobody | Peer::Unknown => (
            format!("{endpoint}: nobody listens there"),
            match sources::where_they_are(subject, seen) {
                Some(told) => format!(
                    "let `events` name {}, where the engine says that it publishes them, and let that be reached from here",
                    told.events
                ),
                None => SWITCH_ON.to_owned(),
            },
        ),
    };
    Item::fail(EVENTS, name, found, fix)
}

fn is_publisher(replayed: Option<&Replayed>) -> bool {
    matches!(replayed, Some(Replayed::Silent(Peer::Socket(kind))) if kind == "PUB")
}

/// Whether no events come since prefix caching is off.
pub(super) fn caching_is_off(subject: &Subject<'_>, seen: &Seen) -> bool {
    let is_silent = match (&seen.events, &seen.requests) {
        (Err(peer), _) => matches!(peer, Peer::Nobody | Peer::Unknown),
        (Ok(()), requests) => requests.as_ref().is_some_and(|r| r.heard.batches == 0),
    };
    is_silent && caching::is_off(subject, seen)
}

pub(super) fn judge(subject: &Subject<'_>, seen: &Seen) -> Vec<Item> {
    let name = &subject.replica.name;
    let is_off = caching_is_off(subject, seen);
    let no_events = if is_off { NO_CACHING } else { NO_EVENTS };
    match owner(subject, seen) {
        Some((other, theirs)) => vec![
            another(subject, seen.requests.as_ref(), other, theirs),
            Item::skipped(TOPIC, name, COMES_FIRST),
            match seen.replay {
                // Compared with the wrong one.
                Some(Replayed::Lacks(_) | Replayed::Answered) => {
                    Item::skipped(REPLAY, name, COMES_FIRST)
                }
                _ => replay(subject, seen),
            },
        ],
        None => vec![
            match (&seen.events, &seen.models) {
                _ if is_off => Item::skipped(EVENTS, name, NO_CACHING),
                (Err(Peer::NoName(one)), Err(Failed::NoName(other))) if one == other => {
                    Item::skipped(EVENTS, name, "the same name: see engine.models")
                }
                _ => events(subject, seen),
            },
            match &seen.events {
                Err(Peer::Nobody | Peer::NoName(_)) => Item::skipped(TOPIC, name, no_events),
                _ => topic(subject, seen),
            },
            match &seen.events {
                _ if seen.nobody_publishes() => Item::skipped(REPLAY, name, no_events),
                Err(_) if is_publisher(seen.replay.as_ref()) => Item::skipped(REPLAY, name, SAME),
                Err(peer @ Peer::NoName(_))
                    if seen.replay == Some(Replayed::Silent(peer.clone())) =>
                {
                    Item::skipped(REPLAY, name, SAME)
                }
                _ => replay(subject, seen),
            },
        ],
    }
}

/// The replica whose events these are, where they are not this one's.
fn owner<'a>(subject: &Subject<'a>, seen: &Seen) -> Option<(&'a ReplicaConfig, &'a Requests)> {
    let requests = seen.requests.as_ref().filter(|r| r.stored.is_none())?;
    let others = subject.fleet.iter();
    let mut others = others.filter(|(replica, _)| !std::ptr::eq(*replica, subject.replica));
    others.find_map(|(replica, seen)| {
        let theirs = seen.requests.as_ref()?;
        requests
            .heard_of(theirs, subject.text)
            .then_some((*replica, theirs))
    })
}

fn another(
    subject: &Subject<'_>,
    ours: Option<&Requests>,
    other: &ReplicaConfig,
    theirs: &Requests,
) -> Item {
    let (name, endpoint) = (&subject.replica.name, &subject.replica.events);
    let its = &other.name;
    let swapped = ours.is_some_and(|ours| theirs.heard_of(ours, subject.text));
    let (found, fix) = if swapped {
        (
            format!(
                "{endpoint}: these are the events of {its}, and {its} has those of {name}: swapped"
            ),
            format!(
                "swap the `events` of {name} and {its} (and `replay`, if they are swapped too)"
            ),
        )
    } else {
        (
            format!("{endpoint}: these are the events of {its}, not of {name}"),
            format!("let `events` of {name} name its own engine or rank, as its `endpoint` does"),
        )
    };
    Item::fail(EVENTS, name, found, fix)
}

fn events(subject: &Subject<'_>, seen: &Seen) -> Item {
    let name = &subject.replica.name;
    if let Err(why) = &seen.events {
        return not_heard(subject, seen, why);
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
            if topics.contains("") {
                "leave the replica's `topic` out".to_owned()
            } else {
                format!("set the replica's `topic` to {told}, or leave it out")
            },
        )
    }
}

fn replay(subject: &Subject<'_>, seen: &Seen) -> Item {
    let (name, replica) = (&subject.replica.name, subject.replica);
    let endpoint = replica.replay.as_deref().unwrap_or_default();
    let told = sources::where_they_are(subject, seen).and_then(|told| told.replay);
    let fix = |otherwise: &str| match &told {
        Some(told) => format!(
            "let `replay` name {told}, where the engine says that it replays, and let that be reached from here"
        ),
        None => otherwise.to_owned(),
    };
    match &seen.replay {
        None => Item::warn(
            REPLAY,
            name,
            "no `replay`: one lost event or connection costs all that is known of the replica",
            fix(
                "add \"replay_endpoint\":\"tcp://*:5558\" to the engine's --kv-events-config, and `replay: tcp://HOST:5558` to the replica",
            ),
        ),
        Some(Replayed::Answered) => Item::ok(REPLAY, name, format!("{endpoint} answers")),
        Some(Replayed::Lacks(seq)) => Item::fail(
            REPLAY,
            name,
            format!("{endpoint} answers, but does not have batch {seq}, which was just published"),
            "it is another engine's or rank's: let `replay` and `events` name the same one",
        ),
        Some(Replayed::Silent(Peer::Socket(kind))) if kind != "ROUTER" => Item::fail(
            REPLAY,
            name,
            if kind == "PUB" {
                format!(
                    "{endpoint}: this is the socket that publishes events (PUB), which replays none"
                )
            } else {
                format!(
                    "{endpoint}: a socket of kind {kind} is there, not one that replays (ROUTER)"
                )
            },
            fix(
                "let `replay` name the port of \"replay_endpoint\" in the engine's --kv-events-config",
            ),
        ),
        Some(Replayed::Silent(Peer::NoName(lost))) => Item::fail(
            REPLAY,
            name,
            format!("{endpoint}: {lost}"),
            fix("correct the name in `replay`, or run doctor where it resolves"),
        ),
        Some(Replayed::Silent(peer)) => Item::fail(
            REPLAY,
            name,
            format!(
                "{endpoint} does not answer{}: one lost event costs all that is known of the replica",
                match peer {
                    Peer::Nobody => ", nobody listens there",
                    Peer::Other => ", what listens there does not speak ZeroMQ",
                    _ => "",
                }
            ),
            fix(
                "add \"replay_endpoint\":\"tcp://*:5558\" to the engine's --kv-events-config, and let `replay` name that port",
            ),
        ),
    }
}
