//! Requests whose events may still be under way.
//!
//! A burst of siblings (one prompt, many continuations) finds the first one's blocks in the engine's
//! cache before the table can know of them. That is no error of the table, and must not look like
//! one. So each request notes the first block that the table did not have; one that misses the same
//! block on the same replica while the first one is on its way, or just after, is marked. All workers
//! see the notes, since siblings come by all of them.
//!
//! Only the first one's time counts. Were each to begin a time of its own, a pool whose predictions
//! are always wrong would have an excuse for as long as it is busy.
//!
//! A fixed number of notes, later ones over earlier ones: what is lost is only the mark.

use prefix_picker_core::ids::{BlockHash, ReplicaIndex};
use prefix_picker_core::recent::{Anchor, Claim};

use crate::host::Host;
use crate::recent::{Board, Look};

/// The notes: 32,768, 1.2 MB at most.
pub const NOTES: Board = Board::new("pp/settling", 10, 32);
/// Events are there this long after a response began, in milliseconds: several times what they take.
const SETTLED_MS: u64 = 500;
/// Events are there this long after a request was sent, whenever it is answered, in milliseconds.
const SENT_MS: u64 = 15_000;
/// After this long a block may have come and gone: another request is a first one again.
const FORGOTTEN_MS: u64 = 60_000;
/// A note's two halves, as places of claims.
const SENT: u64 = 0;
const ANSWERED: u64 = 1;

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

    fn look(self, host: &impl Host) -> Look {
        NOTES.look(host, vec![Anchor::name(self.0)])
    }

    /// A request goes out. True: the first one's events may be under way.
    #[must_use]
    pub fn starts(self, host: &impl Host) -> bool {
        let look = self.look(host);
        let Some(sent) = since(&look, SENT) else {
            let _ = NOTES.claim(host, look, SENT, FORGOTTEN_MS);
            return false;
        };
        let answered = since(&look, ANSWERED);
        let until = answered.map_or(u64::MAX, |at| at.saturating_add(SETTLED_MS));
        look.now_ms() < until.min(sent.saturating_add(SENT_MS))
    }

    /// A response begins: its prompt is in the engine's cache, and the events are under way.
    pub fn answered(self, host: &impl Host) {
        let look = self.look(host);
        if since(&look, SENT).is_some() && since(&look, ANSWERED).is_none() {
            let _ = NOTES.claim(host, look, ANSWERED, FORGOTTEN_MS);
        }
    }

    /// It came to nothing: the next one is the first.
    pub fn failed(self, host: &impl Host) {
        let look = self.look(host);
        let claims: Vec<Claim> = look.claims().map(|(_, claim)| *claim).collect();
        NOTES.take(host, &claims);
    }
}

fn since(look: &Look, half: u64) -> Option<u64> {
    let mut halves = look.claims().filter(|(_, claim)| claim.place == half);
    halves.next().map(|(_, claim)| claim.since_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeHost;

    const SECOND: u64 = 1_000;

    fn sibling(block: u64, replica: u16) -> Sibling {
        Sibling::of(BlockHash(block), ReplicaIndex(replica))
    }

    struct World(FakeHost);

    impl World {
        fn new() -> Self {
            let host = FakeHost::default();
            NOTES.prepare(&host);
            Self(host)
        }

        fn starts(&self, sibling: Sibling, at_ms: u64) -> bool {
            self.0.now_us.set(at_ms * 1_000);
            sibling.starts(&self.0)
        }

        fn answered(&self, sibling: Sibling, at_ms: u64) {
            self.0.now_us.set(at_ms * 1_000);
            sibling.answered(&self.0);
        }
    }

    #[test]
    fn siblings_are_early_until_the_first_ones_events_can_be_there() {
        let w = World::new();
        assert!(!w.starts(sibling(7, 0), 0));
        assert!(w.starts(sibling(7, 0), 3 * SECOND), "on its way");
        assert!(!w.starts(sibling(7, 1), 3 * SECOND), "elsewhere");
        assert!(!w.starts(sibling(8, 0), 3 * SECOND), "another prompt");
        w.answered(sibling(7, 0), 4 * SECOND);
        assert!(w.starts(sibling(7, 0), 4 * SECOND + SETTLED_MS - 1));
        // The others' answers make no new time.
        w.answered(sibling(7, 0), 5 * SECOND);
        assert!(!w.starts(sibling(7, 0), 5 * SECOND + 1));
        assert!(!w.starts(sibling(7, 0), 59 * SECOND));
        // Long after, there is a first one again.
        assert!(!w.starts(sibling(7, 0), 70 * SECOND));
        assert!(w.starts(sibling(7, 0), 71 * SECOND));
    }

    #[test]
    fn an_answer_that_takes_long_is_not_waited_for() {
        let w = World::new();
        assert!(!w.starts(sibling(7, 0), 0));
        assert!(!w.starts(sibling(7, 0), SENT_MS));
        w.answered(sibling(7, 0), 40 * SECOND);
        assert!(!w.starts(sibling(7, 0), 40 * SECOND));
    }

    #[test]
    fn after_a_failure_the_next_one_is_the_first() {
        let w = World::new();
        assert!(!w.starts(sibling(7, 0), 0));
        sibling(7, 0).failed(&w.0);
        assert!(!w.starts(sibling(7, 0), SECOND));
        assert!(w.starts(sibling(7, 0), SECOND));
    }

    #[test]
    fn a_pool_that_is_always_wrong_has_no_lasting_excuse() {
        let w = World::new();
        let mut early = 0;
        for request in 0..1_000u64 {
            let now = request * 50;
            early += u64::from(w.starts(sibling(7, 0), now));
            w.answered(sibling(7, 0), now + 40);
        }
        assert!(early < 20, "{early} of 1000");
    }
}
