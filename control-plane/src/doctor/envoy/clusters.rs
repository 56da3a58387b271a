//! The pools' clusters: are they there, do they heed the header, do they have the replicas?

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use super::HEADER;
use super::dump::{Dump, list, number, text, typed};
use crate::config::{Config, PoolConfig};
use crate::doctor::item::Item;

pub(super) const CLUSTERS: &str = "gateway.clusters";
const OVERRIDE: &str = "gateway.override_host";
const ENDPOINTS: &str = "gateway.endpoints";
/// Endpoints named in one item.
const NAMED_MAX: usize = 5;

pub(super) fn judge(
    config: &Config,
    subject: &str,
    dump: &Dump<'_>,
    clusters: &Value,
) -> Vec<Item> {
    let of_pool = |pool| judge_pool(pool, subject, dump, clusters);
    config.pools.iter().flat_map(of_pool).collect()
}

fn judge_pool(pool: &PoolConfig, gateway: &str, dump: &Dump<'_>, clusters: &Value) -> Vec<Item> {
    let subject = format!("{gateway} {}", pool.name);
    let is_there = |name: &&String| dump.clusters.contains_key(name.as_str());
    let (there, missing): (Vec<&String>, Vec<&String>) = pool.clusters.iter().partition(is_there);
    let known: Vec<&str> = dump.clusters.keys().take(NAMED_MAX).copied().collect();
    let fix = format!(
        "let the pool's `clusters` be the names as Envoy has them; this one has {}{}",
        known.join(", "),
        if dump.clusters.len() > known.len() {
            ", ..."
        } else {
            ""
        }
    );
    if there.is_empty() {
        let found = format!("Envoy has none of the pool's clusters {missing:?}");
        return vec![Item::fail(CLUSTERS, &subject, found, fix)];
    }
    let mut items = vec![if missing.is_empty() {
        Item::ok(CLUSTERS, &subject, "the pool's clusters exist")
    } else {
        let found = format!("Envoy has no cluster {missing:?}");
        Item::warn(CLUSTERS, &subject, found, fix)
    }];
    for name in there {
        if let Some(cluster) = dump.clusters.get(name.as_str()) {
            items.push(override_host(&subject, name, cluster));
            items.push(endpoints(pool, &subject, name, clusters));
        }
    }
    items
}

fn override_host(subject: &str, name: &str, cluster: &Value) -> Item {
    const FIX: &str = "give the cluster a load_balancing_policy override_host with `override_host_sources: [{header: \
        x-gateway-destination-endpoint}]` and a fallback_policy, as in envoy/envoy.yaml (Envoy Gateway: BackendTrafficPolicy \
        loadBalancer.endpointOverride)";
    let policies = cluster.get("load_balancing_policy");
    let policies = policies
        .map_or(&[][..], |policy| list(policy, "policies"))
        .iter();
    let mut configs =
        policies.filter_map(|policy| policy.pointer("/typed_extension_config/typed_config"));
    let Some((_, policy)) = configs
        .by_ref()
        .map(typed)
        .find(|(kind, _)| *kind == "OverrideHost")
    else {
        let policy = text(cluster, "lb_policy").unwrap_or("another policy");
        let found = format!(
            "cluster {name} balances by {policy}: endpoints that the filter names are not heeded"
        );
        return Item::fail(OVERRIDE, subject, found, FIX);
    };
    let sources = list(policy, "override_host_sources").iter();
    let headers: Vec<&str> = sources
        .filter_map(|source| text(source, "header"))
        .collect();
    if headers
        .iter()
        .any(|header| header.eq_ignore_ascii_case(HEADER))
    {
        return Item::ok(OVERRIDE, subject, format!("cluster {name} heeds {HEADER}"));
    }
    let reads = if headers.is_empty() {
        "metadata".to_owned()
    } else {
        headers.join(", ")
    };
    let found = format!("cluster {name} has override_host, but reads {reads}, not {HEADER}");
    Item::fail(OVERRIDE, subject, found, FIX)
}

/// A replica that the cluster lacks can be named, but never reached.
fn endpoints(pool: &PoolConfig, subject: &str, name: &str, clusters: &Value) -> Item {
    let hosts = hosts(name, clusters);
    let ours: BTreeSet<SocketAddr> = pool
        .replicas
        .iter()
        .map(|replica| replica.endpoint)
        .collect();
    let lacking: Vec<_> = ours.difference(&hosts).collect();
    let others: Vec<_> = hosts.difference(&ours).collect();
    if !lacking.is_empty() && pool.clusters.len() > 1 && lacking.len() < ours.len() {
        let found = format!(
            "cluster {name} has a part of the pool's replicas; it lacks {}",
            told(&lacking)
        );
        return Item::ok(ENDPOINTS, subject, found);
    }
    if !lacking.is_empty() {
        return Item::fail(
            ENDPOINTS,
            subject,
            format!(
                "cluster {name} lacks the replicas {}: requests named to them go elsewhere",
                told(&lacking)
            ),
            "let Envoy's cluster and the pool's replicas have the same addresses, as ip:port",
        );
    }
    if !others.is_empty() {
        return Item::warn(
            ENDPOINTS,
            subject,
            format!(
                "cluster {name} has {}, which the pool has not: they get requests only when none is named",
                told(&others)
            ),
            "add them to the pool's `replicas`, or take them out of the cluster",
        );
    }
    Item::ok(
        ENDPOINTS,
        subject,
        format!("cluster {name} has the pool's {} endpoints", ours.len()),
    )
}

/// The addresses that a cluster leads to, by `/clusters`.
pub(super) fn hosts(name: &str, clusters: &Value) -> BTreeSet<SocketAddr> {
    let mut all = list(clusters, "cluster_statuses").iter();
    let cluster = all.find(|cluster| text(cluster, "name") == Some(name));
    let hosts = cluster.map_or(&[][..], |cluster| list(cluster, "host_statuses"));
    hosts.iter().filter_map(address).collect()
}

/// Some of them, for people.
pub(super) fn told(addresses: &[&SocketAddr]) -> String {
    let named = addresses.iter().take(NAMED_MAX).map(ToString::to_string);
    let more = addresses.len().saturating_sub(NAMED_MAX);
    let named = named.collect::<Vec<_>>().join(", ");
    if more > 0 {
        format!("{named} and {more} more")
    } else {
        named
    }
}

fn address(host: &Value) -> Option<SocketAddr> {
    let socket = host.pointer("/address/socket_address")?;
    let ip: IpAddr = text(socket, "address")?.parse().ok()?;
    let port = u16::try_from(number(socket, "port_value")?).ok()?;
    Some(SocketAddr::new(ip, port))
}
