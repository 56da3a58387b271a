//! What must differ between pools, and between replicas.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::fields::Errors;
use super::{PoolConfig, REPLICAS_MAX, ReplicaConfig};

/// An endpoint that could not be read, which is told already.
const UNREAD: &str = "0.0.0.0:0";

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
    let there = seen.entry(endpoint).or_default();
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

pub(super) fn check_unique(pools: &[PoolConfig], errors: &mut Errors) {
    let mut seen: HashMap<(&str, String), String> = HashMap::new();
    let mut endpoints = Endpoints::new();
    let mut claim = |what: &'static str, value: String, path: String, errors: &mut Errors| {
        if value.is_empty() || value.starts_with(UNREAD) {
            return;
        }
        if let Some(first) = seen.insert((what, value.clone()), path.clone()) {
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
                "events endpoint",
                replica.events.clone(),
                format!("{path}.events"),
                errors,
            );
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
