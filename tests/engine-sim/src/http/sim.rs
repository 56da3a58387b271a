//! `/sim/...`: what tests tell the engine, and what they ask it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::{ApiError, App};
use crate::core::Command;
use crate::publisher::{drop_next, published};
use crate::supervisor::{Control, after_answer};

/// A fault, as `POST /sim/fault` takes it: `{"kind": "stall", "ms": 200}`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// All sockets close at once; the program exits with code 1.
    Die,
    /// As `die`, and `down_ms` later a new engine on the same ports: sequence 0, empty cache.
    Restart {
        /// How long nobody listens.
        #[serde(default)]
        down_ms: u64,
    },
    /// The API server lives but its engine is dead: `/health` 503, requests 500 (`on: false`: again well).
    Unhealthy {
        /// Whether it is.
        #[serde(default = "yes")]
        on: bool,
    },
    /// The next batches use up sequence numbers but are not sent.
    DropEvents {
        /// How many.
        batches: u64,
        /// Whether the replay socket has them.
        #[serde(default = "yes")]
        replayable: bool,
    },
    /// No step runs for so long.
    Stall {
        /// Milliseconds from now.
        ms: u64,
    },
    /// The next requests for completions are refused.
    Refuse {
        /// How many.
        requests: u64,
        /// HTTP status.
        #[serde(default = "busy")]
        status: u16,
    },
    /// Steps take `factor` times as long as configured; 1 ends it. No effect at speed 0.
    Slow {
        /// Above 0.
        factor: f64,
    },
}

fn yes() -> bool {
    true
}

fn busy() -> u16 {
    503
}

pub(super) async fn fault(
    State(app): State<Arc<App>>,
    body: Bytes,
) -> Result<axum::Json<Value>, ApiError> {
    let fault: Fault =
        serde_json::from_slice(&body).map_err(|e| ApiError::bad_request(e.to_string()))?;
    let mut faults = app.shared.faults();
    match fault {
        Fault::Die => after_answer(&app.control, Control::Die),
        Fault::Restart { down_ms } => after_answer(
            &app.control,
            Control::Restart {
                down: Duration::from_millis(down_ms),
                done: None,
            },
        ),
        Fault::Unhealthy { on } => faults.unhealthy = on,
        Fault::DropEvents {
            batches,
            replayable,
        } => drop_next(&app.shared.ring, batches, replayable),
        Fault::Stall { ms } => {
            faults.stall_until = Instant::now().checked_add(Duration::from_millis(ms))
        }
        Fault::Refuse { requests, status } => faults.refuse = (requests, status),
        Fault::Slow { factor } if factor > 0.0 && factor.is_finite() => faults.slow = factor,
        Fault::Slow { .. } => {
            return Err(ApiError::bad_request("slow: a factor above 0 is required"));
        }
    }
    Ok(axum::Json(json!({"ok": true})))
}

/// Which batches `/sim/state` lists.
#[derive(Debug, Deserialize)]
pub(super) struct Batches {
    /// From this sequence number on; none listed if absent.
    since: Option<u64>,
    #[serde(default = "most")]
    limit: usize,
}

fn most() -> usize {
    10_000
}

pub(super) async fn state(
    State(app): State<Arc<App>>,
    Query(ask): Query<Batches>,
) -> axum::Json<Value> {
    let shared = &app.shared;
    let (next_seq, batches) = published(&shared.ring, ask.since.unwrap_or(u64::MAX), ask.limit);
    let stats = shared.stats();
    axum::Json(json!({
        "name": shared.config.name, "model": shared.config.model, "wire_version": shared.config.wire.to_string(),
        "incarnation": shared.incarnation, "events": app.endpoints.events, "replay": app.endpoints.replay,
        "requests": shared.requests.load(Ordering::Relaxed), "running": stats.running, "waiting": stats.waiting,
        "prefill_tokens": shared.prefill_tokens.load(Ordering::Relaxed),
        "usable_blocks": stats.usable_blocks, "free_blocks": stats.free_blocks, "cached_blocks": stats.cached_blocks,
        "evictions": stats.evictions, "preemptions": stats.cache.preemptions, "finished": stats.finished, "aborted": stats.aborted,
        "prompt_tokens": stats.prompt_tokens, "cached_tokens": stats.cached_tokens, "generation_tokens": stats.generation_tokens,
        "next_seq": next_seq, "last_seq": next_seq.checked_sub(1), "batches": batches,
    }))
}

pub(super) async fn blocks(State(app): State<Arc<App>>) -> axum::Json<Value> {
    let (send, list) = oneshot::channel();
    let _ = app.engine.send(Command::Blocks(send));
    let blocks = list.await.unwrap_or_default();
    let blocks: Map<String, Value> = blocks
        .into_iter()
        .map(|(hash, copies)| (format!("{hash:016x}"), json!(copies)))
        .collect();
    axum::Json(json!({"blocks": blocks}))
}
