//! No control plane: the filter's own configuration lists the replicas.
//!
//! Every VM writes the same head into shared data, the one that a control plane would have sent, and all
//! else goes on as ever: work in flight, health, sessions, guards. There is no table; what replicas hold
//! is known from where requests were sent ([`crate::router::history`]). Replicas count as ready until
//! they fail ([`crate::health`]).

use std::net::SocketAddr;

use prefix_picker_core::blocks::PoolKey;
use prefix_picker_core::ids::{Epoch, ReplicaIndex};
use prefix_picker_core::recent::digest;
use prefix_picker_core::sync::{DP_RANK_MAX, Head, Pace, PoolHead, ReplicaHead, ReplicaState};
use serde::Deserialize;

use crate::host::Host;
use crate::pools;
use crate::router::choose::look_around;
use crate::router::history;
use crate::vm::Vm;

/// Replicas of all pools at most.
const REPLICAS_MAX: usize = 1_024;
/// Pools at most.
const POOLS_MAX: usize = 64;
/// Tokens of an engine's block, unless the configuration says otherwise: vLLM's default on GPUs.
const BLOCK_SIZE: u32 = 16;
/// An engine's block has no more tokens than this.
const BLOCK_SIZE_MAX: u32 = 1 << 16;
/// Where the head is made of the configuration: what replicas are numbered by.
const SECRET: &[u8] = b"standalone";

/// The checked configuration, as the head that requests read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standalone {
    /// Where a request was sent is remembered for so long, in milliseconds.
    pub expire_ms: u64,
    envelope: Vec<u8>,
}

/// `standalone` in the configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// `expire_ms`: for so long a request is remembered where it was sent; about as long as engines keep a
    /// prefix that nobody asks for. Default `600000`.
    expire_ms: Option<u64>,
    /// `pools`: at least one. Required.
    pools: Vec<RawPool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPool {
    /// `name`: its name. Required.
    name: String,
    /// `models`: models that requests name. Default any.
    models: Option<Vec<String>>,
    /// `clusters`: Envoy clusters that route to it. Default any.
    clusters: Option<Vec<String>>,
    /// `block_size`: tokens of an engine's block. Default `16`.
    block_size: Option<u32>,
    /// `bytes_per_token`: of a typical prompt, to estimate tokens. Default `4`.
    bytes_per_token: Option<f64>,
    /// `replicas`: at least one. Required.
    replicas: Vec<RawReplica>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReplica {
    /// `endpoint`: address and port, as the Envoy cluster has them; at most 1,024 in all. Required.
    endpoint: String,
    /// `data_parallel_rank`: which rank it is, where one endpoint has
    /// [several](operations.md#data-parallel-ranks). Default none.
    data_parallel_rank: Option<u16>,
}

impl Raw {
    /// Checks it; `wrong` gets all that is wrong, and where.
    #[must_use]
    pub fn check(self, wrong: &mut Vec<String>) -> Standalone {
        let before = wrong.len();
        let expire_ms = self.expire_ms.unwrap_or(history::TTL_MS);
        if expire_ms == 0 {
            wrong.push("standalone.expire_ms: must not be 0".to_owned());
        }
        if self.pools.is_empty() || self.pools.len() > POOLS_MAX {
            wrong.push(format!("standalone.pools: 1 to {POOLS_MAX} are needed"));
        }
        let (mut pools, mut replicas) = (Vec::new(), Vec::new());
        for (at, pool) in self.pools.into_iter().take(POOLS_MAX).enumerate() {
            let place = format!("standalone.pools[{at}]");
            if pools.iter().any(|p: &PoolHead| p.name == pool.name) {
                wrong.push(format!("{place}.name: another pool has it too"));
            }
            pool.check_replicas(&place, at, &mut replicas, wrong);
            let pool = pool.check(&place, wrong);
            let same = |p: &PoolHead| p.models == pool.models && p.clusters == pool.clusters;
            if let Some(first) = pools.iter().position(same) {
                wrong.push(format!(
                    "{place}: pools[{first}] takes all of its requests, having the same `models` and \
                     `clusters`: give each pool its own of one of them"
                ));
            }
            pools.push(pool);
        }
        if replicas.len() > REPLICAS_MAX {
            wrong.push(format!("standalone: at most {REPLICAS_MAX} replicas"));
        }
        let envelope = if wrong.len() == before {
            envelope(pools, replicas, wrong)
        } else {
            Vec::new()
        };
        Standalone {
            expire_ms,
            envelope,
        }
    }
}

impl RawPool {
    fn check_replicas(
        &self,
        place: &str,
        pool: usize,
        all: &mut Vec<ReplicaHead>,
        wrong: &mut Vec<String>,
    ) {
        if self.replicas.is_empty() {
            wrong.push(format!("{place}.replicas: at least one is needed"));
        }
        for (at, replica) in self.replicas.iter().enumerate().take(REPLICAS_MAX + 1) {
            let endpoint = &replica.endpoint;
            let at = format!("{place}.replicas[{at}]");
            let place = format!("{at}.endpoint");
            if endpoint.parse::<SocketAddr>().is_err() {
                wrong.push(format!(
                    "{place}: {endpoint:?} must be an address and a port as Envoy's cluster has them, \
                     10.0.0.1:8000 or [::1]:8000"
                ));
            }
            let pool = u16::try_from(pool).unwrap_or(u16::MAX);
            let dp_rank = replica.data_parallel_rank;
            let clashes = |r: &ReplicaHead| {
                let ranks = r.dp_rank.is_some() && dp_rank.is_some() && r.dp_rank != dp_rank;
                r.endpoint == *endpoint && !(ranks && r.pool == pool)
            };
            if all.iter().any(clashes) {
                wrong.push(format!(
                    "{place}: {endpoint} is there twice; only ranks of one engine may share an endpoint, \
                     in one pool, each with its own data_parallel_rank"
                ));
            }
            if dp_rank.is_some_and(|rank| rank > DP_RANK_MAX) {
                wrong.push(format!(
                    "{at}.data_parallel_rank: must be at most {DP_RANK_MAX}"
                ));
            }
            all.push(ReplicaHead {
                index: ReplicaIndex(u16::try_from(all.len()).unwrap_or(u16::MAX)),
                pool,
                endpoint: endpoint.clone(),
                dp_rank,
                state: ReplicaState::Ready,
                running: 0,
                waiting: 0,
                kv_usage_permille: 0,
                pace: Pace::default(),
            });
        }
    }

    fn check(self, place: &str, wrong: &mut Vec<String>) -> PoolHead {
        if self.name.is_empty() {
            wrong.push(format!("{place}.name: must not be empty"));
        }
        let block_size = self.block_size.unwrap_or(BLOCK_SIZE);
        if block_size == 0 || block_size > BLOCK_SIZE_MAX {
            wrong.push(format!("{place}.block_size: must be 1 to {BLOCK_SIZE_MAX}"));
        }
        let bytes_per_token = self.bytes_per_token.unwrap_or(0.0);
        // 0 is unknown; half a byte for each token, or a kilobyte, is no tokenizer.
        if bytes_per_token != 0.0 && !(0.5..=1_000.0).contains(&bytes_per_token) {
            wrong.push(format!("{place}.bytes_per_token: must be 0.5 to 1000"));
        }
        for (name, list) in [("models", &self.models), ("clusters", &self.clusters)] {
            if list.iter().flatten().any(String::is_empty) {
                wrong.push(format!("{place}.{name}: a name must not be empty"));
            }
        }
        PoolHead {
            key: PoolKey::derive(SECRET, &self.name),
            name: self.name,
            profile_hash: 0,
            models: self.models.unwrap_or_default(),
            clusters: self.clusters.unwrap_or_default(),
            block_size,
            bytes_per_token_milli: (bytes_per_token * 1_000.0) as u32,
            token_ids: true,
            loras: Vec::new(),
            full_reports: false,
        }
    }
}

/// The head's epoch is made of its content: all VMs of one configuration agree on replica numbers.
fn envelope(pools: Vec<PoolHead>, replicas: Vec<ReplicaHead>, wrong: &mut Vec<String>) -> Vec<u8> {
    let mut head = Head {
        epoch: Epoch(0),
        generation: 0,
        page_count: 1,
        seq: 0,
        version: 1,
        pools,
        replicas,
    };
    let encoded = head.encode().and_then(|bytes| {
        head.epoch = Epoch(digest("standalone", &bytes));
        head.encode()
    });
    match encoded {
        Ok(bytes) => pools::encode(None, &bytes),
        Err(error) => {
            wrong.push(format!("standalone: {error}"));
            Vec::new()
        }
    }
}

impl Standalone {
    /// Puts the head where requests read it, unless it is there.
    pub fn publish(&self, host: &impl Host) {
        let there = host.shared(pools::KEY);
        if there.bytes != self.envelope {
            let _ = host.set_shared(pools::KEY, &self.envelope, there.cas);
        }
    }

    /// One tick of a root context.
    pub fn tick(&self, vm: &mut Vm, host: &impl Host) {
        // An answer of a control plane that was configured before may have come in between.
        self.publish(host);
        vm.poller.stand_down();
        let view = vm.heads.read(host);
        vm.loads.beat(host, view.as_deref(), host.monotonic_us());
        if let Some(view) = view {
            look_around(vm, host, &view);
        }
        vm.health.tick(host, &vm.metrics);
    }
}

#[cfg(test)]
mod tests;
