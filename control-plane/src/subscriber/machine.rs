//! One replica's event stream as a pure state machine: what to apply, what to ask the engine for
//! again, when to give up what is known. No I/O, no clock.
//!
//! The engine numbers its batches 0, 1, 2, ... and starts at 0 again when it restarts; nothing else
//! on the wire tells one life of an engine from the next. Hence:
//!
//! - Batches are applied in order, each once. A hole is filled by a replay from the last batch
//!   applied, never from the one after: the replay must begin with that batch, byte for byte. If it
//!   does not, the engine has restarted and its new numbers have passed ours.
//! - On one connection numbers only grow. One that does not is a restart.
//! - What cannot be proved is dropped: after a [`Output::Reset`] nothing that was known counts.
//!
//! Invariant: between two resets the applied numbers are consecutive, and all of them come from one
//! life of the engine. (It rests on one thing: an engine takes longer to start than we take to read
//! what its last life has sent. Should it not, the next connection's replay shows the difference.)

use std::collections::VecDeque;

use bytes::Bytes;

use super::hearing::Hearing;
use super::signals::{Input, Loss, Output, Position, digest};

/// Most batches kept while a replay runs; more are let go and replayed later.
const BUFFERED_BATCHES_MAX: usize = 20_000;
/// Most bytes kept while a replay runs.
const BUFFERED_BYTES_MAX: usize = 64 << 20;
/// Digests of recent batches, to tell a batch heard twice from one of another life.
const DIGESTS_KEPT: usize = 256;
/// Replays in a row without a single new batch after which history is given up.
pub const FRUITLESS_REPLAYS_MAX: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not subscribed.
    Offline,
    /// Asked for a replay from this number, with what it has brought so far.
    Replaying {
        from: u64,
        first_seen: bool,
        brought: bool,
    },
    /// Applying what is published.
    Live,
}

/// See the module's text.
#[derive(Debug)]
pub struct Machine {
    can_replay: bool,
    phase: Phase,
    last: Option<Position>,
    /// The highest number heard on this connection.
    heard: Option<u64>,
    buffer: VecDeque<(u64, Bytes)>,
    buffered_bytes: usize,
    /// Live batches were let go since the last replay was asked for.
    overflowed: bool,
    /// This replay was asked for because nothing was heard.
    checking_idle: bool,
    fruitless: u32,
    /// History cannot be had: what comes next is taken, whatever its number. Claims are then smaller
    /// than the truth, not wrong.
    given_up: bool,
    digests: VecDeque<Position>,
    synced: bool,
    hearing: Hearing,
}

impl Machine {
    /// A machine that starts with nothing known, or with what a snapshot says.
    #[must_use]
    pub fn new(can_replay: bool, last: Option<Position>) -> Self {
        Self {
            can_replay,
            phase: Phase::Offline,
            last,
            heard: None,
            buffer: VecDeque::new(),
            buffered_bytes: 0,
            overflowed: false,
            checking_idle: false,
            fruitless: 0,
            given_up: false,
            digests: last.into_iter().collect(),
            synced: false,
            hearing: Hearing::default(),
        }
    }

    /// The last batch applied since the last reset.
    #[must_use]
    pub fn last(&self) -> Option<Position> {
        self.last
    }

    /// Takes one input; what to do is appended to `out`.
    pub fn step(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Connected => self.connected(out),
            Input::Disconnected => {
                self.phase = Phase::Offline;
                self.clear_buffer();
                self.heard = None;
                self.set_synced(false, out);
            }
            Input::Live { seq, payload } => self.live(seq, payload, out),
            Input::Overflow => self.overflow(out),
            Input::Idle => {
                if self.phase == Phase::Live && self.can_replay {
                    self.ask(out);
                    self.checking_idle = true;
                }
            }
            Input::Replayed { seq, payload } => self.replayed(seq, payload, out),
            Input::ReplayEnd => self.replay_ended(out),
            Input::ReplayFailed => self.replay_failed(out),
        }
    }

    fn connected(&mut self, out: &mut Vec<Output>) {
        self.clear_buffer();
        self.heard = None;
        self.fruitless = 0;
        self.given_up = false;
        if self.can_replay {
            self.ask(out);
            return;
        }
        // What was published while nobody listened is lost, and it may even be another life.
        if self.last.is_some() {
            self.reset(Loss::NoReplay, out);
        }
        self.phase = Phase::Live;
    }

    /// Asks for a replay that begins with the last batch applied, which proves the engine's life.
    fn ask(&mut self, out: &mut Vec<Output>) {
        let from = self.last.map_or(0, |last| last.seq);
        self.phase = Phase::Replaying {
            from,
            first_seen: false,
            brought: false,
        };
        self.overflowed = false;
        self.checking_idle = false;
        out.push(Output::Replay {
            from,
            fruitless: self.fruitless,
        });
    }

    fn live(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Output>) {
        if self.phase == Phase::Offline {
            return;
        }
        if self.hearing.heard() {
            out.push(Output::PassedBy(false));
        }
        // One connection is one life, and numbers grow: this is another life behind the same
        // connection (a proxy).
        if self.heard.is_some_and(|heard| seq <= heard) {
            self.restarted(Some((seq, payload)), out);
            return;
        }
        self.heard = Some(seq);
        match self.phase {
            Phase::Replaying { .. } => self.keep(seq, payload),
            _ => self.take(seq, payload, out),
        }
    }

    /// A live batch while no replay runs.
    fn take(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Output>) {
        match self.last {
            None if seq == 0 || !self.can_replay || self.given_up => {
                self.apply(seq, payload, true, out)
            }
            None => self.fill(seq, payload, out),
            Some(last) if last.seq.checked_add(1) == Some(seq) => {
                self.apply(seq, payload, true, out)
            }
            Some(last) if seq <= last.seq => {
                if !self.is_known(seq, &payload) {
                    self.restarted(Some((seq, payload)), out);
                }
            }
            Some(_) if self.can_replay => self.fill(seq, payload, out),
            Some(_) => {
                self.reset(Loss::NoReplay, out);
                self.apply(seq, payload, true, out);
            }
        }
    }

    /// Asks for what is missing before a batch.
    fn fill(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Output>) {
        self.set_synced(false, out);
        self.keep(seq, payload);
        self.ask(out);
    }

    fn restarted(&mut self, first: Option<(u64, Bytes)>, out: &mut Vec<Output>) {
        self.reset(Loss::Restart, out);
        self.clear_buffer();
        self.heard = first.as_ref().map(|(seq, _)| *seq);
        self.fruitless = 0;
        if self.can_replay {
            if let Some((seq, payload)) = first {
                self.keep(seq, payload);
            }
            self.ask(out);
        } else if let Some((seq, payload)) = first {
            self.apply(seq, payload, true, out);
        }
    }

    fn overflow(&mut self, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Offline => {}
            Phase::Replaying { .. } => {
                self.clear_buffer();
                self.overflowed = true;
            }
            Phase::Live if self.can_replay => {
                self.set_synced(false, out);
                self.ask(out);
            }
            Phase::Live => self.reset(Loss::NoReplay, out),
        }
    }

    fn replayed(&mut self, seq: u64, payload: Bytes, out: &mut Vec<Output>) {
        let Phase::Replaying {
            from, first_seen, ..
        } = self.phase
        else {
            return;
        };
        if !first_seen {
            if seq < from {
                return; // older than asked for: harmless
            }
            self.phase = Phase::Replaying {
                from,
                first_seen: true,
                brought: false,
            };
            match self.last {
                Some(last) if seq == last.seq && digest(&payload) == last.digest => return,
                Some(last) if seq == last.seq => return self.restarted_in_replay(out),
                Some(_) => {
                    // The ring no longer reaches back to what was applied last.
                    self.reset(Loss::HistoryLost, out);
                    self.mark_brought();
                    return self.apply(seq, payload, false, out);
                }
                // From the start, or from where the ring starts.
                None => {
                    self.mark_brought();
                    return self.apply(seq, payload, false, out);
                }
            }
        }
        match self.last {
            Some(last) if last.seq.checked_add(1) == Some(seq) => {
                self.mark_brought();
                self.apply(seq, payload, false, out);
            }
            // Said already; harmless.
            Some(last) if seq <= last.seq && self.is_known(seq, &payload) => {}
            // A hole inside a replay: the engine's queue ran over. What came so far is good.
            _ => self.replay_failed(out),
        }
    }

    fn mark_brought(&mut self) {
        if let Phase::Replaying { brought, .. } = &mut self.phase {
            *brought = true;
        }
    }

    fn restarted_in_replay(&mut self, out: &mut Vec<Output>) {
        self.reset(Loss::Restart, out);
        self.fruitless = 0;
        self.ask(out);
    }

    fn replay_ended(&mut self, out: &mut Vec<Output>) {
        let Phase::Replaying {
            first_seen,
            brought,
            ..
        } = self.phase
        else {
            return;
        };
        if !first_seen && self.last.is_some() {
            // The engine has not even the batch applied last: it has restarted.
            return self.restarted_in_replay(out);
        }
        if brought && self.checking_idle {
            // The connection did not bring what the engine published.
            out.push(Output::Reconnect);
            if self.heard.is_none() && self.hearing.missed() {
                out.push(Output::PassedBy(true));
            }
        }
        if self.overflowed {
            return self.ask_again(brought, out);
        }
        let next = self.last.map_or(0, |last| last.seq.saturating_add(1));
        let newer = self.buffer.iter().find(|(seq, _)| *seq >= next);
        if newer.is_some_and(|(seq, _)| *seq != next) {
            // Heard, and what comes before it is not in the replay: it lost some.
            return self.ask_again(brought, out);
        }
        self.fruitless = 0;
        self.phase = Phase::Live;
        self.take_kept(out);
        if self.phase == Phase::Live {
            self.set_synced(true, out);
        }
    }

    fn replay_failed(&mut self, out: &mut Vec<Output>) {
        let Phase::Replaying { brought, .. } = self.phase else {
            return;
        };
        if self.checking_idle && !brought && !self.overflowed {
            // Nothing says that anything is missing.
            self.phase = Phase::Live;
            return self.take_kept(out);
        }
        self.ask_again(brought, out);
    }

    /// Another replay, unless too many in a row have brought nothing.
    fn ask_again(&mut self, brought: bool, out: &mut Vec<Output>) {
        self.fruitless = if brought { 0 } else { self.fruitless + 1 };
        if self.fruitless < FRUITLESS_REPLAYS_MAX {
            return self.ask(out);
        }
        self.give_up(out);
    }

    /// Goes on with what was heard, from nothing.
    fn give_up(&mut self, out: &mut Vec<Output>) {
        self.fruitless = 0;
        self.overflowed = false;
        if self.last.is_some() {
            self.reset(Loss::ReplayFailed, out);
        }
        self.given_up = true;
        self.phase = Phase::Live;
        self.take_kept(out);
    }

    /// Takes what was kept as if it were heard now, up to where a replay is needed.
    fn take_kept(&mut self, out: &mut Vec<Output>) {
        let mut kept = std::mem::take(&mut self.buffer);
        self.buffered_bytes = 0;
        while let Some((seq, payload)) = kept.pop_front() {
            self.take(seq, payload, out);
            if self.phase != Phase::Live {
                return self.put_back(kept);
            }
        }
    }

    fn apply(&mut self, seq: u64, payload: Bytes, live: bool, out: &mut Vec<Output>) {
        let position = Position {
            seq,
            digest: digest(&payload),
        };
        self.last = Some(position);
        self.given_up = false;
        if self.digests.len() >= DIGESTS_KEPT {
            self.digests.pop_front();
        }
        self.digests.push_back(position);
        out.push(Output::Apply { seq, payload, live });
        if self.phase == Phase::Live {
            self.set_synced(true, out);
        }
    }

    /// Was this very batch applied?
    fn is_known(&self, seq: u64, payload: &[u8]) -> bool {
        match self.digests.iter().find(|position| position.seq == seq) {
            Some(position) => position.digest == digest(payload),
            // Older than the digests kept: the replay overtook the live batches by more than that.
            None => self.digests.front().is_some_and(|oldest| seq < oldest.seq),
        }
    }

    fn keep(&mut self, seq: u64, payload: Bytes) {
        let too_many = self.buffer.len() >= BUFFERED_BATCHES_MAX;
        if too_many || self.buffered_bytes.saturating_add(payload.len()) > BUFFERED_BYTES_MAX {
            self.clear_buffer();
            self.overflowed = true;
            return;
        }
        self.buffered_bytes += payload.len();
        self.buffer.push_back((seq, payload));
    }

    /// `kept` goes before what was kept meanwhile.
    fn put_back(&mut self, mut kept: VecDeque<(u64, Bytes)>) {
        kept.append(&mut self.buffer);
        self.buffered_bytes = kept.iter().map(|(_, payload)| payload.len()).sum();
        self.buffer = kept;
    }

    fn clear_buffer(&mut self) {
        self.buffer.clear();
        self.buffered_bytes = 0;
    }

    fn reset(&mut self, why: Loss, out: &mut Vec<Output>) {
        self.set_synced(false, out);
        self.last = None;
        self.digests.clear();
        out.push(Output::Reset(why));
    }

    fn set_synced(&mut self, synced: bool, out: &mut Vec<Output>) {
        if self.synced != synced {
            self.synced = synced;
            out.push(Output::Synced(synced));
        }
    }
}
