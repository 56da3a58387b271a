//! Requests whose events may still be under way.
//!
//! A burst of siblings (one prompt, many continuations) finds the first one's blocks in the engine's
//! cache before the table can know of them. That is no error of the table, and must not look like
//! one. So each request notes the first block that the table did not have; one that misses the same
//! block on the same replica while the first one is on its way, or just after, is marked.
//!
//! Only the first one's time counts. Were each to begin a time of its own, a pool whose predictions
//! are always wrong would have an excuse for as long as it is busy.
//!
//! A fixed number of places, later notes over earlier ones: what is lost is only the mark.

use prefix_picker_core::ids::{BlockHash, ReplicaIndex};

/// Places; more than a VM has requests on their way.
const PLACES: usize = 1 << 12;
/// Events are there this long after a response began, in microseconds: several times what they take.
const SETTLED_US: u64 = 500_000;
/// Events are there this long after a request was sent, whenever it is answered, in microseconds.
const SENT_US: u64 = 15_000_000;
/// After this long a block may have come and gone: another request is a first one again.
const FORGOTTEN_US: u64 = 60_000_000;

/// The first block that the table did not have, on the replica that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sibling(u64);

impl Sibling {
    /// Of a block and a replica.
    #[must_use]
    pub fn of(block: BlockHash, replica: ReplicaIndex) -> Self {
        let replica = u64::from(replica.0) + 1;
        Self(block.0 ^ replica.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn place(self) -> usize {
        usize::try_from(self.0 % PLACES as u64).unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Note {
    sibling: u64,
    /// Until then, others are early.
    early_until_us: u64,
    forgotten_us: u64,
}

/// One VM's notes.
#[derive(Debug, Default)]
pub struct Settling {
    /// Made at the first note.
    places: Vec<Note>,
}

impl Settling {
    /// A request goes out. True: the first one's events may be under way.
    pub fn starts(&mut self, sibling: Sibling, now_us: u64) -> bool {
        if let Some(note) = self.note(sibling)
            && now_us < note.forgotten_us
        {
            return now_us < note.early_until_us;
        }
        if self.places.is_empty() {
            self.places = vec![Note::default(); PLACES];
        }
        if let Some(place) = self.places.get_mut(sibling.place()) {
            *place = Note {
                sibling: sibling.0,
                early_until_us: now_us.saturating_add(SENT_US),
                forgotten_us: now_us.saturating_add(FORGOTTEN_US),
            };
        }
        false
    }

    /// A response begins: its prompt is in the engine's cache, and the events are under way.
    pub fn answered(&mut self, sibling: Sibling, now_us: u64) {
        if let Some(note) = self.note(sibling) {
            let until = now_us.saturating_add(SETTLED_US);
            note.early_until_us = note.early_until_us.min(until);
        }
    }

    /// It came to nothing: the next one is the first.
    pub fn failed(&mut self, sibling: Sibling) {
        if let Some(note) = self.note(sibling) {
            *note = Note::default();
        }
    }

    fn note(&mut self, sibling: Sibling) -> Option<&mut Note> {
        let place = self.places.get_mut(sibling.place());
        place.filter(|note| note.sibling == sibling.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn sibling(block: u64, replica: u16) -> Sibling {
        Sibling::of(BlockHash(block), ReplicaIndex(replica))
    }

    #[test]
    fn siblings_are_early_until_the_first_ones_events_can_be_there() {
        let mut settling = Settling::default();
        assert!(!settling.starts(sibling(7, 0), 0));
        assert!(settling.starts(sibling(7, 0), 3 * SECOND), "on its way");
        assert!(!settling.starts(sibling(7, 1), 3 * SECOND), "elsewhere");
        assert!(
            !settling.starts(sibling(8, 0), 3 * SECOND),
            "another prompt"
        );
        settling.answered(sibling(7, 0), 4 * SECOND);
        assert!(settling.starts(sibling(7, 0), 4 * SECOND + SETTLED_US - 1));
        // The others' answers make no new time.
        settling.answered(sibling(7, 0), 5 * SECOND);
        assert!(!settling.starts(sibling(7, 0), 4 * SECOND + SETTLED_US));
        assert!(!settling.starts(sibling(7, 0), 59 * SECOND));
        // Long after, there is a first one again.
        assert!(!settling.starts(sibling(7, 0), 60 * SECOND));
        assert!(settling.starts(sibling(7, 0), 61 * SECOND));
    }

    #[test]
    fn an_answer_that_takes_long_is_not_waited_for() {
        let mut settling = Settling::default();
        assert!(!settling.starts(sibling(7, 0), 0));
        assert!(!settling.starts(sibling(7, 0), SENT_US));
        settling.answered(sibling(7, 0), 40 * SECOND);
        assert!(!settling.starts(sibling(7, 0), 40 * SECOND));
    }

    #[test]
    fn after_a_failure_the_next_one_is_the_first() {
        let mut settling = Settling::default();
        assert!(!settling.starts(sibling(7, 0), 0));
        settling.failed(sibling(7, 0));
        assert!(!settling.starts(sibling(7, 0), SECOND));
        assert!(settling.starts(sibling(7, 0), SECOND));
    }

    #[test]
    fn a_pool_that_is_always_wrong_has_no_lasting_excuse() {
        let mut settling = Settling::default();
        let mut early = 0;
        for request in 0..1_000u64 {
            let now = request * 50_000;
            early += u64::from(settling.starts(sibling(7, 0), now));
            settling.answered(sibling(7, 0), now + 40_000);
        }
        assert!(early < 20, "{early} of 1000");
    }

    #[test]
    fn a_place_taken_by_another_only_loses_the_mark() {
        let mut settling = Settling::default();
        let (a, b) = (Sibling(5), Sibling(5 + PLACES as u64));
        assert!(!settling.starts(a, 0));
        assert!(!settling.starts(b, 0));
        settling.answered(a, 1);
        assert!(!settling.starts(a, 2));
    }
}
