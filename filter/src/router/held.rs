//! What each replica holds of a prompt: by the table, and by what was sent there a moment ago.
//!
//! The deeper of the two counts. What was sent is not in the cache yet, but will be by the time that
//! another request for it gets its turn: siblings of a burst go where the first one went instead of
//! having all replicas compute the same.

use hashbrown::HashMap;
use prefix_picker_core::blocks::prompt::Blocks;
use prefix_picker_core::recent::anchors;
use prefix_picker_core::table::ReplicaMatch;

use crate::host::Host;
use crate::pools::View;
use crate::recent::{Look, SENT};

/// One replica's part, in tokens of the prompt's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// In GPU memory, by the table or by what was sent there, whichever is more.
    pub gpu: u32,
    /// The same in any tier.
    pub any: u32,
    /// In any tier, by the table alone.
    pub announced: u32,
}

/// Each replica's part, by replica number.
pub type Holdings = HashMap<u16, Held>;

/// Looks up what was sent where of a prompt; also needed to note it.
pub fn look(host: &impl Host, blocks: &Blocks, engine_block: u32) -> Look {
    SENT.look(host, anchors(blocks.cacheable(engine_block)))
}

/// Puts the two together.
#[must_use]
pub fn holdings(view: &View, blocks: &Blocks, found: &[ReplicaMatch], look: &Look) -> Holdings {
    let announced = found.iter().map(|m| {
        let held = Held {
            gpu: m.gpu_tokens,
            any: m.any_tokens,
            announced: m.any_tokens,
        };
        (m.replica.0, (m.any_blocks, held))
    });
    let mut all: HashMap<u16, (u32, Held)> = announced.collect();
    for (anchor, claim) in look.claims() {
        let Some(replica) = view.replica_of_place(claim.place) else {
            continue;
        };
        let deepest = claim.marks.deepest(&blocks.hashes, anchor.at);
        let depth = u32::try_from(deepest + 1).unwrap_or(u32::MAX);
        let (known, held) = all.entry(replica.0).or_default();
        if depth > *known {
            held.any = held
                .any
                .saturating_add(blocks.tokens_between(*known, depth));
            // What a lower tier has is loaded for whoever was sent there.
            held.gpu = held.any;
            *known = depth;
        }
    }
    let held = all.into_iter().map(|(replica, (_, held))| (replica, held));
    held.collect()
}
