//! What goes into the state machine and what comes out.

use bytes::Bytes;
use prefix_picker_core::checksum::checksum;

/// A batch applied: its number and what its payload was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The batch's number.
    pub seq: u64,
    /// [`digest`] of its payload.
    pub digest: u64,
}

/// What a payload is recognised by.
#[must_use]
pub fn digest(payload: &[u8]) -> u64 {
    checksum(&[payload])
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The subscription stands; what is published from now on will be heard.
    Connected,
    /// The subscription is gone; what is published from now on is not heard.
    Disconnected,
    /// A batch was published.
    Live {
        /// Its number.
        seq: u64,
        /// Its bytes.
        payload: Bytes,
    },
    /// Live batches were heard but could not be kept.
    Overflow,
    /// Nothing was heard for a while.
    Idle,
    /// A batch of the replay asked for last.
    Replayed {
        /// Its number.
        seq: u64,
        /// Its bytes.
        payload: Bytes,
    },
    /// The replay asked for last is over.
    ReplayEnd,
    /// The replay asked for last broke off: no answer, or no more of it.
    ReplayFailed,
}

/// What to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The next batch.
    Apply {
        /// Its number.
        seq: u64,
        /// Its bytes.
        payload: Bytes,
        /// It was heard live rather than replayed.
        live: bool,
    },
    /// Forget all that is known of the replica.
    Reset(Loss),
    /// Ask for all batches from this number on. Replaces any replay under way.
    Replay {
        /// The first batch wanted.
        from: u64,
        /// How many replays in a row brought nothing; wait longer the more.
        fruitless: u32,
    },
    /// Connect anew: this connection does not bring what is published.
    Reconnect,
    /// Live batches pass by though the connection stands (`true`), or are heard again.
    PassedBy(bool),
    /// What is known now does (`true`) or does not follow the engine.
    Synced(bool),
}

/// Why all that was known of a replica was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The engine has restarted.
    Restart,
    /// Batches are missing and the engine does not have them any more.
    HistoryLost,
    /// Batches may be missing, and there is no replay endpoint to ask.
    NoReplay,
    /// The replay endpoint does not answer.
    ReplayFailed,
    /// A batch could not be read at all: what it removed is not known.
    Undecodable,
    /// A removal in a batch could not be read: which block is gone is not known.
    LostRemovals,
}

impl Loss {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::Restart,
        Self::HistoryLost,
        Self::NoReplay,
        Self::ReplayFailed,
        Self::Undecodable,
        Self::LostRemovals,
    ];

    /// Metric label and log field.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::HistoryLost => "history_lost",
            Self::NoReplay => "no_replay",
            Self::ReplayFailed => "replay_failed",
            Self::Undecodable => "undecodable",
            Self::LostRemovals => "lost_removals",
        }
    }
}
