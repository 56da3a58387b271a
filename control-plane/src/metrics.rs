//! The control plane's Prometheus metrics, all defined here.
//!
//! Labels are pools, replicas and closed sets of words; never anything of a request.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use prefix_picker_core::sync::ReplicaState;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::engine::Engine;
use crate::subscriber::Loss;

/// One replica.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ReplicaLabels {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub replica: String,
}

/// One pool.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct PoolLabels {
    /// Its name.
    pub pool: String,
}

/// KV events.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct EventLabels {
    /// The replica's pool.
    pub pool: String,
    /// The replica.
    pub replica: String,
    /// `stored`, `removed`, `cleared`, `bad` or `undecodable` (a whole batch).
    pub kind: &'static str,
}

/// Losses of all that was known of a replica.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ResetLabels {
    /// The replica's pool.
    pub pool: String,
    /// The replica.
    pub replica: String,
    /// See [`crate::subscriber::Loss`].
    pub why: &'static str,
}

/// Responses compared with predictions.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// The pool.
    pub pool: String,
    /// `exact`, `over`, `under`, `early`, `missing` or `apart`.
    pub outcome: &'static str,
}

/// Tokens of such responses.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct TokenLabels {
    /// The pool.
    pub pool: String,
    /// `predicted`, `prompt`, `cached`, `over` or `under`.
    pub kind: &'static str,
}

/// Discovery that failed.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct FailureLabels {
    /// The pool.
    pub pool: String,
    /// See [`crate::discovery::Kind`].
    pub kind: &'static str,
}

/// Replicas that came or went.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ChangeLabels {
    /// The pool.
    pub pool: String,
    /// `added` or `removed`.
    pub change: &'static str,
}

/// Answers to polls, scrapes, snapshots.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ResultLabels {
    /// A word of a closed set.
    pub result: &'static str,
}

type ByReplica = Family<ReplicaLabels, Counter>;
type GaugeByReplica = Family<ReplicaLabels, Gauge>;
type GaugeByPool = Family<PoolLabels, Gauge>;

/// What a metric does when a replica is gone. By its type, so that no metric is forgotten to be
/// forgotten.
trait Forget {
    fn forget(&self, _labels: &ReplicaLabels) {}
}

impl Forget for Counter {}
impl Forget for Gauge {}
impl<M> Forget for Family<PoolLabels, M> {}
impl<M> Forget for Family<ResultLabels, M> {}
impl<M> Forget for Family<FailureLabels, M> {}
impl<M> Forget for Family<ChangeLabels, M> {}
impl<M> Forget for Family<OutcomeLabels, M> {}
impl<M> Forget for Family<TokenLabels, M> {}
// Those that have more labels: see [`Metrics::forget`].
impl<M> Forget for Family<EventLabels, M> {}
impl<M> Forget for Family<ResetLabels, M> {}
impl<M> Forget for Family<StateLabels, M> {}

impl<M> Forget for Family<ReplicaLabels, M> {
    fn forget(&self, labels: &ReplicaLabels) {
        self.remove(labels);
    }
}

/// Each metric once: its help text is its documentation.
macro_rules! metrics {
    ($($visibility:vis $field:ident: $type:ty = $name:literal, $help:literal;)*) => {
        /// All metrics.
        pub struct Metrics {
            registry: Mutex<Registry>,
            /// From an engine's batch to the index, by both clocks.
            pub event_lag_seconds: Histogram,
            $(#[doc = $help] $visibility $field: $type,)*
        }

        impl Metrics {
            /// All at zero.
            #[must_use]
            pub fn new() -> Self {
                let mut registry = Registry::with_prefix("prefix_picker");
                let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
                registry.register("build", "The program", build);
                Self {
                    event_lag_seconds: lag(&mut registry),
                    $($field: add(&mut registry, $name, $help),)*
                    registry: Mutex::new(registry),
                }
            }

            #[cfg(test)]
            const NAMES: &[&str] = &[$($name),*];

            fn forget_families(&self, labels: &ReplicaLabels) {
                $(self.$field.forget(labels);)*
            }
        }
    };
}

metrics! {
    pub events: Family<EventLabels, Counter> = "kv_events", "KV events taken";
    pub batches: ByReplica = "kv_event_batches", "Batches of KV events applied";
    pub desyncs: ByReplica = "kv_event_gaps", "Times that a replica's event stream had to be caught up with";
    pub resets: Family<ResetLabels, Counter> = "replica_resets", "Times that all that was known of a replica was dropped";
    pub replays: ByReplica = "kv_event_replays", "Replays asked for";
    pub overflows: ByReplica = "kv_event_overflows", "Times that events came faster than they could be taken";
    pub scrape_errors: ByReplica = "scrape_errors", "Scrapes of engine metrics or health that failed";
    pub models_errors: ByReplica = "models_errors", "Looks at an engine's models that failed";
    pub adapters: GaugeByReplica = "replica_adapters", "LoRA adapters that the engine lists";
    pub adapter_drops: ByReplica = "adapter_dropped_blocks", "Engine blocks dropped since their LoRA adapter changed or went";
    pub max_model_len: GaugeByReplica = "replica_max_model_len", "Longest context that the engine takes, in tokens";
    pub last_seq: GaugeByReplica = "replica_last_seq", "Number of the last batch applied";
    pub connected: GaugeByReplica = "replica_connected", "Whether the event connection stands";
    pub synced: GaugeByReplica = "replica_synced", "Whether what is known of the replica follows its engine";
    pub events_pass_by: GaugeByReplica = "replica_events_pass_by", "1 while the replica's live events do not come though the connection stands: only replays bring them";
    replica_blocks: GaugeByReplica = "replica_blocks", "Engine blocks held";
    replica_state: Family<StateLabels, Gauge> = "replica_state", "1 for the state the replica is in";
    replica_prefill: GaugeByReplica = "replica_prefill_tokens_per_second", "Prompt tokens that the replica computes per second as learned, 0: not learned";
    replica_step: GaugeByReplica = "replica_step_microseconds", "Time between two tokens of an answer as learned, 0: not learned";
    replica_ramp: GaugeByReplica = "replica_ramp", "How far the replica has come since it was added or came back, in thousandths";
    profile_changes: GaugeByPool = "profile_changes", "Times that the pool's prompt profile was replaced and its index begun anew";
    index_nodes: GaugeByPool = "index_engine_blocks", "Distinct engine blocks in the index";
    index_blocks: GaugeByPool = "index_blocks", "Our blocks in the index";
    index_memory_bytes: GaugeByPool = "index_memory_bytes", "Memory of the index";
    index_pending: GaugeByPool = "index_pending_blocks", "Blocks held without credit since their content is not known";
    generated_waiting: GaugeByPool = "generated_blocks_waiting", "Blocks of generated tokens that wait for their check, and claim nothing yet";
    generated_canonical: GaugeByPool = "generated_blocks_canonical", "Blocks of generated tokens that the tokenizer makes of their text, ever";
    generated_other: GaugeByPool = "generated_blocks_other", "Blocks of generated tokens that it does not make of their text: never claimed, ever";
    generated_unchecked: GaugeByPool = "generated_blocks_unchecked", "Blocks of generated tokens that nobody had time to check: never claimed, ever";
    index_dropped: GaugeByPool = "index_dropped_blocks", "Blocks dropped to stay within the memory budget, ever";
    start_requests: GaugeByPool = "prompt_start_requests", "Requests of the last hour whose prompt has two of our blocks at least";
    start_tokens: GaugeByPool = "prompt_start_tokens", "Tokens of their prompts";
    volatile_requests: GaugeByPool = "volatile_start_requests", "Of those requests, such that began with something new in front of what was seen before: a timestamp, an id";
    volatile_tokens: GaugeByPool = "volatile_start_tokens", "Tokens of their prompts: none can be found cached";
    table_bytes: Gauge = "table_bytes", "Bytes of all table pages";
    table_pages: Gauge = "table_pages", "Table pages";
    table_groups: Gauge = "table_groups", "Groups in the table";
    table_seq: Gauge = "table_seq", "Newest change of the table";
    table_generation: Gauge = "table_generation", "Page layout";
    head_version: Gauge = "head_version", "Version of the head";
    pub polls: Family<ResultLabels, Counter> = "polls", "Polls answered, by what the answer held of the table";
    pub answer_bytes: Counter = "answer_bytes", "Bytes of answers to polls";
    pub polls_waiting: Gauge = "polls_waiting", "Polls that wait for news";
    pub feedback_responses: Family<OutcomeLabels, Counter> = "feedback_responses", "Responses whose cached tokens were compared with the prediction, as gateways report";
    pub feedback_telling: Family<PoolLabels, Counter> = "feedback_telling", "Of those, with a block at least to predict or to find";
    pub feedback_tokens: Family<TokenLabels, Counter> = "feedback_tokens", "Tokens predicted, of the prompts, found cached, predicted too much and too little";
    pub prediction_mismatch: GaugeByPool = "prediction_mismatch", "1 while predictions and the engines' cached tokens disagree";
    pub cache_queries: ByReplica = "engine_prefix_cache_queries", "Prompt tokens that the engine looked up in its cache";
    pub cache_hits: ByReplica = "engine_prefix_cache_hits", "Of those, found";
    pub discovered: GaugeByPool = "discovery_replicas", "Replicas that were discovered and are not gone yet";
    pub discovery_changes: Family<ChangeLabels, Counter> = "discovery_changes", "Replicas that discovery brought or took away";
    pub discovery_failures: Family<FailureLabels, Counter> = "discovery_failures", "Times that it could not be found out which replicas there are";
    pub discovery_failing: GaugeByPool = "discovery_failing", "1 while it cannot be found out which replicas there are: what was listed last is in force";
    pub discovery_success: GaugeByPool = "discovery_last_success_seconds", "When it was last found out, in seconds since 1970";
    pub news_reports: Family<ResultLabels, Counter> = "news_reports", "Reports of gateways to each other";
    news_gateways: Gauge = "news_gateways", "Gateways that report to each other";
    news_claims: Gauge = "news_claims", "Placed prompts that gateways tell each other of, in blocks";
    pub snapshots: Family<ResultLabels, Counter> = "snapshots", "Snapshots written, or failed";
    pub snapshot_bytes: Gauge = "snapshot_bytes", "Size of the last snapshot";
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    pool: String,
    replica: String,
    state: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// The text that Prometheus reads, with sizes as they are now.
    #[must_use]
    pub fn render(&self, engine: &Engine) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Inside, so that a replica that goes meanwhile is forgotten after this.
        self.observe(engine);
        let mut out = String::new();
        if text::encode(&mut out, &registry).is_err() {
            tracing::error!("metrics cannot be written");
        }
        out
    }

    /// Drops all that is told of a replica. It must have left the engine, and its tasks must have ended.
    pub fn forget(&self, labels: &ReplicaLabels) {
        let _nobody_renders = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget_families(labels);
        let ReplicaLabels { pool, replica } = labels;
        let (pool, replica) = (|| pool.clone(), || replica.clone());
        for kind in EVENT_KINDS {
            self.events.remove(&EventLabels {
                pool: pool(),
                replica: replica(),
                kind,
            });
        }
        for why in Loss::ALL {
            self.resets.remove(&ResetLabels {
                pool: pool(),
                replica: replica(),
                why: why.as_str(),
            });
        }
        for (state, _) in STATES {
            self.replica_state.remove(&StateLabels {
                pool: pool(),
                replica: replica(),
                state,
            });
        }
    }

    fn observe(&self, engine: &Engine) {
        for pool in engine.pools() {
            let labels = PoolLabels {
                pool: pool.name.clone(),
            };
            let stats = pool.stats();
            for (family, value) in [
                (
                    &self.profile_changes,
                    usize::try_from(pool.profile_changes()).unwrap_or(usize::MAX),
                ),
                (&self.index_nodes, stats.nodes),
                (&self.index_blocks, stats.blocks),
                (&self.index_memory_bytes, stats.memory_bytes),
                (&self.index_pending, stats.pending),
                (&self.generated_waiting, stats.grown_waiting),
                (&self.generated_canonical, as_size(stats.grown_canonical)),
                (&self.generated_other, as_size(stats.grown_spoilt)),
                (&self.generated_unchecked, as_size(stats.grown_unchecked)),
                (&self.index_dropped, as_size(stats.dropped_for_memory)),
            ] {
                family.get_or_create(&labels).set(as_i64(value));
            }
            // There from the start, at 0.
            let _ = self.prediction_mismatch.get_or_create(&labels);
        }
        for (pool, sums) in engine.report().starts() {
            let labels = PoolLabels { pool };
            for (family, value) in [
                (&self.start_requests, sums.requests),
                (&self.start_tokens, sums.tokens),
                (&self.volatile_requests, sums.volatile_requests),
                (&self.volatile_tokens, sums.volatile_tokens),
            ] {
                family
                    .get_or_create(&labels)
                    .set(i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
        let size = engine.table_size();
        self.table_bytes.set(as_i64(size.bytes));
        self.table_pages.set(i64::from(size.pages));
        self.table_groups.set(as_i64(size.groups));
        self.table_seq
            .set(i64::try_from(size.seq).unwrap_or(i64::MAX));
        self.table_generation.set(i64::from(size.generation));
        let head = engine.head();
        self.head_version
            .set(i64::try_from(head.version).unwrap_or(i64::MAX));
        let (gateways, claims) = engine.gateways().sizes();
        self.news_gateways.set(as_i64(gateways));
        self.news_claims.set(as_i64(claims));
        self.observe_replicas(engine);
    }

    fn observe_replicas(&self, engine: &Engine) {
        for member in engine.members() {
            let pool = engine.pools().get(member.pool);
            let pool = pool.map(|pool| pool.name.clone()).unwrap_or_default();
            let (replica, state) = (member.name, member.head);
            let labels = ReplicaLabels {
                pool: pool.clone(),
                replica: replica.clone(),
            };
            self.replica_blocks
                .get_or_create(&labels)
                .set(as_i64(engine.replica_blocks(member.slot)));
            for (family, value) in [
                (&self.replica_prefill, state.pace.prefill_tokens_per_s),
                (&self.replica_step, state.pace.step_us),
                (&self.replica_ramp, state.pace.ramp_permille.into()),
            ] {
                family.get_or_create(&labels).set(value.into());
            }
            for (word, possible) in STATES {
                let labels = StateLabels {
                    pool: pool.clone(),
                    replica: replica.clone(),
                    state: word,
                };
                self.replica_state
                    .get_or_create(&labels)
                    .set((state.state == *possible).into());
            }
        }
    }
}

/// All that [`EventLabels::kind`] can be.
const EVENT_KINDS: &[&str] = &["stored", "removed", "cleared", "bad", "undecodable"];

const STATES: &[(&str, ReplicaState)] = &[
    ("ready", ReplicaState::Ready),
    ("warming", ReplicaState::Warming),
    ("draining", ReplicaState::Draining),
    ("down", ReplicaState::Down),
];

fn add<M: Default + Clone + prometheus_client::registry::Metric>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn lag(registry: &mut Registry) -> Histogram {
    let buckets = [
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
    ];
    let metric = Histogram::new(buckets);
    let help = "From an engine's batch to the index, by both clocks";
    registry.register("kv_event_lag_seconds", help, metric.clone());
    metric
}

fn as_size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn as_i64(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Seconds since 1970 by this machine's clock; for comparing with engines' time stamps only.
#[must_use]
pub fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_documented() {
        let docs = include_str!("../../docs/operations.md");
        let words: Vec<&str> = docs
            .split(|char: char| !char.is_ascii_alphanumeric() && char != '_')
            .map(|word| word.trim_start_matches("prefix_picker_"))
            .map(|word| word.trim_end_matches("_total"))
            .collect();
        for name in Metrics::NAMES
            .iter()
            .chain(&["build_info", "kv_event_lag_seconds"])
        {
            assert!(words.contains(name), "{name} is not in docs/operations.md");
        }
    }
}
