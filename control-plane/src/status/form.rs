//! The form of `GET /v1/status`. A field that is added keeps it; one that changes or goes does not.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use super::alarms::Alarm;
use crate::live::{Counted, Figures};

/// All but the decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    pub(super) schema: &'static str,
    /// This program's version.
    pub(super) version: &'static str,
    /// Of this life of the control plane: decisions are numbered anew in the next one.
    pub(super) instance: String,
    /// Since the start, in seconds.
    pub(super) uptime_s: u64,
    /// Gateways get answers.
    pub(super) ready: bool,
    /// What "recent" means, in seconds.
    pub(super) window_s: u64,
    /// Length of a step of `history`, in seconds.
    pub(super) step_s: u64,
    pub(super) alarms: Vec<Alarm>,
    /// The pools' sums.
    pub(super) fleet: FleetStatus,
    /// Requests by reason, those with most recent ones first. All that gateways decided about, also those
    /// that are not looked up.
    pub(super) reasons: Vec<ReasonStatus>,
    pub(super) pools: Vec<PoolStatus>,
    pub(super) gateways: Gateways,
    /// The hottest prefixes, those worth most first.
    pub(super) prefixes: Vec<PrefixStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FleetStatus {
    pub(super) replicas: usize,
    /// Replicas that may get requests.
    pub(super) pickable: usize,
    pub(super) cached_blocks: usize,
    pub(super) cached_tokens: u64,
    pub(super) running: u64,
    pub(super) waiting: u64,
    /// Requests that were looked up and answered.
    pub(super) recent: Told,
    pub(super) ever: Told,
    /// By the engines' own counters, all of their traffic.
    pub(super) engines: Engines,
    /// Of each step of the window, the oldest first.
    pub(super) history: Vec<Step>,
    /// Requests that gateways had too many of to tell, since the start.
    pub(super) lost: u64,
}

/// What gateways told of requests that were looked up and answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Told {
    pub(super) requests: u64,
    pub(super) prompt_tokens: u64,
    /// Prompt tokens that need not be computed: found cached as responses told, or held by the table where
    /// they did not tell.
    pub(super) saved_tokens: u64,
    /// Requests whose response told what was cached.
    pub(super) measured: u64,
    /// Of those: share of prompt tokens found cached. Null: none told.
    pub(super) hit_rate: Option<f64>,
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
pub(super) struct Engines {
    pub(super) queries: u64,
    pub(super) hits: u64,
    pub(super) hit_rate: Option<f64>,
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
pub(super) struct Step {
    pub(super) requests: u64,
    pub(super) saved_tokens: u64,
    pub(super) hit_rate: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ReasonStatus {
    /// As in metrics; null: of a gateway that is newer than this.
    pub(super) reason: Option<&'static str>,
    pub(super) recent: u64,
    pub(super) ever: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PoolStatus {
    pub(super) pool: String,
    pub(super) models: Vec<String>,
    pub(super) adapters: usize,
    /// The engines' block size in tokens; 0 while unknown.
    pub(super) block_size: u32,
    pub(super) index: Index,
    pub(super) recent: Told,
    pub(super) engines: Engines,
    pub(super) replicas: Vec<ReplicaStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Index {
    pub(super) engine_blocks: usize,
    pub(super) memory_bytes: usize,
    pub(super) budget_bytes: usize,
    /// Blocks dropped to stay within the budget, ever.
    pub(super) dropped_blocks: u64,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ReplicaStatus {
    pub(super) replica: String,
    pub(super) endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data_parallel_rank: Option<u16>,
    pub(super) state: &'static str,
    /// Why it is not ready; null if it is.
    pub(super) why: Option<Cow<'static, str>>,
    /// What is known of its cache follows its engine.
    pub(super) synced: bool,
    pub(super) running: u32,
    pub(super) waiting: u32,
    /// Used share of its KV cache.
    pub(super) kv_usage: f64,
    pub(super) cached_blocks: usize,
    pub(super) cached_tokens: u64,
    /// Requests that it was chosen for.
    pub(super) recent: Told,
    pub(super) engine: Engines,
    /// Since its last batch of events, in milliseconds; null: none since the start.
    pub(super) event_age_ms: Option<u64>,
    /// Since all that was known of it was dropped last (an engine that restarted, lost events), in milliseconds;
    /// null: never since the start.
    pub(super) reset_age_ms: Option<u64>,
    /// Its live events do not come though the connection stands.
    #[serde(skip)]
    pub(super) passed_by: bool,
    /// The engine's version, if it told.
    pub(super) version: Option<String>,
    /// What its engine serves, if that lacks one of the pool's models, and for how many seconds that is known.
    #[serde(skip)]
    pub(super) lacks: Option<(String, u64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Gateways {
    /// Those that polled within the last minute.
    pub(super) count: usize,
    /// Of those, such that do not poll at present.
    pub(super) silent: usize,
    /// How long the one of them was last heard of that is silent longest, in milliseconds.
    pub(super) silent_ms: Option<u64>,
    /// Since the last poll of any, in milliseconds.
    pub(super) last_poll_ms: Option<u64>,
    /// Their filters' versions, and how many have each; "" of those that do not tell.
    pub(super) versions: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PrefixStatus {
    /// Hash of its last block, in hex.
    pub(super) hash: String,
    pub(super) tokens: u32,
    /// In the last five to ten minutes.
    pub(super) requests: u64,
    /// Replicas that hold at least its first block.
    pub(super) replicas: usize,
}
