//! What must differ between pools, and between replicas.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};

use super::fields::Errors;
use super::{PoolConfig, REPLICAS_MAX, ReplicaConfig};

/// An endpoint that could not be read, which is told already.
const UNREAD: &str = "0.0.0.0:0";

const EVENTS: &str = "events endpoint";
const REPLAY: &str = "replay endpoint";

/// Where endpoints were seen: pool, rank, path.
type Endpoints = HashMap<SocketAddr, Vec<(usize, Option<u16>, String)>>;

/// Only the ranks of one engine, in one pool, may share an endpoint.
fn check_endpoint(
    seen: &mut Endpoints,
    (pool, replica): (usize, &ReplicaConfig),
    path: String,
    errors: &mut Errors,
) {
    let (endpoint, rank) = (replica.endpoint, replica.data_parallel_rank);
    if endpoint.port() == 0 {
        return;
    }
    let one_form = SocketAddr::new(endpoint.ip().to_canonical(), endpoint.port());
    let there = seen.entry(one_form).or_default();
    let clashes = |(other, theirs, _): &&(usize, Option<u16>, String)| {
        *other != pool || rank.is_none() || theirs.is_none() || *theirs == rank
    };
    if let Some((.., first)) = there.iter().find(clashes) {
        errors.add(
            &path,
            format!(
                "\"{endpoint}\": the same endpoint as {first} (only ranks of one engine may share it, in one \
                 pool, each with its own data_parallel_rank)"
            ),
        );
    }
    there.push((pool, rank, path));
}

/// The one form of a socket's address, which IPv4 written as IPv6 is not.
fn socket(named: &str) -> String {
    let address = named.strip_prefix("tcp://").unwrap_or(named);
    let Some((host, port)) = address.rsplit_once(':') else {
        return named.to_owned();
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(ip) => format!("{}:{port}", ip.to_canonical()),
        Err(_) => address.to_owned(),
    }
}

/// Each engine tells its own figures; its ranks are on one page.
fn check_metrics<'a>(
    seen: &mut HashMap<&'a str, (SocketAddr, String)>,
    replica: &'a ReplicaConfig,
    path: &str,
    errors: &mut Errors,
) {
    let mine = (replica.endpoint, path.to_owned());
    match seen.entry(replica.metrics.as_str()) {
        Entry::Vacant(entry) => drop(entry.insert(mine)),
        Entry::Occupied(first) if first.get().0 != replica.endpoint => {
            let (metrics, (_, first)) = (&replica.metrics, first.get());
            let told = format!(
                "\"{metrics}\": the same as of {first}, which is another engine: expected this one's own"
            );
            errors.add(&format!("{path}.metrics"), told);
        }
        Entry::Occupied(_) => {}
    }
}

pub(super) fn check_unique(pools: &[PoolConfig], errors: &mut Errors) {
    let mut seen: HashMap<(&str, String), String> = HashMap::new();
    let mut endpoints = Endpoints::new();
    let mut metrics = HashMap::new();
    let mut claim = |what: &'static str, value: String, path: String, errors: &mut Errors| {
        if value.is_empty() || value.starts_with(UNREAD) {
            return;
        }
        let one_form = match what {
            EVENTS | REPLAY => socket(&value),
            _ => value.clone(),
        };
        if let Some(first) = seen.insert((what, one_form), path.clone()) {
            errors.add(&path, format!("{value:?}: the same {what} as {first}"));
        }
    };
    let mut count = 0;
    for (pool_number, pool) in pools.iter().enumerate() {
        let path = format!("pools[{pool_number}]");
        claim(
            "pool name",
            pool.name.clone(),
            format!("{path}.name"),
            errors,
        );
        for model in &pool.models {
            for cluster in &pool.clusters {
                claim(
                    "model and cluster",
                    format!("{model} in {cluster}"),
                    format!("{path}.models"),
                    errors,
                );
            }
        }
        for (number, replica) in pool.replicas.iter().enumerate() {
            let path = format!("{path}.replicas[{number}]");
            claim(
                "replica name",
                replica.name.clone(),
                format!("{path}.name"),
                errors,
            );
            check_endpoint(
                &mut endpoints,
                (pool_number, replica),
                format!("{path}.endpoint"),
                errors,
            );
            claim(
                EVENTS,
                replica.events.clone(),
                format!("{path}.events"),
                errors,
            );
            claim(
                REPLAY,
                replica.replay.clone().unwrap_or_default(),
                format!("{path}.replay"),
                errors,
            );
            check_metrics(&mut metrics, replica, &path, errors);
            count += 1;
        }
    }
    if count > REPLICAS_MAX {
        errors.add(
            "pools",
            format!("{count} replicas: expected at most {REPLICAS_MAX}"),
        );
    }
}
