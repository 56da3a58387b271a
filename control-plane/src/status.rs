//! `GET /v1/status`: how the fleet is, for the page, `prefix-picker top` and scripts.
//!
//! The same kind of facts as in metrics, of this moment and the last ten minutes. Nothing of any prompt is
//! in it: gateways tell hashes and numbers of tokens only, and hashes are keyed by the fleet's secret.

use std::collections::BTreeMap;

use prefix_picker_core::reasons;

use crate::config::Config;
use crate::engine::Engine;
use crate::live::window::{STEP_S, WINDOW_S};
use crate::live::{Figures, Now, share};

pub mod alarms;
mod decisions;
mod form;
mod replicas;

use alarms::alarms;
pub use decisions::{DecisionStatus, decisions};
pub use form::Overview;
use form::{
    Engines, FleetStatus, Gateways, Index, PoolStatus, PrefixStatus, ReasonStatus, ReplicaStatus,
    Step,
};
pub use replicas::others_pickable;
use replicas::{Sums, is_pickable, replica};

/// The form's name. A field that is added keeps it; one that changes or goes does not.
pub const SCHEMA: &str = "prefix-picker.status/1";
/// Hottest prefixes that are told.
const PREFIXES: usize = 20;
/// Gateways' versions that are told.
const VERSIONS_MAX: usize = 16;
/// A gateway that does not poll for so long may be gone, in milliseconds.
const SILENT_MS: u64 = 10_000;

/// How all is.
#[must_use]
pub fn overview(engine: &Engine, config: &Config, refused: Option<(u64, u64)>) -> Overview {
    let now = engine.live().now(PREFIXES);
    let head = engine.head();
    let members = engine.members();
    let pools: Vec<PoolStatus> = (engine.pools().iter().zip(&head.pools).enumerate())
        .map(|(at, (pool, told))| {
            let stats = pool.stats();
            let budget_bytes = config.pools.get(at).map_or(0, |p| p.memory_budget_bytes);
            let replicas = members.iter().filter(|member| member.pool == at);
            let shown = replicas.map(|member| replica(engine, member, told.block_size, &now));
            let (replicas, sums): (Vec<_>, Vec<_>) = shown.unzip();
            let sums = Sums::of(&sums);
            PoolStatus {
                pool: pool.name.clone(),
                models: told.models.clone(),
                adapters: told.loras.len(),
                block_size: told.block_size,
                index: Index {
                    engine_blocks: stats.nodes,
                    memory_bytes: stats.memory_bytes,
                    budget_bytes,
                    dropped_blocks: stats.dropped_for_memory,
                },
                recent: (&sums.figures).into(),
                engines: sums.counted.into(),
                replicas,
            }
        })
        .collect();
    let mut overview = Overview {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        instance: format!("{:016x}", head.epoch.0),
        uptime_s: now.now_ms / 1_000,
        ready: engine.is_open(),
        window_s: WINDOW_S,
        step_s: STEP_S,
        alarms: Vec::new(),
        fleet: fleet(&pools, &now),
        reasons: by_reason(&now),
        gateways: gateways(&now),
        prefixes: prefixes(engine, &now),
        pools,
    };
    overview.alarms = alarms(engine, config, &overview, &now, refused);
    overview
}

fn fleet(pools: &[PoolStatus], now: &Now) -> FleetStatus {
    let replicas = || pools.iter().flat_map(|pool| &pool.replicas);
    let sum = |of: fn(&ReplicaStatus) -> u64| replicas().map(of).sum::<u64>();
    let queries = sum(|r| r.engine.queries);
    let hits = sum(|r| r.engine.hits);
    let step = |figures: &Figures| Step {
        requests: figures.requests,
        saved_tokens: figures.saved_tokens,
        hit_rate: figures.hit_rate(),
    };
    FleetStatus {
        replicas: replicas().count(),
        pickable: replicas().filter(|r| is_pickable(r)).count(),
        cached_blocks: replicas().map(|r| r.cached_blocks).sum(),
        cached_tokens: sum(|r| r.cached_tokens),
        running: sum(|r| r.running.into()),
        waiting: sum(|r| r.waiting.into()),
        recent: (&now.recent).into(),
        ever: (&now.ever).into(),
        engines: Engines {
            queries,
            hits,
            hit_rate: share(hits, queries),
        },
        history: now.steps.iter().map(step).collect(),
        lost: now.lost,
    }
}

fn by_reason(now: &Now) -> Vec<ReasonStatus> {
    // Codes that are not known here are one.
    let mut sums: BTreeMap<Option<&'static str>, (u64, u64)> = BTreeMap::new();
    for (&code, &(recent, ever)) in &now.reasons {
        let sum = sums.entry(reasons::name(code)).or_default();
        *sum = (sum.0 + recent, sum.1 + ever);
    }
    let all = sums
        .into_iter()
        .map(|(reason, (recent, ever))| ReasonStatus {
            reason,
            recent,
            ever,
        });
    let mut all: Vec<ReasonStatus> = all.collect();
    all.sort_by_key(|status| std::cmp::Reverse((status.recent, status.ever)));
    all
}

fn gateways(now: &Now) -> Gateways {
    let mut versions: BTreeMap<String, usize> = BTreeMap::new();
    for gateway in &now.gateways {
        if versions.len() < VERSIONS_MAX || versions.contains_key(&gateway.version) {
            *versions.entry(gateway.version.clone()).or_default() += 1;
        }
    }
    let last = now.gateways.iter().map(|gateway| gateway.polled_ms).max();
    let silent = now
        .gateways
        .iter()
        .map(|gateway| gateway.silent_ms(now.now_ms));
    let silent: Vec<u64> = silent.filter(|&ms| ms >= SILENT_MS).collect();
    Gateways {
        count: now.gateways.len(),
        silent: silent.len(),
        silent_ms: silent.iter().max().copied(),
        last_poll_ms: last.map(|at| now.now_ms.saturating_sub(at)),
        versions,
    }
}

fn prefixes(engine: &Engine, now: &Now) -> Vec<PrefixStatus> {
    let shown = now.prefixes.iter().map(|prefix| PrefixStatus {
        hash: format!("{:016x}", prefix.hash),
        tokens: prefix.tokens,
        requests: prefix.requests,
        replicas: engine.holders_of_first(prefix.first),
    });
    shown.collect()
}

#[cfg(test)]
mod tests;
