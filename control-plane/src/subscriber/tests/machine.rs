//! The state machine against written-out sequences, and against a simulated engine and network.

use std::collections::VecDeque;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::machine::{FRUITLESS_REPLAYS_MAX, Input, Loss, Machine, Output, Position, digest};

/// A batch of a given life of the engine.
fn payload(life: u64, seq: u64) -> Bytes {
    Bytes::from(format!("{life}/{seq}"))
}

fn live(life: u64, seq: u64) -> Input {
    Input::Live { seq, payload: payload(life, seq) }
}

fn replayed(life: u64, seq: u64) -> Input {
    Input::Replayed { seq, payload: payload(life, seq) }
}

fn position(life: u64, seq: u64) -> Position {
    Position { seq, digest: digest(&payload(life, seq)) }
}

/// One line per step: what it led to. `a5` applied 5, `r3` replay from 3, `!restart` reset.
fn trace(machine: &mut Machine, inputs: impl IntoIterator<Item = Input>) -> Vec<String> {
    inputs
        .into_iter()
        .map(|input| {
            let mut out = Vec::new();
            machine.step(input, &mut out);
            let words: Vec<_> = out
                .into_iter()
                .map(|output| match output {
                    Output::Apply { seq, .. } => format!("a{seq}"),
                    Output::Reset(loss) => format!("!{}", loss.as_str()),
                    Output::Replay { from, .. } => format!("r{from}"),
                    Output::Reconnect => "reconnect".into(),
                    Output::Synced(true) => "synced".into(),
                    Output::Synced(false) => "lost".into(),
                })
                .collect();
            words.join(" ")
        })
        .collect()
}

fn check(machine: &mut Machine, steps: &[(Input, &str)]) {
    let got = trace(machine, steps.iter().map(|(input, _)| input.clone()));
    for (number, ((input, expected), got)) in steps.iter().zip(&got).enumerate() {
        assert_eq!(got, expected, "step {number}: {input:?}\nall: {got:?}");
    }
}

#[test]
fn late_joiner_replays_from_the_start_and_takes_nothing_twice() {
    let mut m = Machine::new(true, None);
    check(
        &mut m,
        &[
            (Input::Connected, "r0"),
            (live(1, 3), ""),
            (live(1, 4), ""),
            (replayed(1, 0), "a0"),
            (replayed(1, 1), "a1"),
            (replayed(1, 2), "a2"),
            (replayed(1, 3), "a3"),
            (Input::ReplayEnd, "a4 synced"),
            (live(1, 5), "a5"),
        ],
    );
    assert_eq!(m.last(), Some(position(1, 5)));
}

#[test]
fn a_replay_that_overtakes_live_batches() {
    let mut m = Machine::new(true, None);
    let steps = [
        (Input::Connected, "r0"),
        (replayed(1, 0), "a0"),
        (replayed(1, 1), "a1"),
        (Input::ReplayEnd, "synced"),
        // Published before the end of the replay, taken from the socket after it.
        (live(1, 0), ""),
        (live(1, 1), ""),
        (live(1, 2), "a2"),
    ];
    check(&mut m, &steps);
}

#[test]
fn an_engine_that_has_published_nothing_is_known() {
    let mut m = Machine::new(true, None);
    check(&mut m, &[(Input::Connected, "r0"), (Input::ReplayEnd, "synced"), (live(1, 0), "a0")]);
}

fn synced_at(can_replay: bool, last: u64) -> Machine {
    let mut m = Machine::new(can_replay, None);
    let mut out = Vec::new();
    m.step(Input::Connected, &mut out);
    m.step(Input::ReplayEnd, &mut out);
    for seq in 0..=last {
        m.step(live(1, seq), &mut out);
    }
    assert_eq!(m.last(), Some(position(1, last)));
    m
}

#[test]
fn a_gap_is_filled_before_what_follows_it() {
    let mut m = synced_at(true, 5);
    let steps = [
        (live(1, 9), "lost r5"),
        (replayed(1, 5), ""),
        (replayed(1, 6), "a6"),
        (live(1, 10), ""),
        (replayed(1, 7), "a7"),
        (replayed(1, 8), "a8"),
        (replayed(1, 9), "a9"),
        (Input::ReplayEnd, "a10 synced"),
    ];
    check(&mut m, &steps);
}

#[test]
fn a_gap_without_replay_drops_and_goes_on() {
    let mut m = synced_at(false, 5);
    check(&mut m, &[(live(1, 9), "lost !no_replay a9 synced"), (live(1, 10), "a10")]);
}

#[test]
fn a_ring_that_no_longer_reaches_back() {
    let mut m = synced_at(true, 5);
    let steps = [
        (live(1, 900), "lost r5"),
        (replayed(1, 800), "!history_lost a800"),
        (replayed(1, 801), "a801"),
    ];
    check(&mut m, &steps);
}

#[test]
fn restart_seen_by_a_number_going_back() {
    for (can_replay, expected) in [(true, "lost !restart r0"), (false, "lost !restart a0 synced")] {
        let mut m = synced_at(can_replay, 1000);
        check(&mut m, &[(live(2, 0), expected)]);
    }
}

#[test]
fn restart_seen_by_a_replay_that_is_empty() {
    let mut m = synced_at(true, 1000);
    let steps = [
        (Input::Disconnected, "lost"),
        (Input::Connected, "r1000"),
        (live(2, 3), ""),
        (Input::ReplayEnd, "!restart r0"),
        (replayed(2, 0), "a0"),
        (replayed(2, 1), "a1"),
        (replayed(2, 2), "a2"),
        (replayed(2, 3), "a3"),
        (Input::ReplayEnd, "synced"),
        (live(2, 4), "a4"),
    ];
    check(&mut m, &steps);
}

#[test]
fn restart_whose_numbers_have_passed_ours_is_seen_by_the_digest() {
    let mut m = synced_at(true, 10);
    let steps = [
        (Input::Disconnected, "lost"),
        (Input::Connected, "r10"),
        (replayed(2, 10), "!restart r0"),
        (replayed(2, 0), "a0"),
    ];
    check(&mut m, &steps);
}

#[test]
fn a_lost_connection_without_replay_is_a_loss() {
    let mut m = synced_at(false, 5);
    // 6 would follow, but a restarted engine may have a batch 6 too.
    let steps = [(Input::Disconnected, "lost"), (Input::Connected, "!no_replay"), (live(2, 6), "a6 synced")];
    check(&mut m, &steps);
}

#[test]
fn a_snapshot_goes_on_where_it_ended_if_the_engine_is_the_same() {
    let mut m = Machine::new(true, Some(position(1, 7)));
    check(&mut m, &[(Input::Connected, "r7"), (replayed(1, 7), ""), (replayed(1, 8), "a8"), (Input::ReplayEnd, "synced")]);
    let mut m = Machine::new(true, Some(position(1, 7)));
    check(&mut m, &[(Input::Connected, "r7"), (replayed(2, 7), "!restart r0")]);
    let mut m = Machine::new(true, Some(position(1, 7)));
    check(&mut m, &[(Input::Connected, "r7"), (Input::ReplayEnd, "!restart r0")]);
    let mut m = Machine::new(false, Some(position(1, 7)));
    check(&mut m, &[(Input::Connected, "!no_replay")]);
}

#[test]
fn a_replay_that_breaks_off_goes_on_where_it_ended() {
    let mut m = Machine::new(true, None);
    let steps = [
        (Input::Connected, "r0"),
        (replayed(1, 0), "a0"),
        (replayed(1, 1), "a1"),
        (Input::ReplayFailed, "r1"),
        (replayed(1, 1), ""),
        (replayed(1, 2), "a2"),
        // A hole inside: the engine's queue ran over.
        (replayed(1, 4), "r2"),
        (replayed(1, 2), ""),
        (replayed(1, 3), "a3"),
        (Input::ReplayEnd, "synced"),
    ];
    check(&mut m, &steps);
}

#[test]
fn a_replay_endpoint_that_is_dead_is_given_up() {
    let mut m = synced_at(true, 5);
    let mut steps = vec![(live(1, 9), "lost r5")];
    steps.extend((1..FRUITLESS_REPLAYS_MAX).map(|_| (Input::ReplayFailed, "r5")));
    steps.push((Input::ReplayFailed, "!replay_failed a9 synced"));
    steps.push((live(1, 10), "a10"));
    check(&mut m, &steps);
}

#[test]
fn silence_is_checked_and_a_dead_connection_found() {
    let mut m = synced_at(true, 5);
    check(&mut m, &[(Input::Idle, "r5"), (replayed(1, 5), ""), (Input::ReplayEnd, "")]);
    check(&mut m, &[(Input::Idle, "r5"), (live(1, 6), ""), (replayed(1, 5), ""), (Input::ReplayEnd, "a6")]);
    // A replay endpoint that is dead does no harm as long as nothing is missing.
    check(&mut m, &[(Input::Idle, "r6"), (live(1, 7), ""), (Input::ReplayFailed, "a7")]);
    check(&mut m, &[(Input::Idle, "r7"), (replayed(1, 7), ""), (replayed(1, 8), "a8"), (Input::ReplayEnd, "reconnect")]);
}

#[test]
fn live_batches_let_go_are_replayed() {
    let mut m = synced_at(true, 5);
    check(&mut m, &[(Input::Overflow, "lost r5"), (replayed(1, 5), ""), (replayed(1, 6), "a6")]);
    // Let go again while the replay runs: once more.
    check(&mut m, &[(Input::Overflow, ""), (Input::ReplayEnd, "r6"), (replayed(1, 6), ""), (Input::ReplayEnd, "synced")]);
    let mut m = synced_at(false, 5);
    check(&mut m, &[(Input::Overflow, "lost !no_replay"), (live(1, 8), "a8 synced")]);
}

// ---- against a simulated engine and network ----

/// What can happen in the simulation.
#[derive(Clone, Debug)]
enum Act {
    /// The engine publishes some batches.
    Publish(u8),
    /// The network or a queue loses the next batches.
    Lose(u8),
    /// The machine takes some of what the network has for it.
    Deliver(u8),
    /// The connection breaks and comes back.
    Blip,
    /// The engine starts anew and publishes some batches before anyone is connected.
    Restart(u8),
    /// The reader's queue runs over.
    Overflow,
    /// Nothing was heard for a while.
    Idle,
    /// The replay socket sends some messages.
    ServeReplay(u8),
    /// The replay socket loses the rest of its answer.
    BreakReplay,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (1u8..6).prop_map(Act::Publish),
        2 => (1u8..4).prop_map(Act::Lose),
        8 => (1u8..9).prop_map(Act::Deliver),
        1 => Just(Act::Blip),
        1 => (0u8..20).prop_map(Act::Restart),
        1 => Just(Act::Overflow),
        1 => Just(Act::Idle),
        8 => (1u8..12).prop_map(Act::ServeReplay),
        1 => Just(Act::BreakReplay),
    ]
}

/// Engine, network and a naive model of what is known.
struct World {
    machine: Machine,
    can_replay: bool,
    ring: usize,
    life: u64,
    /// Batches of this life published so far.
    published: u64,
    /// On the way to the machine. `None`: the connection broke here and stood again.
    wire: VecDeque<Option<(u64, u64)>>,
    /// What the replay socket still has to send, then END.
    answer: Option<VecDeque<(u64, u64)>>,
    /// What is known: applied since the last reset.
    known: Vec<(u64, u64)>,
    synced: bool,
    ever_reset: Vec<Loss>,
}

impl World {
    fn new(can_replay: bool, ring: usize) -> Self {
        let mut world = Self {
            machine: Machine::new(can_replay, None),
            can_replay,
            ring,
            life: 1,
            published: 0,
            wire: VecDeque::new(),
            answer: None,
            known: Vec::new(),
            synced: false,
            ever_reset: Vec::new(),
        };
        world.step(Input::Connected);
        world
    }

    fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.machine.step(input, &mut out);
        for output in out {
            match output {
                Output::Apply { seq, payload, .. } => {
                    let text = std::str::from_utf8(&payload).unwrap();
                    let (life, number) = text.split_once('/').unwrap();
                    let batch = (life.parse().unwrap(), number.parse().unwrap());
                    assert_eq!(seq, batch.1);
                    if let Some(&(life, last)) = self.known.last() {
                        assert_eq!(batch, (life, last + 1), "not the next of the same life");
                    }
                    self.known.push(batch);
                }
                Output::Reset(loss) => {
                    self.known.clear();
                    self.ever_reset.push(loss);
                }
                Output::Replay { from, .. } => {
                    assert!(self.can_replay);
                    let oldest = self.published.saturating_sub(self.ring as u64);
                    self.answer = Some((from.max(oldest)..self.published).map(|seq| (self.life, seq)).collect());
                }
                Output::Reconnect => self.blip(),
                Output::Synced(synced) => self.synced = synced,
            }
        }
        assert_eq!(self.machine.last().map(|last| last.seq), self.known.last().map(|known| known.1));
    }

    fn publish(&mut self, count: u64, heard: bool) {
        for _ in 0..count {
            if heard {
                self.wire.push_back(Some((self.life, self.published)));
            }
            self.published += 1;
        }
    }

    /// What is on the wire still arrives before the break is seen.
    fn blip(&mut self) {
        self.wire.push_back(None);
    }

    fn deliver(&mut self, count: u64) {
        for _ in 0..count {
            match self.wire.pop_front() {
                Some(Some((life, seq))) => self.step(live(life, seq)),
                Some(None) => {
                    self.answer = None;
                    self.step(Input::Disconnected);
                    self.step(Input::Connected);
                }
                None => return,
            }
        }
    }

    fn serve(&mut self, count: u64) {
        for _ in 0..count {
            let Some(answer) = &mut self.answer else { return };
            match answer.pop_front() {
                Some((life, seq)) => self.step(replayed(life, seq)),
                None => {
                    self.answer = None;
                    self.step(Input::ReplayEnd);
                }
            }
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Publish(count) => self.publish(count.into(), true),
            Act::Lose(count) => self.publish(count.into(), false),
            Act::Deliver(count) => self.deliver(count.into()),
            Act::Blip => self.blip(),
            Act::Restart(count) => {
                // Starting takes longer than reading what the last life sent.
                self.deliver(u64::MAX);
                self.answer = None;
                self.step(Input::Disconnected);
                self.life += 1;
                self.published = 0;
                self.publish(count.into(), false);
                self.step(Input::Connected);
            }
            Act::Overflow => {
                // The queue lost what was in it, up to the next break of the connection.
                while matches!(self.wire.front(), Some(Some(_))) {
                    self.wire.pop_front();
                }
                self.step(Input::Overflow);
            }
            Act::Idle => {
                if self.wire.is_empty() {
                    self.step(Input::Idle);
                }
            }
            Act::ServeReplay(count) => self.serve(count.into()),
            Act::BreakReplay => {
                if self.answer.take().is_some() {
                    self.step(Input::ReplayFailed);
                }
            }
        }
    }

    /// Lets everything arrive.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.wire.is_empty() && self.answer.is_none() {
                return;
            }
            self.deliver(1_000);
            self.serve(1_000);
        }
        panic!("it never settles");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens, what is known is a run of one life; once things settle it is the newest
    /// run, and complete as far as the engine's memory goes.
    #[test]
    fn known_is_always_a_run_of_one_life_and_converges(
        acts in prop::collection::vec(act(), 1..120),
        can_replay in any::<bool>(),
        ring in 1usize..40,
    ) {
        let mut world = World::new(can_replay, ring);
        for act in &acts {
            world.act(act);
        }
        // A last word from the engine, without trouble.
        world.publish(1, true);
        world.settle();
        if can_replay {
            world.step(Input::Idle);
            world.settle();
        }
        let newest = (world.life, world.published - 1);
        prop_assert_eq!(world.known.last().copied(), Some(newest), "resets {:?}", world.ever_reset);
        prop_assert!(world.synced);
        if can_replay && world.published as usize <= ring {
            prop_assert_eq!(world.known.len() as u64, world.published, "all of it was there to be had");
        }
    }

    /// Without restarts and with a ring that forgets nothing, nothing is ever dropped.
    #[test]
    fn nothing_is_dropped_without_need(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = World::new(true, 1 << 20);
        for act in acts.iter().filter(|act| !matches!(act, Act::Restart(_) | Act::BreakReplay)) {
            world.act(act);
        }
        world.publish(1, true);
        world.settle();
        prop_assert_eq!(&world.ever_reset, &Vec::new());
        prop_assert_eq!(world.known.len() as u64, world.published);
    }
}
