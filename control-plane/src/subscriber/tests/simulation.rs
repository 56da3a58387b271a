//! The state machine against a simulated engine and network.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::machine::{FRUITLESS_REPLAYS_MAX, Machine};
use super::super::signals::{Input, Loss, Output};
use super::machine::{live, replayed};

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
    /// The replay that runs is the last of those that may bring nothing.
    is_last_try: bool,
    /// That one failed: what this life published before is not asked for any more.
    gave_up: bool,
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
            is_last_try: false,
            gave_up: false,
        };
        world.step(Input::Connected);
        world
    }

    fn step(&mut self, input: Input) {
        let fails = matches!(input, Input::ReplayFailed | Input::Overflow);
        self.gave_up |= fails && self.is_last_try;
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
                Output::Replay { from, fruitless } => {
                    assert!(self.can_replay);
                    self.is_last_try = fruitless + 1 == FRUITLESS_REPLAYS_MAX;
                    let oldest = self.published.saturating_sub(self.ring as u64);
                    self.answer = Some(
                        (from.max(oldest)..self.published)
                            .map(|seq| (self.life, seq))
                            .collect(),
                    );
                }
                Output::Reconnect => self.blip(),
                Output::Synced(synced) => self.synced = synced,
                Output::PassedBy(_) => {}
            }
        }
        assert_eq!(
            self.machine.last().map(|last| last.seq),
            self.known.last().map(|known| known.1)
        );
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
            let Some(answer) = &mut self.answer else {
                return;
            };
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
                self.gave_up = false;
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
        if can_replay && !world.gave_up && world.published as usize <= ring {
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
