//! Answers that engines keep, and which engine keeps which.
//!
//! With the responses interface a request can build on a stored answer (`previous_response_id`), which
//! only the engine has that gave it. So the names of answers are read as they pass, and noted for a day
//! where all workers see them. A fixed number is noted, those that end first giving way.

use prefix_picker_core::recent::{Anchor, digest, place};

use crate::host::Host;
use crate::recent::Board;

/// 49,152 answers: 1.7 MB at most.
pub const ANSWERS: Board = Board::new("pp/answers", 10, 48);
/// An answer is remembered for so long, in milliseconds.
const KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

fn name(id: &[u8]) -> Vec<Anchor> {
    vec![Anchor::name(digest("response", id))]
}

/// Notes who keeps an answer: a replica's name.
pub fn note(host: &impl Host, id: &[u8], keeper: &str) {
    let look = ANSWERS.look(host, name(id));
    let _ = ANSWERS.claim(host, look, place(keeper), KEPT_MS);
}

/// Who keeps it, if that was noted.
pub fn place_of(host: &impl Host, id: &[u8]) -> Option<u64> {
    let look = ANSWERS.look(host, name(id));
    let last = look.claims().max_by_key(|(_, claim)| claim.since_ms);
    last.map(|(_, claim)| claim.place)
}
