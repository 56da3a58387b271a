//! Follows the KV events of one replica: connects, keeps order, recovers what was missed.
//!
//! | part | what it does |
//! |---|---|
//! | [`machine`] | decides: pure, no I/O, no clock; [`signals`] are its inputs and outputs |
//! | `hearing` | notices that what is published passes by |
//! | [`live`] | drains the engine's PUB socket, whatever happens, so that the engine is never held up |
//! | [`replay`] | asks the engine's ROUTER socket for what was missed |
//!
//! [`run`] feeds both into the machine and carries out what it says. An engine that is not there yet
//! is no failure: it is tried again and again.
//!
//! Absent here: what the events mean ([`crate::index`]).

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

mod hearing;
pub mod live;
pub mod machine;
pub mod replay;
pub mod signals;

use live::{LiveEvent, LiveReader};
use machine::Machine;
use replay::ReplayEvent;
use signals::{Input, Output};
pub use signals::{Loss, Position};

/// Time without an event after which the engine is asked whether there were any.
const IDLE_CHECK: Duration = Duration::from_secs(30);
/// The same right after connecting: an event may fall between the replay and the moment the engine
/// heeds the subscription.
const FIRST_IDLE_CHECK: Duration = Duration::from_secs(1);
/// Pause before the second replay of a row that brings nothing; doubled for each further one.
const REPLAY_PAUSE: Duration = Duration::from_millis(100);

/// Where a replica's events come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The replica, for logs.
    pub name: String,
    /// Its PUB endpoint.
    pub events: String,
    /// Its replay endpoint.
    pub replay: Option<String>,
    /// Prefix of the topics to take.
    pub topic: String,
}

/// A batch whose payload could not be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

/// Who is told.
pub trait Sink: Send + 'static {
    /// The next batch. Its position is what a snapshot must remember with its effect.
    ///
    /// # Errors
    /// Where it could not be read; a reset follows.
    fn apply(&self, position: Position, payload: &Bytes, live: bool) -> Result<(), Undecodable>;
    /// Forget the replica's blocks.
    fn reset(&self, why: Loss);
    /// What is known follows the engine, or no longer does.
    fn synced(&self, synced: bool);
    /// The engine's live events do not come though the connection stands: only replays bring them. Or they do
    /// again.
    fn passed_by(&self, passed_by: bool);
    /// The event connection stands or is gone.
    fn connected(&self, connected: bool);
    /// A replay was asked for.
    fn replaying(&self, from: u64);
    /// Live events were heard but not kept.
    fn overflowed(&self);
}

/// Follows one replica until dropped.
pub async fn run(source: Source, resume: Option<Position>, sink: impl Sink) {
    let mut reader = LiveReader::spawn(source.events.clone(), source.topic.clone());
    let mut driver = Driver {
        machine: Machine::new(source.replay.is_some(), resume),
        source,
        sink,
        replay: None,
        outputs: Vec::new(),
    };
    // What a subscriber before this one said may be about another place.
    driver.sink.passed_by(false);
    let mut pause = IDLE_CHECK;
    let mut idle_at = Instant::now() + pause;
    loop {
        let input = tokio::select! {
            event = reader.next() => match event {
                None => return,
                Some(event) => driver.live_input(event),
            },
            event = next_replayed(&mut driver.replay) => driver.replay_input(event),
            () = tokio::time::sleep_until(idle_at) => Input::Idle,
        };
        match input {
            Input::Connected => pause = FIRST_IDLE_CHECK,
            Input::Idle => pause = IDLE_CHECK,
            _ => {}
        }
        idle_at = Instant::now() + pause;
        driver.machine.step(input, &mut driver.outputs);
        if driver.carry_out() {
            reader.reconnect();
        }
    }
}

struct Driver<S> {
    machine: Machine,
    source: Source,
    sink: S,
    replay: Option<ReplayTask>,
    outputs: Vec<Output>,
}

/// A replay under way; stopped when dropped.
struct ReplayTask {
    events: mpsc::Receiver<ReplayEvent>,
    task: JoinHandle<()>,
}

impl Drop for ReplayTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn next_replayed(replay: &mut Option<ReplayTask>) -> ReplayEvent {
    match replay {
        Some(replay) => replay.events.recv().await.unwrap_or(ReplayEvent::Failed),
        None => std::future::pending().await,
    }
}

impl<S: Sink> Driver<S> {
    fn live_input(&mut self, event: LiveEvent) -> Input {
        match event {
            LiveEvent::Connected => {
                tracing::info!(replica = %self.source.name, endpoint = %self.source.events, "event connection established");
                self.sink.connected(true);
                Input::Connected
            }
            LiveEvent::Disconnected => {
                tracing::warn!(replica = %self.source.name, endpoint = %self.source.events, "event connection lost");
                self.replay = None;
                self.sink.connected(false);
                Input::Disconnected
            }
            LiveEvent::Batch { seq, payload } => Input::Live { seq, payload },
            LiveEvent::Overflow => {
                tracing::warn!(replica = %self.source.name, "events came faster than they could be taken");
                self.sink.overflowed();
                Input::Overflow
            }
        }
    }

    fn replay_input(&mut self, event: ReplayEvent) -> Input {
        match event {
            ReplayEvent::Batch { seq, payload } => Input::Replayed { seq, payload },
            ReplayEvent::End => {
                self.replay = None;
                Input::ReplayEnd
            }
            ReplayEvent::Failed => {
                self.replay = None;
                tracing::debug!(replica = %self.source.name, "replay broke off");
                Input::ReplayFailed
            }
        }
    }

    /// Does what the machine said. True: the connection is to be made anew.
    fn carry_out(&mut self) -> bool {
        let mut reconnect = false;
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            match output {
                Output::Apply { seq, payload, live } => {
                    let position = Position {
                        seq,
                        digest: signals::digest(&payload),
                    };
                    if self.sink.apply(position, &payload, live).is_err() {
                        tracing::warn!(replica = %self.source.name, seq, "batch cannot be read");
                        // Order is not lost, so later batches still apply.
                        self.sink.reset(Loss::Undecodable);
                    }
                }
                Output::Reset(why) => {
                    tracing::warn!(replica = %self.source.name, why = why.as_str(), "dropped what was known of a replica");
                    self.sink.reset(why);
                }
                Output::Replay { from, fruitless } => self.start_replay(from, fruitless),
                Output::Reconnect => reconnect = true,
                Output::Synced(synced) => self.sink.synced(synced),
                Output::PassedBy(passed_by) => self.pass_by(passed_by),
            }
        }
        self.outputs = outputs;
        reconnect
    }

    fn pass_by(&self, passed_by: bool) {
        if passed_by {
            tracing::warn!(
                replica = %self.source.name, topic = self.source.topic,
                "the engine's live events do not come, only replays bring them: is `topic` one that it uses?"
            );
        }
        self.sink.passed_by(passed_by);
    }

    fn start_replay(&mut self, from: u64, fruitless: u32) {
        let Some(endpoint) = self.source.replay.clone() else {
            return;
        };
        self.sink.replaying(from);
        tracing::debug!(replica = %self.source.name, from, fruitless, "asking for a replay");
        let pause = if fruitless == 0 {
            Duration::ZERO
        } else {
            REPLAY_PAUSE * 2u32.saturating_pow(fruitless)
        };
        let (sender, events) = mpsc::channel(replay::QUEUED_BATCHES_MAX);
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            replay::read(&endpoint, from, sender).await;
        });
        self.replay = Some(ReplayTask { events, task });
    }
}

#[cfg(test)]
mod tests;
