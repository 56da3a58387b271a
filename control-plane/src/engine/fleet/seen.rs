//! What is shown of a replica, and no decision is made of.

use prefix_picker_core::ids::ReplicaIndex;

use super::{Fleet, Standing};
use crate::live::Counted;
use crate::live::window::Window;

/// Kept with each replica.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// When its last batch of events was applied, by [`Fleet::ramp`]'s clock.
    heard_ms: Option<u64>,
    /// Its live events do not come though the connection stands.
    passed_by: bool,
    /// When all that was known of it was dropped last.
    reset_ms: Option<u64>,
    cache: Window<Counted>,
    trouble: Option<Trouble>,
    /// What its engine serves, if that lacks one of the pool's models, and since when.
    lacks: Option<(String, u64)>,
}

/// Why a health check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody listens there.
    Refused,
    /// No answer in time.
    Late,
    /// No connection: no way there, or no such host.
    Unreachable,
    /// A connection, but no whole answer.
    Broken,
    /// An answer with another status than success.
    Status(u16),
}

/// A replica, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// What its health said last; `None`: not asked yet.
    pub healthy: Option<bool>,
    /// What is known of it follows its engine.
    pub synced: bool,
    /// An operator took it out of service.
    pub draining: bool,
    /// What is said of it by whoever lists it.
    pub standing: Standing,
    /// Its engine's version.
    pub version: Option<String>,
    /// Since its last batch of events, in milliseconds, to the interval of scrapes.
    pub event_age_ms: Option<u64>,
    /// Its live events do not come though the connection stands: only replays bring them.
    pub passed_by: bool,
    /// Since all that was known of it was dropped last, in milliseconds, as exact.
    pub reset_age_ms: Option<u64>,
    /// Its engine's counters over the last ten minutes.
    pub cache: Counted,
    /// Why its last health check failed.
    pub trouble: Option<Trouble>,
    /// What its engine serves, if that lacks one of the pool's models, and for how many seconds that is known.
    pub lacks: Option<(String, u64)>,
}

impl Fleet {
    /// A batch of a replica's events was applied.
    pub(in crate::engine) fn heard(&mut self, replica: ReplicaIndex) {
        let now_ms = self.now_ms;
        if let Some(found) = self.get(replica) {
            found.seen.heard_ms = Some(now_ms);
        }
    }

    /// Whether its live events pass by.
    pub(in crate::engine) fn set_passed_by(&mut self, replica: ReplicaIndex, passed_by: bool) {
        if let Some(found) = self.get(replica) {
            found.seen.passed_by = passed_by;
        }
    }

    /// All that was known of a replica was dropped.
    pub(in crate::engine) fn was_reset(&mut self, replica: ReplicaIndex) {
        let now_ms = self.now_ms;
        if let Some(found) = self.get(replica) {
            found.seen.reset_ms = Some(now_ms);
        }
    }

    /// An engine's counters have moved by so much.
    pub(in crate::engine) fn counted(&mut self, replica: ReplicaIndex, counted: Counted) {
        let now_ms = self.now_ms;
        if let Some(found) = self.get(replica) {
            found.seen.cache.add(now_ms, &counted);
        }
    }

    /// What its last health check met with.
    pub(in crate::engine) fn set_trouble(&mut self, replica: ReplicaIndex, met: Option<Trouble>) {
        if let Some(found) = self.get(replica) {
            found.seen.trouble = met;
        }
    }

    /// What its engine serves, if that lacks one of the pool's models.
    pub(in crate::engine) fn set_lacks(&mut self, replica: ReplicaIndex, serves: Option<String>) {
        let now_ms = self.now_ms;
        if let Some(found) = self.get(replica) {
            let before = found.seen.lacks.take().map(|(_, at)| at);
            found.seen.lacks = serves.map(|serves| (serves, before.unwrap_or(now_ms)));
        }
    }

    /// `None`: it is not there.
    pub(in crate::engine) fn details(&mut self, replica: ReplicaIndex) -> Option<Details> {
        let now_ms = self.now_ms;
        let found = self.get(replica)?;
        Some(Details {
            healthy: found.healthy,
            synced: found.synced,
            draining: found.draining,
            standing: found.standing,
            version: found.version.clone(),
            event_age_ms: found.seen.heard_ms.map(|at| now_ms.saturating_sub(at)),
            passed_by: found.seen.passed_by,
            reset_age_ms: found.seen.reset_ms.map(|at| now_ms.saturating_sub(at)),
            cache: found.seen.cache.sum(now_ms),
            trouble: found.seen.trouble,
            lacks: (found.seen.lacks.as_ref())
                .map(|(serves, at)| (serves.clone(), now_ms.saturating_sub(*at) / 1_000)),
        })
    }
}
