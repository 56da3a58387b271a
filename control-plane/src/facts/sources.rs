//! Does an engine publish its KV events where we listen? (`/kv_event_sources`, vLLM ≥ 0.31:
//! `{"<rank>": {enable_kv_cache_events, publisher, endpoint, replay_endpoint, topic, ...}}`)

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

/// What the configuration says.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Which of the engine's ranks it is about.
    pub rank: Option<u16>,
    /// Where events are subscribed to.
    pub events: String,
    /// Where a replay is asked for.
    pub replay: Option<String>,
    /// Prefix of the topics taken.
    pub topic: String,
}

/// Where an engine says that its events are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Where it publishes.
    pub events: String,
    /// Where it replays, if it does.
    pub replay: Option<String>,
}

#[derive(Deserialize)]
#[serde(default)]
struct Source {
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    topic: Option<String>,
}

impl Source {
    fn publishes(&self) -> bool {
        self.enable_kv_cache_events && self.publisher.as_deref().is_none_or(|p| p == "zmq")
    }
}

impl Default for Source {
    fn default() -> Self {
        Self {
            enable_kv_cache_events: true,
            publisher: None,
            endpoint: None,
            replay_endpoint: None,
            topic: None,
        }
    }
}

/// Where the engine at `ip` says that the events of one of its ranks are, or of the only one. `None`: it
/// says nothing that is of use.
#[must_use]
pub fn told(answer: &[u8], rank: Option<u16>, ip: IpAddr) -> Option<Told> {
    let sources: BTreeMap<String, Source> = serde_json::from_slice(answer).ok()?;
    let source = match rank {
        Some(rank) => sources.get(&rank.to_string()),
        // Of several nobody knows which one is meant.
        None => sources.values().next().filter(|_| sources.len() == 1),
    }?;
    if !source.publishes() {
        return None;
    }
    let at = |endpoint: &Option<String>| reachable(endpoint.as_deref()?, ip);
    Some(Told {
        events: at(&source.endpoint)?,
        replay: at(&source.replay_endpoint),
    })
}

/// An endpoint that an engine listens on, as one to connect to. Where it listens at all addresses, or by
/// a name of its own, that is the address at which it serves.
fn reachable(endpoint: &str, ip: IpAddr) -> Option<String> {
    let (host, _) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    // 0: one that the system chose, and it does not say which.
    let port = port(endpoint).filter(|port| *port != 0)?;
    let host: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let host = host.filter(|host| !host.is_unspecified() && !host.is_loopback());
    let address = SocketAddr::new(host.unwrap_or(ip), port);
    Some(format!("tcp://{address}"))
}

/// What disagrees, for people. Nothing where the answer is not understood.
#[must_use]
pub fn complaints(answer: &[u8], expected: &Expected) -> Vec<String> {
    let mut sources: BTreeMap<String, Source> = match serde_json::from_slice(answer) {
        Ok(sources) => sources,
        Err(_) => return Vec::new(),
    };
    if let Some(rank) = expected.rank
        && !sources.is_empty()
    {
        let known: Vec<String> = sources.keys().cloned().collect();
        sources.retain(|name, _| *name == rank.to_string());
        if sources.is_empty() {
            return vec![format!(
                "the engine has no rank {rank}, as `data_parallel_rank` says: it has {known:?}"
            )];
        }
    }
    if !sources.values().any(Source::publishes) {
        return vec![
            "the engine publishes no KV events: start it with --kv-events-config \
             '{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",...}' and prefix caching on"
                .to_owned(),
        ];
    }
    let mut lines = Vec::new();
    let ports = |of: fn(&Source) -> Option<&String>| -> Vec<u16> {
        sources
            .values()
            .filter_map(|source| port(of(source)?))
            .collect()
    };
    // A port of 0 is one that the system chose: the engine does not say which.
    let disagree = |told: &[u16], ours: Option<u16>| {
        ours.is_some_and(|port| !told.is_empty() && !told.contains(&port) && !told.contains(&0))
    };
    let events = ports(|source| source.endpoint.as_ref());
    if disagree(&events, port(&expected.events)) {
        lines.push(format!(
            "the engine publishes KV events on port {events:?}, but `events` is {}",
            expected.events
        ));
    }
    let replays = ports(|source| source.replay_endpoint.as_ref());
    match &expected.replay {
        Some(replay) if replays.is_empty() => lines.push(format!(
            "the engine has no replay_endpoint, but `replay` is {replay}: lost events cannot be had again"
        )),
        Some(replay) if disagree(&replays, port(replay)) => lines.push(format!(
            "the engine replays on port {replays:?}, but `replay` is {replay}"
        )),
        None if !replays.is_empty() => lines.push(format!(
            "the engine replays on port {replays:?}, but `replay` is not set: a lost connection costs all that is known"
        )),
        _ => {}
    }
    let topics = || sources.values().map(|s| s.topic.as_deref().unwrap_or(""));
    if !topics().any(|topic| topic.starts_with(&expected.topic)) {
        let told: Vec<_> = topics().collect();
        lines.push(format!(
            "the engine's topic is {told:?}, but only those are taken that begin with {:?}",
            expected.topic
        ));
    }
    lines
}

fn port(endpoint: &str) -> Option<u16> {
    endpoint
        .strip_prefix("tcp://")?
        .rsplit_once(':')?
        .1
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disagreement_is_named() {
        let expected = Expected {
            rank: None,
            events: "tcp://10.0.0.1:5557".into(),
            replay: Some("tcp://10.0.0.1:5558".into()),
            topic: "kv@".into(),
        };
        let source = |edit: &[(&str, serde_json::Value)]| {
            let mut source = serde_json::json!({"enable_kv_cache_events": true, "publisher": "zmq",
                "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558", "buffer_steps": 10_000,
                "hwm": 100_000, "max_queue_size": 100_000, "topic": "kv@pod@m"});
            for (name, value) in edit {
                source[name] = value.clone();
            }
            complaints(
                serde_json::json!({"0": source}).to_string().as_bytes(),
                &expected,
            )
        };
        assert!(source(&[]).is_empty());
        let cases: [(&str, serde_json::Value, &str); 6] = [
            (
                "enable_kv_cache_events",
                false.into(),
                "publishes no KV events",
            ),
            ("publisher", "null".into(), "publishes no KV events"),
            ("endpoint", "tcp://*:6000".into(), "port [6000]"),
            (
                "replay_endpoint",
                serde_json::Value::Null,
                "no replay_endpoint",
            ),
            ("replay_endpoint", "tcp://*:1".into(), "replays on port [1]"),
            ("topic", "".into(), "topic is [\"\"]"),
        ];
        for (name, value, part) in cases {
            let lines = source(&[(name, value)]);
            assert_eq!(lines.len(), 1, "{name}: {lines:?}");
            assert!(lines[0].contains(part), "{lines:?}");
        }
        assert!(source(&[("endpoint", "tcp://*:0".into())]).is_empty());
        assert_eq!(complaints(b"{}", &expected).len(), 1);
        assert!(complaints(b"<html>", &expected).is_empty());
    }

    #[test]
    fn what_an_engine_says_is_made_reachable() {
        let ip: IpAddr = "10.0.0.7".parse().unwrap();
        let told = |sources: serde_json::Value, rank| {
            let told = told(sources.to_string().as_bytes(), rank, ip);
            told.map(|told| (told.events, told.replay))
        };
        let one = |endpoint: &str, replay: Option<&str>| serde_json::json!({"publisher": "zmq", "endpoint": endpoint, "replay_endpoint": replay});
        let only = |endpoint: &str, replay: Option<&str>| {
            told(serde_json::json!({"3": one(endpoint, replay)}), None)
        };
        let at = |port: u16| format!("tcp://10.0.0.7:{port}");
        for any in [
            "*",
            "0.0.0.0",
            "[::]",
            "127.0.0.1",
            "localhost",
            "vllm-0.ml",
        ] {
            let endpoint = format!("tcp://{any}:6000");
            assert_eq!(only(&endpoint, None), Some((at(6000), None)), "{any}");
        }
        let replay = Some("tcp://*:6001");
        assert_eq!(
            only("tcp://*:6000", replay),
            Some((at(6000), Some(at(6001))))
        );
        assert_eq!(
            only("tcp://10.9.9.9:6000", None),
            Some(("tcp://10.9.9.9:6000".into(), None))
        );
        assert_eq!(
            only("tcp://[fd00::1]:6000", None),
            Some(("tcp://[fd00::1]:6000".into(), None))
        );
        for nothing in ["tcp://*:0", "inproc://x", "ipc:///tmp/x", "tcp://*", ""] {
            assert_eq!(only(nothing, None), None, "{nothing}");
        }
        let two = serde_json::json!({"0": one("tcp://*:1", None), "1": one("tcp://*:2", None)});
        assert_eq!(told(two.clone(), Some(1)), Some((at(2), None)));
        assert_eq!((told(two.clone(), None), told(two, Some(2))), (None, None));
        assert_eq!(
            told(
                serde_json::json!({"0": {"enable_kv_cache_events": false, "endpoint": "tcp://*:1"}}),
                None
            ),
            None
        );
        assert_eq!(told(serde_json::json!({}), None), None);
        assert_eq!(super::told(b"<html>", None, ip), None);
    }

    #[test]
    fn of_several_ranks_the_configured_one_counts() {
        let source = |port: u16| serde_json::json!({"publisher": "zmq", "endpoint": format!("tcp://*:{port}"), "topic": ""});
        let answer = serde_json::json!({"0": source(5557), "1": source(5558)}).to_string();
        let of = |rank, port: u16| {
            let expected = Expected {
                rank,
                events: format!("tcp://10.0.0.1:{port}"),
                replay: None,
                topic: String::new(),
            };
            complaints(answer.as_bytes(), &expected)
        };
        assert!(of(Some(0), 5557).is_empty() && of(Some(1), 5558).is_empty());
        assert!(of(None, 5558).is_empty());
        // The other rank's events.
        assert!(of(Some(1), 5557)[0].contains("port [5558]"));
        assert!(of(Some(2), 5557)[0].contains("no rank 2"));
    }
}
