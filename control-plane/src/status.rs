//! `GET /v1/status`: how the fleet is, for the page, `prefix-picker top` and scripts.
//!
//! The same kind of facts as in metrics, of this moment and the last ten minutes. Nothing of any prompt is
//! in it: gateways tell hashes and numbers of tokens only, and hashes are keyed by the fleet's secret.

use std::collections::{BTreeMap, HashMap};

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::reasons;
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::ReplicaState;
use serde::Serialize;

use crate::config::Config;
use crate::engine::{Details, Engine, Member, Standing, state_word};
use crate::live::window::{STEP_S, WINDOW_S};
use crate::live::{Counted, Figures, Now, Seen, share};

pub mod alarms;

use alarms::{Alarm, alarms};

/// The form's name. A field that is added keeps it; one that changes or goes does not.
pub const SCHEMA: &str = "prefix-picker.status/1";
/// Hottest prefixes that are told.
const PREFIXES: usize = 20;
/// Gateways' versions that are told.
const VERSIONS_MAX: usize = 16;

/// All but the decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    schema: &'static str,
    /// This program's version.
    version: &'static str,
    /// Of this life of the control plane: decisions are numbered anew in the next one.
    instance: String,
    /// Since the start, in seconds.
    uptime_s: u64,
    /// Gateways get answers.
    ready: bool,
    /// What "recent" means, in seconds.
    window_s: u64,
    /// Length of a step of `history`, in seconds.
    step_s: u64,
    alarms: Vec<Alarm>,
    /// The pools' sums.
    fleet: FleetStatus,
    /// Requests by reason, those with most recent ones first. All that gateways decided about, also those
    /// that are not looked up.
    reasons: Vec<ReasonStatus>,
    pools: Vec<PoolStatus>,
    gateways: Gateways,
    /// The hottest prefixes, those worth most first.
    prefixes: Vec<PrefixStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct FleetStatus {
    replicas: usize,
    /// Replicas that may get requests.
    pickable: usize,
    cached_blocks: usize,
    cached_tokens: u64,
    running: u64,
    waiting: u64,
    /// Requests that were looked up and answered.
    recent: Told,
    ever: Told,
    /// By the engines' own counters, all of their traffic.
    engines: Engines,
    /// Of each step of the window, the oldest first.
    history: Vec<Step>,
    /// Requests that gateways had too many of to tell, since the start.
    lost: u64,
}

/// What gateways told of requests that were looked up and answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Told {
    requests: u64,
    prompt_tokens: u64,
    /// Prompt tokens that need not be computed: found cached as responses told, or held by the table where
    /// they did not tell.
    saved_tokens: u64,
    /// Requests whose response told what was cached.
    measured: u64,
    /// Of those: share of prompt tokens found cached. Null: none told.
    hit_rate: Option<f64>,
}

impl From<&Figures> for Told {
    fn from(figures: &Figures) -> Self {
        Self {
            requests: figures.requests,
            prompt_tokens: figures.prompt_tokens,
            saved_tokens: figures.saved_tokens,
            measured: figures.told,
            hit_rate: figures.hit_rate(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Engines {
    queries: u64,
    hits: u64,
    hit_rate: Option<f64>,
}

impl From<Counted> for Engines {
    fn from(counted: Counted) -> Self {
        Self {
            queries: counted.queries,
            hits: counted.hits,
            hit_rate: counted.hit_rate(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Step {
    requests: u64,
    saved_tokens: u64,
    hit_rate: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ReasonStatus {
    /// As in metrics; null: of a gateway that is newer than this.
    reason: Option<&'static str>,
    recent: u64,
    ever: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PoolStatus {
    pool: String,
    models: Vec<String>,
    adapters: usize,
    /// The engines' block size in tokens; 0 while unknown.
    block_size: u32,
    index: Index,
    recent: Told,
    engines: Engines,
    replicas: Vec<ReplicaStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Index {
    engine_blocks: usize,
    memory_bytes: usize,
    budget_bytes: usize,
    /// Blocks dropped to stay within the budget, ever.
    dropped_blocks: u64,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ReplicaStatus {
    replica: String,
    endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_parallel_rank: Option<u16>,
    state: &'static str,
    /// Why it is not ready; null if it is.
    why: Option<&'static str>,
    /// What is known of its cache follows its engine.
    synced: bool,
    running: u32,
    waiting: u32,
    /// Used share of its KV cache.
    kv_usage: f64,
    cached_blocks: usize,
    cached_tokens: u64,
    /// Requests that it was chosen for.
    recent: Told,
    engine: Engines,
    /// Since its last batch of events, in milliseconds; null: none since the start.
    event_age_ms: Option<u64>,
    /// The engine's version, if it told.
    version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Gateways {
    /// Those that polled within the last minute.
    count: usize,
    /// Since the last poll of any, in milliseconds.
    last_poll_ms: Option<u64>,
    /// Their filters' versions, and how many have each; "" of those that do not tell.
    versions: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PrefixStatus {
    /// Hash of its last block, in hex.
    hash: String,
    tokens: u32,
    /// In the last five to ten minutes.
    requests: u64,
    /// Replicas that hold at least its first block.
    replicas: usize,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionStatus {
    number: u64,
    /// Since it was told of, in milliseconds.
    age_ms: u64,
    reason: Option<&'static str>,
    enforced: bool,
    /// Served by the endpoint chosen; null: not known.
    agreed: Option<bool>,
    /// Null: none was chosen, or it is gone.
    pool: Option<String>,
    replica: Option<String>,
    prompt_tokens: u32,
    /// By the table; null: not looked up.
    predicted_tokens: Option<u32>,
    /// As the response told.
    cached_tokens: Option<u32>,
    /// The response's status; null: not known.
    status: Option<u16>,
}

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
    overview.alarms = alarms(engine, &overview, &now, refused);
    overview
}

/// Sums over replicas.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    figures: Figures,
    counted: Counted,
}

impl Sums {
    fn of(all: &[Self]) -> Self {
        use crate::live::window::Sum as _;
        let mut sum = Self::default();
        for part in all {
            sum.figures.add(&part.figures);
            sum.counted.add(&part.counted);
        }
        sum
    }
}

fn replica(engine: &Engine, member: &Member, block: u32, now: &Now) -> (ReplicaStatus, Sums) {
    let details = engine.details(member.slot).unwrap_or_default();
    let head = &member.head;
    let figures = now.places.get(&place(&head.name())).copied();
    let figures = figures.unwrap_or_default();
    let blocks = engine.replica_blocks(member.slot);
    let status = ReplicaStatus {
        replica: member.name.clone(),
        endpoint: head.endpoint.clone(),
        data_parallel_rank: head.dp_rank,
        state: state_word(head.state),
        why: why(head.state, &details),
        synced: details.synced,
        running: head.running,
        waiting: head.waiting,
        kv_usage: f64::from(head.kv_usage_permille) / 1_000.0,
        cached_blocks: blocks,
        cached_tokens: as_u64(blocks) * u64::from(block),
        recent: (&figures).into(),
        engine: details.cache.into(),
        event_age_ms: details.event_age_ms,
        version: details.version,
    };
    let sums = Sums {
        figures,
        counted: details.cache,
    };
    (status, sums)
}

fn why(state: ReplicaState, details: &Details) -> Option<&'static str> {
    match state {
        ReplicaState::Ready => None,
        ReplicaState::Warming => Some("its KV events are being caught up with, or do not come"),
        ReplicaState::Draining if details.draining => Some("an operator took it out of service"),
        ReplicaState::Draining => Some("it is on its way out"),
        ReplicaState::Down if details.standing == Standing::NotReady => Some("it is not ready"),
        ReplicaState::Down if details.healthy.is_none() => Some("its health is not known yet"),
        ReplicaState::Down => Some("its health check fails"),
    }
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

fn is_pickable(replica: &ReplicaStatus) -> bool {
    let is = |state| replica.state == state_word(state);
    is(ReplicaState::Ready) || is(ReplicaState::Warming)
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
    Gateways {
        count: now.gateways.len(),
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

/// The decisions after this number, the oldest first.
#[must_use]
pub fn decisions(engine: &Engine, after: u64) -> Vec<DecisionStatus> {
    let (seen, now_ms) = engine.live().after(after);
    if seen.is_empty() {
        return Vec::new();
    }
    let members = engine.members();
    let places = members.iter().map(|m| (place(&m.head.name()), m));
    let places: HashMap<u64, &Member> = places.collect();
    let pool = |member: &Member| {
        engine
            .pools()
            .get(member.pool)
            .map(|pool| pool.name.clone())
    };
    let show = |seen: &Seen| {
        let member = places.get(&seen.chosen);
        DecisionStatus {
            number: seen.number,
            age_ms: now_ms.saturating_sub(seen.at_ms),
            reason: reasons::name(seen.reason),
            enforced: seen.enforced,
            agreed: seen.agreed,
            pool: member.and_then(|member| pool(member)),
            replica: member.map(|member| member.name.clone()),
            prompt_tokens: seen.prompt_tokens,
            predicted_tokens: seen.predicted_tokens,
            cached_tokens: seen.cached_tokens,
            status: Some(seen.status).filter(|&status| status > 0),
        }
    };
    seen.iter().map(show).collect()
}

/// How many other replicas of a replica's pool may get requests.
#[must_use]
pub fn others_pickable(engine: &Engine, slot: ReplicaIndex) -> usize {
    let members = engine.members();
    let pool = members.iter().find(|member| member.slot == slot);
    let pool = pool.map(|member| member.pool);
    let others = members
        .iter()
        .filter(|member| Some(member.pool) == pool && member.slot != slot);
    others
        .filter(|member| member.head.state.is_pickable())
        .count()
}

fn as_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
