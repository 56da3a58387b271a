//! Whether predictions are right: what gateways report, what engines count, and the alarm.
//!
//! A router whose prompts differ from the engine's is useless without a sound: events flow, requests
//! are answered, nothing ever matches. Two witnesses can tell. The first are the engines' own answers:
//! gateways compare each response's `cached_tokens` with the prediction and send totals with every
//! poll ([`ledger`] turns them into differences). The second are the engines' `prefix_cache_*`
//! counters, which speak where responses carry no figure. [`verdict`] decides from either, by count
//! of requests and without a clock; here its verdicts become metrics and log lines.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::sync::{Poll, PoolFeedback};

use crate::metrics::{Metrics, OutcomeLabels, PoolLabels, TokenLabels};

pub mod ledger;
pub mod verdict;

use ledger::{Counters, Ledger};
use verdict::{Recent, Verdict, Witness};

/// A mismatch that lasts is logged again after this long.
const REPEAT: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Debug)]
pub struct Feedback {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ledger: Ledger,
    pools: Vec<Pool>,
    /// By slot.
    replicas: HashMap<u16, Replica>,
}

#[derive(Debug)]
struct Pool {
    name: String,
    recent: Recent,
    witness: Witness,
    alarm: bool,
    logged: Option<Instant>,
}

#[derive(Debug)]
struct Replica {
    pool: usize,
    counters: Counters,
}

impl Feedback {
    /// For pools by name.
    #[must_use]
    pub fn new(pools: impl Iterator<Item = String>) -> Self {
        let pool = |name| Pool {
            name,
            recent: Recent::default(),
            witness: Witness::default(),
            alarm: false,
            logged: None,
        };
        let inner = Inner {
            ledger: Ledger::default(),
            pools: pools.map(pool).collect(),
            replicas: HashMap::new(),
        };
        Self {
            inner: Mutex::new(inner),
        }
    }

    /// A replica comes.
    pub fn add(&self, slot: ReplicaIndex, pool: usize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = Counters::default();
        inner.replicas.insert(slot.0, Replica { pool, counters });
    }

    /// A replica goes.
    pub fn remove(&self, slot: ReplicaIndex) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.replicas.remove(&slot.0);
    }

    /// Takes what a gateway reports. `has_events`: has the pool of this position any blocks? Without
    /// events there is nothing to predict from, and other metrics say so.
    pub fn take(
        &self,
        poll: &Poll,
        metrics: &Metrics,
        has_events: impl Fn(usize) -> bool,
        now: Instant,
    ) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { ledger, pools, .. } = &mut *inner;
        let known = |name: &str| pools.iter().any(|pool| pool.name == name);
        for change in ledger.take(&poll.gateway, &poll.feedback, known) {
            let Some(at) = pools.iter().position(|pool| pool.name == change.pool) else {
                continue;
            };
            if let Some(pool) = pools.get_mut(at) {
                count(metrics, &change);
                pool.recent.take(&change);
                pool.witness.answered(&change);
                pool.judge(metrics, has_events(at), now);
            }
        }
    }

    /// Pools whose predictions and cached tokens disagree: the pool, what is seen, and what to check.
    #[must_use]
    pub fn mismatches(&self) -> Vec<(String, &'static str, &'static str)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let alarmed = inner.pools.iter().filter(|pool| pool.alarm);
        let say = |pool: &Pool| {
            let (what, check) = meaning(pool.verdict());
            (pool.name.clone(), what, check)
        };
        alarmed.map(say).collect()
    }

    /// Takes an engine's counters of prompt tokens looked up in its cache and found there, as scraped.
    pub fn scraped(&self, replica: ReplicaIndex, queries: u64, hits: u64) -> Option<(u64, u64)> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner {
            pools, replicas, ..
        } = &mut *inner;
        let replica = replicas.get_mut(&replica.0)?;
        let (queries, hits) = replica.counters.take(queries, hits)?;
        pools.get_mut(replica.pool)?.witness.counted(queries, hits);
        Some((queries, hits))
    }
}

impl Pool {
    fn judge(&mut self, metrics: &Metrics, has_events: bool, now: Instant) {
        let verdict = self.verdict();
        let alarm = verdict.is_mismatch() && has_events;
        let labels = PoolLabels {
            pool: self.name.clone(),
        };
        let gauge = metrics.prediction_mismatch.get_or_create(&labels);
        gauge.set(alarm.into());
        let was = std::mem::replace(&mut self.alarm, alarm);
        if was && !alarm {
            self.logged = None;
            tracing::info!(pool = %self.name, "predictions and cached tokens agree again");
        }
        let due = self
            .logged
            .is_none_or(|at| now.duration_since(at) >= REPEAT);
        if alarm && due {
            self.logged = Some(now);
            self.warn(verdict);
        }
    }

    fn verdict(&self) -> Verdict {
        let figures = self.recent.verdict();
        if figures.is_mismatch() {
            figures
        } else {
            self.witness.verdict()
        }
    }

    fn warn(&self, verdict: Verdict) {
        let (what, check) = meaning(verdict);
        let seen = self.recent.seen();
        tracing::warn!(
            pool = %self.name,
            compared = seen.all(),
            too_little = seen.under,
            too_much = seen.over,
            check,
            "prediction mismatch: {what}"
        );
    }
}

/// What a mismatch means, and what to check.
fn meaning(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::TooLittle => (
            "engines find prompts cached that were not predicted",
            "the pool's model_dir has another chat template or tokenizer than the engines; engine \
                 flags that change the prompt (--chat-template, --default-chat-template-kwargs, \
                 --chat-template-content-format, time zone) are not in the pool's configuration; the \
                 engine's version renders differently; or events were lost (replica_resets, \
                 index_dropped_blocks)",
        ),
        _ => (
            "prompts predicted to be cached are not found by the engines",
            "events come from other engines than those that serve (endpoint, events); engines do \
                 not read their prefix cache (--no-enable-prefix-caching); or identities are mixed up \
                 (LoRA adapters, cache_salt)",
        ),
    }
}

fn count(metrics: &Metrics, change: &PoolFeedback) {
    let pool = || change.pool.clone();
    for (outcome, n) in [
        ("exact", change.exact),
        ("over", change.over),
        ("under", change.under),
        ("early", change.early),
        ("missing", change.missing),
        ("apart", change.apart),
    ] {
        let labels = OutcomeLabels {
            pool: pool(),
            outcome,
        };
        metrics.feedback_responses.get_or_create(&labels).inc_by(n);
    }
    for (kind, n) in [
        ("predicted", change.predicted_tokens),
        ("prompt", change.prompt_tokens),
        ("cached", change.cached_tokens),
        ("over", change.over_tokens),
        ("under", change.under_tokens),
    ] {
        let labels = TokenLabels { pool: pool(), kind };
        metrics.feedback_tokens.get_or_create(&labels).inc_by(n);
    }
    let labels = PoolLabels { pool: pool() };
    metrics
        .feedback_telling
        .get_or_create(&labels)
        .inc_by(change.telling);
}

#[cfg(test)]
mod tests;
