//! Requests whose events may still be under way.
//!
//! A burst of siblings (one prompt, many continuations) finds the first one's blocks in the engine's
//! cache before the table can know of them. That is no error of the table, and must not look like
//! one. So each request notes the first block that the table did not have; one that misses the same
//! block on the same replica while the other is on its way, or shortly after, is marked.
//!
//! A fixed number of places, later notes over earlier ones: what is lost is only the mark.

use prefix_picker_core::ids::{BlockHash, ReplicaIndex};

/// Places; more than a VM has requests on their way.
const PLACES: usize = 1 << 12;
/// Events are there this long after a response began, in microseconds.
const SETTLED_US: u64 = 2_000_000;
/// A request whose response never began is forgotten after this long, in microseconds.
const LOST_US: u64 = 120_000_000;

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

/// One VM's notes.
#[derive(Debug, Default)]
pub struct Settling {
    /// Sibling, and until when it counts. Made at the first note.
    places: Vec<(u64, u64)>,
}

impl Settling {
    /// A request goes out. True: a sibling's events may be under way.
    pub fn starts(&mut self, sibling: Sibling, now_us: u64) -> bool {
        let early = self
            .places
            .get(sibling.place())
            .is_some_and(|&(noted, until)| noted == sibling.0 && now_us < until);
        self.note(sibling, now_us.saturating_add(LOST_US));
        early
    }

    /// Its response begins: its prompt is in the engine's cache, and the events are under way.
    pub fn answered(&mut self, sibling: Sibling, now_us: u64) {
        self.note(sibling, now_us.saturating_add(SETTLED_US));
    }

    fn note(&mut self, sibling: Sibling, until: u64) {
        if self.places.is_empty() {
            self.places = vec![(0, 0); PLACES];
        }
        if let Some(place) = self.places.get_mut(sibling.place()) {
            *place = (sibling.0, until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_early_until_the_first_ones_events_can_be_there() {
        let mut settling = Settling::default();
        let sibling = |block, replica| Sibling::of(BlockHash(block), ReplicaIndex(replica));
        let second = 1_000_000;
        assert!(!settling.starts(sibling(7, 0), 0));
        assert!(
            settling.starts(sibling(7, 0), 30 * second),
            "still on its way"
        );
        assert!(
            !settling.starts(sibling(7, 1), 30 * second),
            "another replica"
        );
        assert!(
            !settling.starts(sibling(8, 0), 30 * second),
            "another prompt"
        );
        settling.answered(sibling(7, 0), 40 * second);
        assert!(settling.starts(sibling(7, 0), 41 * second));
        settling.answered(sibling(7, 0), 41 * second);
        assert!(!settling.starts(sibling(7, 0), 43 * second));
        assert!(!settling.starts(sibling(7, 0), 200 * second), "lost");
    }

    #[test]
    fn a_place_taken_by_another_only_loses_the_mark() {
        let mut settling = Settling::default();
        let (a, b) = (Sibling(5), Sibling(5 + PLACES as u64));
        assert!(!settling.starts(a, 0));
        assert!(!settling.starts(b, 0));
        assert!(!settling.starts(a, 0));
    }
}
