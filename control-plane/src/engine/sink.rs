//! Takes what a subscriber says to the engine, and counts it.

use std::sync::Arc;

use bytes::Bytes;
use prefix_picker_core::ids::ReplicaIndex;

use super::Engine;
use crate::events::{KvEvent, decode_batch};
use crate::metrics::{EventLabels, Metrics, ReplicaLabels, ResetLabels, unix_seconds};
use crate::subscriber::{Loss, Position, Sink, Undecodable};

/// One replica's way into the engine.
pub struct ReplicaSink {
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    replica: ReplicaIndex,
    labels: ReplicaLabels,
}

impl ReplicaSink {
    /// For one replica.
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        metrics: Arc<Metrics>,
        replica: ReplicaIndex,
        labels: ReplicaLabels,
    ) -> Self {
        Self {
            engine,
            metrics,
            replica,
            labels,
        }
    }

    fn count(&self, kind: &'static str, number: u64) {
        if number > 0 {
            let labels = EventLabels {
                pool: self.labels.pool.clone(),
                replica: self.labels.replica.clone(),
                kind,
            };
            self.metrics.events.get_or_create(&labels).inc_by(number);
        }
    }
}

impl Sink for ReplicaSink {
    fn apply(&self, position: Position, payload: &Bytes, live: bool) -> Result<(), Undecodable> {
        let batch = decode_batch(payload).map_err(|error| {
            tracing::warn!(replica = %self.labels.replica, seq = position.seq, %error, "batch cannot be decoded");
            self.count("undecodable", 1);
            Undecodable
        })?;
        if batch.bad_events > 0 {
            let first = batch.problems.first().map_or("", String::as_str);
            tracing::warn!(replica = %self.labels.replica, seq = position.seq, bad = batch.bad_events, first, "events left out");
        }
        if batch.lost_removals {
            // Never claim what may be gone: begin again with what this batch still says.
            self.reset(Loss::LostRemovals);
        }
        self.engine.apply(self.replica, position, &batch);
        let (mut stored, mut removed, mut cleared) = (0, 0, 0);
        for event in &batch.events {
            match event {
                KvEvent::Stored(_) => stored += 1,
                KvEvent::Removed(_) => removed += 1,
                KvEvent::Cleared => cleared += 1,
            }
        }
        self.count("stored", stored);
        self.count("removed", removed);
        self.count("cleared", cleared);
        self.count("bad", batch.bad_events.into());
        self.metrics.batches.get_or_create(&self.labels).inc();
        self.metrics
            .last_seq
            .get_or_create(&self.labels)
            .set(i64::try_from(position.seq).unwrap_or(i64::MAX));
        if live && batch.ts > 0.0 {
            self.metrics
                .event_lag_seconds
                .observe((unix_seconds() - batch.ts).max(0.0));
        }
        Ok(())
    }

    fn reset(&self, why: Loss) {
        let labels = ResetLabels {
            pool: self.labels.pool.clone(),
            replica: self.labels.replica.clone(),
            why: why.as_str(),
        };
        self.metrics.resets.get_or_create(&labels).inc();
        self.engine.was_reset(self.replica);
        self.engine.drop_replica(self.replica);
        if why == Loss::Restart {
            self.engine.doubt_adapters(self.replica);
        }
    }

    fn synced(&self, synced: bool) {
        tracing::info!(replica = %self.labels.replica, synced, "state of a replica's blocks changed");
        if !synced {
            self.metrics.desyncs.get_or_create(&self.labels).inc();
        }
        self.metrics
            .synced
            .get_or_create(&self.labels)
            .set(synced.into());
        self.engine.synced(self.replica, synced);
    }

    fn passed_by(&self, passed_by: bool) {
        self.metrics
            .events_pass_by
            .get_or_create(&self.labels)
            .set(passed_by.into());
        self.engine.passed_by(self.replica, passed_by);
    }

    fn connected(&self, connected: bool) {
        self.metrics
            .connected
            .get_or_create(&self.labels)
            .set(connected.into());
    }

    fn replaying(&self, _from: u64) {
        self.metrics.replays.get_or_create(&self.labels).inc();
    }

    fn overflowed(&self) {
        self.metrics.overflows.get_or_create(&self.labels).inc();
    }
}
