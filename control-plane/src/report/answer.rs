//! The answer's form, in JSON. docs/operations.md explains every field.

use serde::Serialize;

use super::ring::Figures;

/// The form's name. A field that is added keeps it; one that changes or goes does not.
pub const SCHEMA: &str = "prefix-picker.report/1";

/// See [`super::Report::answer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// How far back was asked for, in seconds.
    pub since_s: u64,
    /// How far back it goes: not before the control plane's start, and a week at most.
    pub covered_s: u64,
    /// Requests that gateways could not tell of, since the start.
    pub lost: u64,
    /// Requests for replicas that are not this control plane's, since the start.
    pub unknown_replica: u64,
    /// All pools.
    pub pools: Vec<PoolAnswer>,
}

/// A pool's part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolAnswer {
    /// Its name.
    pub pool: String,
    /// Requests in shadow.
    pub shadow: Kind,
    /// Requests for which endpoints were named.
    pub enforced: Kind,
    /// The caches behind `counterfactual`, as they are now.
    pub virtual_caches: Vec<ReplicaAnswer>,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    requests: u64,
    agreed: u64,
    prompt_tokens: u64,
    measured: Measured,
    predicted_today: Predicted,
    counterfactual: Counterfactual,
}

/// By responses that told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Measured {
    requests: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
}

/// Against today's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Predicted {
    chosen_hit_tokens: u64,
    served_hit_tokens: u64,
}

/// By virtual caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Counterfactual {
    requests: u64,
    prompt_tokens: u64,
    hit_tokens: u64,
}

/// A replica's virtual cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaAnswer {
    /// The replica's name in the configuration.
    pub replica: String,
    /// Its real capacity; null while its engine has not told: it has no virtual cache then.
    pub capacity_tokens: Option<u64>,
    /// What the virtual cache holds.
    pub held_tokens: Option<u64>,
    /// It could not hold as much as there is room for: see
    /// [`ENTRIES_MAX`](super::virtual_cache::ENTRIES_MAX).
    pub cut_short: bool,
}

impl From<Figures> for Kind {
    fn from(figures: Figures) -> Self {
        Self {
            requests: figures.requests,
            agreed: figures.agreed,
            prompt_tokens: figures.prompt_tokens,
            measured: Measured {
                requests: figures.told,
                prompt_tokens: figures.told_prompt_tokens,
                cached_tokens: figures.told_cached_tokens,
            },
            predicted_today: Predicted {
                chosen_hit_tokens: figures.chosen_tokens,
                served_hit_tokens: figures.served_tokens,
            },
            counterfactual: Counterfactual {
                requests: figures.virtual_requests,
                prompt_tokens: figures.virtual_prompt_tokens,
                hit_tokens: figures.virtual_hit_tokens,
            },
        }
    }
}
