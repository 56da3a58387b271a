//! Replicas that the configuration does not list: the control plane tells those that it has found.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::item::Item;
use super::page::fetch;
use crate::config::{Config, PoolConfig, ReplicaConfig};
use crate::discovery::found::{Place, replicas};
use crate::engine::Standing;

const ID: &str = "pool.discovery";
/// How long `/v1/status` may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration with them behind those that it lists, and what is to be said of that.
pub(super) async fn complete(
    config: &Config,
    urls: &[String],
    client: &reqwest::Client,
) -> (Config, Vec<Item>) {
    let mut config = config.clone();
    if config.pools.iter().all(|pool| pool.discovery.is_none()) {
        return (config, Vec::new());
    }
    let mut status = None;
    for url in urls {
        let at = format!("{}/v1/status", url.trim_end_matches('/'));
        let page = fetch(client, &at, TIMEOUT);
        if let (None, Ok(page)) = (&status, page.await)
            && page.status == 200
        {
            status = serde_json::from_slice::<Value>(&page.body).ok();
        }
    }
    let pools = config.pools.iter_mut();
    let pools = pools.filter(|pool| pool.discovery.is_some());
    let items = pools.map(|pool| add(pool, status.as_ref())).collect();
    (config, items)
}

fn add(pool: &mut PoolConfig, status: Option<&Value>) -> Item {
    let Some(status) = status else {
        let why = "its replicas are known to the control plane only, which does not tell them";
        return Item::skipped(ID, &pool.name, why);
    };
    let found = found(pool, status);
    let count = found.len();
    pool.replicas.extend(found);
    if count == 0 {
        return Item::fail(
            ID,
            &pool.name,
            "the control plane has found no replica",
            "its log says why: a name without addresses, a selector that matches no pod, or no right to list pods \
             (docs/operations.md, \"Discovery\")",
        );
    }
    Item::ok(ID, &pool.name, format!("{count} replicas found"))
}

/// A pool's replicas as the control plane tells them, without those that are configured.
fn found(pool: &PoolConfig, status: &Value) -> Vec<ReplicaConfig> {
    let Some(discovery) = &pool.discovery else {
        return Vec::new();
    };
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned();
    let pools = list(status, "pools").unwrap_or_default();
    let of_pool = pools.iter().find(|told| told["pool"] == pool.name.as_str());
    let told = of_pool.and_then(|told| list(told, "replicas"));
    let known = |name: &str| pool.replicas.iter().any(|replica| replica.name == name);
    let one = |told: &Value| {
        let name = told["replica"].as_str().filter(|name| !known(name))?;
        let endpoint: SocketAddr = told["endpoint"].as_str()?.parse().ok()?;
        let rank = told["data_parallel_rank"].as_u64();
        let place = Place {
            name: name.to_owned(),
            key: String::new(),
            ip: endpoint.ip(),
            port: endpoint.port(),
            nth: 0,
            standing: Standing::Serving,
        };
        let mut all = replicas(&place, discovery).into_iter();
        let mut found =
            all.find(|found| found.replica.data_parallel_rank.map(u64::from) == rank)?;
        name.clone_into(&mut found.replica.name);
        Some(found.replica)
    };
    told.unwrap_or_default().iter().filter_map(one).collect()
}
