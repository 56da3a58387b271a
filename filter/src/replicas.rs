//! How much of a replica's work comes from elsewhere.
//!
//! What an engine says of its load is a fifth of a second old, and counts our own requests too. Those
//! that were ours lately are taken off: what is left comes from elsewhere, and is added to what is ours
//! now. And a request that has just come waits for the engine's next step, if not for long, so that only
//! a queue that lasts is one. Without all that a replica that has just finished a burst, or just a
//! request, would look busy still.

use std::rc::Rc;

use hashbrown::HashMap;
use prefix_picker_core::sync::ReplicaHead;

use crate::pools::View;

/// What was so long ago, and up to twice as long, was lately, in microseconds: what an engine says is
/// not older.
const LATELY_US: u64 = 250_000;
/// What it says for so long it has said twice, in microseconds.
const TWICE_US: u64 = 500_000;

#[derive(Debug, Default)]
struct Known {
    /// What it said last: requests that run, and that wait.
    said: (u32, u32),
    /// Since when it says so.
    said_us: u64,
    /// How many waited by what it said before.
    waited: u32,
    /// Of what it said last, others' than this Envoy's.
    foreign: u32,
    ours: Lately,
}

/// The most of this Envoy's requests that a replica had lately.
#[derive(Debug, Default)]
struct Lately {
    since_us: u64,
    now: u32,
    before: u32,
}

impl Lately {
    fn note(&mut self, ours: u32, now_us: u64) {
        let age_us = now_us.saturating_sub(self.since_us);
        if age_us >= LATELY_US {
            self.before = if age_us < 2 * LATELY_US { self.now } else { 0 };
            self.now = 0;
            self.since_us = now_us;
        }
        self.now = self.now.max(ours);
    }

    fn most(&self) -> u32 {
        self.now.max(self.before)
    }
}

impl Known {
    fn waiting(&self, now_us: u64) -> u32 {
        let waiting = self.said.1;
        if now_us.saturating_sub(self.said_us) < TWICE_US {
            waiting.min(self.waited)
        } else {
            waiting
        }
    }
}

/// All replicas of the last head, by name.
#[derive(Debug, Default)]
pub struct Replicas {
    known: HashMap<String, Known>,
    view: Option<Rc<View>>,
    now_us: u64,
}

impl Replicas {
    /// Takes notice of what replicas say now. `ours`: requests that one has from this Envoy now.
    pub fn observe(&mut self, view: &Rc<View>, now_us: u64, ours: impl Fn(&ReplicaHead) -> u32) {
        self.now_us = now_us;
        let last = self.view.as_ref();
        if last.is_some_and(|last| Rc::ptr_eq(last, view)) {
            return;
        }
        self.view = Some(Rc::clone(view));
        let replicas = view.head.replicas.iter();
        let there = replicas.filter(|r| r.state.is_pickable());
        let mut before = std::mem::take(&mut self.known);
        for replica in there {
            let mut known = before.remove(&*replica.name()).unwrap_or_default();
            known.ours.note(ours(replica), now_us);
            let says = (replica.running, replica.waiting);
            if known.said != says {
                known.waited = known.said.1;
                (known.said, known.said_us) = (says, now_us);
                let all = replica.running.saturating_add(replica.waiting);
                known.foreign = all.saturating_sub(known.ours.most());
            }
            self.known.insert(replica.name().into_owned(), known);
        }
    }

    /// Requests that a replica has from elsewhere, as far as it said.
    #[must_use]
    pub fn foreign(&self, name: &str) -> u32 {
        self.known.get(name).map_or(0, |known| known.foreign)
    }

    /// This Envoy has so many requests with a replica now.
    pub fn note_ours(&mut self, name: &str, ours: u32, now_us: u64) {
        if let Some(known) = self.known.get_mut(name) {
            known.ours.note(ours, now_us);
        }
    }

    /// Requests that wait in a replica's queue, as far as it said so twice.
    #[must_use]
    pub fn waiting(&self, name: &str) -> u32 {
        let known = self.known.get(name);
        known.map_or(0, |known| known.waiting(self.now_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools;
    use crate::testing::fleet::Fleet;

    const SECOND: u64 = 1_000_000;
    const FIRST: &str = "10.0.0.1:8000";

    fn view(fleet: &Fleet) -> Rc<View> {
        let head = fleet.head.encode().unwrap();
        Rc::new(View::decode(&pools::encode(None, &head)).unwrap())
    }

    #[test]
    fn what_comes_from_elsewhere_is_what_was_not_ours_when_it_was_said() {
        let mut replicas = Replicas::default();
        let mut fleet = Fleet::new(1, 1, 2);
        let mut now_us = 0;
        let mut say = |replicas: &mut Replicas, says: (u32, u32), ours: u32| {
            now_us += SECOND;
            let first = &mut fleet.head.replicas[0];
            (first.running, first.waiting) = says;
            replicas.observe(&view(&fleet), now_us, |_| ours);
            replicas.foreign(FIRST)
        };
        assert_eq!(say(&mut replicas, (0, 0), 0), 0);
        assert_eq!(say(&mut replicas, (3, 2), 5), 0);
        // Nothing new: ours ended since, and that is no reason to take them for others'.
        assert_eq!(say(&mut replicas, (3, 2), 0), 0);
        assert_eq!(say(&mut replicas, (7, 1), 2), 6);
        assert_eq!(say(&mut replicas, (1, 0), 9), 0);
    }

    #[test]
    fn what_was_ours_lately_is_not_taken_for_others() {
        let mut replicas = Replicas::default();
        let mut fleet = Fleet::new(1, 1, 2);
        replicas.observe(&view(&fleet), 0, |_| 0);
        replicas.note_ours(FIRST, 2, 60_000);
        // Over by the time that it is told.
        fleet.head.replicas[0].running = 2;
        replicas.observe(&view(&fleet), 200_000, |_| 0);
        assert_eq!(replicas.foreign(FIRST), 0);
        // Told again long after: others'.
        fleet.head.replicas[0].running = 3;
        replicas.observe(&view(&fleet), 900_000, |_| 0);
        assert_eq!(replicas.foreign(FIRST), 3);
    }

    #[test]
    fn a_queue_is_one_that_lasts() {
        let mut replicas = Replicas::default();
        let mut fleet = Fleet::new(1, 1, 2);
        let mut say = |replicas: &mut Replicas, waiting: u32, at_us: u64| {
            fleet.head.replicas[0].waiting = waiting;
            replicas.observe(&view(&fleet), at_us, |_| 0);
            replicas.waiting(FIRST)
        };
        assert_eq!(say(&mut replicas, 3, SECOND), 0);
        assert_eq!(say(&mut replicas, 0, SECOND + 200_000), 0);
        assert_eq!(say(&mut replicas, 5, SECOND + 400_000), 0);
        assert_eq!(say(&mut replicas, 4, SECOND + 600_000), 4);
        assert_eq!(say(&mut replicas, 9, SECOND + 800_000), 4);
        assert_eq!(say(&mut replicas, 9, SECOND + 1_300_000), 9);
        assert_eq!(say(&mut replicas, 0, SECOND + 1_500_000), 0);
        assert_eq!(say(&mut replicas, 1, SECOND + 1_700_000), 0);
    }
}
