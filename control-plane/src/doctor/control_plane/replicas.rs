//! The control plane's replicas: are they those of the configuration, and how are they?

use serde_json::Value;

use super::{Engines, Figures, named, refs};
use crate::config::{Config, PoolConfig, ReplicaConfig};
use crate::doctor::item::Item;
use crate::doctor::samples::Sample;

const ID: &str = "control_plane.replicas";

/// Does it have the replicas of this configuration, and are they up?
pub(super) fn judge(
    config: &Config,
    url: &str,
    figures: &Figures<'_>,
    status: &Value,
    engines: &Engines,
) -> Item {
    let other = differences(config, status);
    if !other.is_empty() {
        return Item::fail(
            ID,
            url,
            other.join("; "),
            "it runs with another configuration, or was not restarted since: give it this one",
        );
    }
    states(url, figures, engines)
}

/// How its replicas are not those of the configuration. What it has discovered is not in the file.
fn differences(config: &Config, status: &Value) -> Vec<String> {
    let Some(told) = status.get("pools").and_then(Value::as_array) else {
        return Vec::new();
    };
    let (mut missing, mut elsewhere, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for pool in &config.pools {
        let of_pool = told.iter().find(|told| told["pool"] == pool.name.as_str());
        let replicas = replicas_of(of_pool);
        for replica in &pool.replicas {
            let is_it = |told: &&Value| told["replica"] == replica.name.as_str();
            match replicas.iter().find(is_it) {
                None => missing.push(replica.name.clone()),
                Some(told) => elsewhere.extend(difference(replica, told)),
            }
        }
        let is_known = |name: &str| pool.replicas.iter().any(|known| known.name == name);
        let names = replicas.iter().filter_map(|told| told["replica"].as_str());
        let names = names.filter(|name| pool.discovery.is_none() && !is_known(name));
        more.extend(names.map(str::to_owned));
    }
    let is_ours = |name: &str| {
        config
            .pools
            .iter()
            .any(|pool: &PoolConfig| pool.name == name)
    };
    let pools = told.iter().filter_map(|told| told["pool"].as_str());
    let pools = pools.filter(|name| !is_ours(name));
    more.extend(pools.map(|name| format!("the pool {name}")));
    [
        ("it does not have ", "", missing),
        ("it has ", "", elsewhere),
        ("it has ", ", which the configuration has not", more),
    ]
    .into_iter()
    .filter(|(_, _, names)| !names.is_empty())
    .map(|(before, after, names)| format!("{before}{}{after}", named(&refs(&names))))
    .collect()
}

fn replicas_of(pool: Option<&Value>) -> &[Value] {
    let replicas = pool.and_then(|pool| pool.get("replicas")?.as_array());
    replicas.map_or(&[], Vec::as_slice)
}

/// Where the control plane has a replica, if that is elsewhere than the configuration says.
fn difference(replica: &ReplicaConfig, told: &Value) -> Option<String> {
    let (name, endpoint) = (&replica.name, replica.endpoint.to_string());
    let has = told["endpoint"].as_str().unwrap_or_default();
    if has != endpoint {
        return Some(format!("{name} at {has} (configured: {endpoint})"));
    }
    let rank = |rank: Option<u64>| rank.map_or("no rank".to_owned(), |rank| format!("rank {rank}"));
    let has = told["data_parallel_rank"].as_u64();
    let wanted = replica.data_parallel_rank.map(u64::from);
    (has != wanted).then(|| format!("{name} with {} (configured: {})", rank(has), rank(wanted)))
}

/// A replica's pool and name.
fn who<'a>(sample: &Sample<'a>) -> Option<(&'a str, &'a str)> {
    Some((sample.label("pool")?, sample.label("replica")?))
}

fn states(url: &str, figures: &Figures<'_>, engines: &Engines) -> Item {
    let states = figures
        .all("replica_state")
        .filter(|state| state.value > 0.0);
    let states: Vec<&Sample<'_>> = states.collect();
    let of = |word: &'static str| {
        let of = states.iter().copied();
        of.filter(move |state| state.label("state") == Some(word))
    };
    let names = |of: &[(&str, &str)]| -> String {
        named(&of.iter().map(|(_, name)| *name).collect::<Vec<_>>())
    };
    let draining: Vec<_> = of("draining").filter_map(who).collect();
    // What an engine lacks is told of the engine.
    let down = of("down").filter_map(who);
    let (rightly, wrongly): (Vec<_>, Vec<_>) =
        down.partition(|(pool, name)| engines.is_gone(pool, name));
    let rightly = if rightly.is_empty() {
        String::new()
    } else {
        format!(
            "; down as their engines are (see engine.reachable): {}",
            names(&rightly)
        )
    };
    if !wrongly.is_empty() {
        return Item::fail(
            ID,
            url,
            format!(
                "{} of {} replicas are down, though their engines were not found so: {}{rightly}",
                wrongly.len(),
                states.len(),
                names(&wrongly)
            ),
            "see engine.reachable: /health and /metrics must answer the control plane",
        );
    }
    if !draining.is_empty() {
        return Item::warn(
            ID,
            url,
            format!(
                "draining, so that they get nothing: {}{rightly}",
                names(&draining)
            ),
            "`prefix-picker undrain REPLICA` once they shall get requests again",
        );
    }
    Item::ok(
        ID,
        url,
        format!(
            "{} replicas: {} ready, {} warming{rightly}",
            states.len(),
            of("ready").count(),
            of("warming").count()
        ),
    )
}

/// Are the replicas' events followed?
pub(super) fn followed(figures: &Figures<'_>, engines: &Engines) -> Vec<Item> {
    let states = figures.all("replica_state");
    let states = states.filter(|state| state.value > 0.0);
    let all = states.filter_map(who);
    all.map(|(pool, name)| followed_one(figures, engines, pool, name))
        .collect()
}

fn followed_one(figures: &Figures<'_>, engines: &Engines, pool: &str, name: &str) -> Item {
    const ID: &str = "control_plane.synced";
    let is_on = |family: &str| {
        let mut all = figures.all(family);
        all.any(|sample| who(sample) == Some((pool, name)) && sample.value > 0.0)
    };
    let (synced, connected) = (is_on("replica_synced"), is_on("replica_connected"));
    let passes_by = is_on("replica_events_pass_by");
    let why = if synced && !passes_by {
        engines.why_late(pool, name)
    } else {
        engines.why_unknown(pool, name, connected)
    };
    if let Some(why) = why {
        return Item::skipped(ID, name, why);
    }
    let (found, fix) = if passes_by {
        (
            "its live events do not come, though the connection stands: what is known of it comes by replays, late",
            "see engine.topic and engine.events; if they are ok, the control plane runs with another `topic` or `events`: restart \
             it with this configuration",
        )
    } else if synced {
        return Item::ok(ID, name, "its events are followed");
    } else if connected {
        (
            "its events are not caught up with: nothing is known of what it holds",
            "see engine.replay; without a replay socket it takes until events have come for a while. If it lasts and engine.topic \
             is ok, the control plane runs with another `topic`: restart it with this configuration",
        )
    } else {
        (
            "no connection to its events: nothing is known of what it holds",
            "see engine.events; the control plane must reach the replica's `events` from where it runs",
        )
    };
    Item::fail(ID, name, found, fix)
}
