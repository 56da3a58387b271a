//! Affinity without a table: by what was sent where before.
//!
//! Where nobody tells what engines hold (standalone), or a pool's prompts cannot be told exactly, a
//! request goes where requests went that began alike, for as long as engines may be expected to remember
//! ([`History::ttl_ms`]). What begins alike is told by outlines ([`Outline`]): by sampled blocks, as for
//! prompts that were sent a moment ago, and by turns, so that a conversation finds itself however many
//! share its beginning. A request notes its whole outline and the one without its last message, and looks
//! for those of its last few turns.

use hashbrown::HashMap;
use prefix_picker_core::blocks::prompt::{Blocks, tokens};
use prefix_picker_core::blocks::{BlockHash, Family, Namespace, seed};
use prefix_picker_core::prompt::{Outline, ParsedRequest, Prompt};
use prefix_picker_core::recent::{Anchor, anchors, digest, place};
use prefix_picker_core::sync::PoolHead;

use crate::host::Host;
use crate::pools::{View, Wanted};
use crate::recent::{Board, Claimed, Look};
use crate::router::held::{Held, Holdings};

/// 98,304 claims: 8 MB at most, and next to nothing while there are none.
pub const BOARD: Board = Board::new("pp/history", 12, 24);
/// Requests are remembered for so long, unless the configuration says otherwise, in milliseconds.
pub const TTL_MS: u64 = 600_000;
/// Stands for a profile's hash in the seeds of outlines.
const NO_PROFILE: u64 = 0x6f75_746c_696e_6573;
/// Sampled blocks that are looked for and noted.
const ANCHORS_MAX: usize = 4;
/// Turns that are noted: all of them, and all but the last.
const TURNS_NOTED: usize = 2;
/// Turns from the end that are looked for: a turn of an agent adds the model's message and the results
/// of its calls. With each of them and all anchors in buckets of their own: 16 host calls.
const TURNS_MAX: usize = 6;

/// What is known of a request's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// What is to be noted once it is placed.
    pub look: Look,
    /// For so long, in milliseconds.
    pub ttl_ms: u64,
}

/// A request's outline, looked up.
#[derive(Debug)]
pub struct Known {
    /// To be noted.
    pub history: History,
    /// What replicas hold, as far as they were sent it.
    pub holdings: Holdings,
    /// The prompt's length in tokens, estimated.
    pub tokens: u32,
    /// Of its first blocks, or 0.
    pub prefix_key: u64,
}

/// Looks a request up; `None` if nothing is to be seen of its prompt.
#[must_use]
pub fn look_up(
    host: &impl Host,
    view: &View,
    (pool, wanted): (&PoolHead, Wanted<'_>),
    request: &ParsedRequest,
    ttl_ms: u64,
) -> Option<Known> {
    let outline = request.outline()?;
    let lora = match wanted {
        Wanted::Adapter(lora) => Some(lora.name.as_str()),
        Wanted::Base | Wanted::Unknown => None,
    };
    let namespace = |family| Namespace {
        family,
        profile_hash: NO_PROFILE,
        lora,
        salt: request.cache_salt.as_deref(),
    };
    BOARD.prepare(host);
    let blocks = Blocks::of(&outline.prompt, pool, namespace);
    let root = seed(&pool.key, &namespace(Family::Text)).0;
    let turns = turns(&outline, &blocks, root);
    let mut sampled = anchors(&blocks.hashes);
    // The deepest, and the first block.
    let first = sampled.pop();
    sampled.truncate(ANCHORS_MAX - 1);
    sampled.extend(first);
    let ends: HashMap<u64, usize> = turns.iter().copied().collect();
    let names = |turns: &[(u64, usize)]| -> Vec<Anchor> {
        turns.iter().map(|&(key, _)| Anchor::name(key)).collect()
    };
    let (noted, older) = turns.split_at(turns.len().min(TURNS_NOTED));
    sampled.extend(names(noted));
    let look = BOARD.look(host, sampled);
    let older = BOARD.look(host, names(older));
    let mut longest: HashMap<u16, usize> = HashMap::new();
    for (anchor, claim) in look.claims().chain(older.claims()) {
        let Some(replica) = view.replica_of_place(claim.place) else {
            continue;
        };
        let bytes = ends.get(&anchor.key).copied().unwrap_or_else(|| {
            let deepest = claim.marks.deepest(&blocks.hashes, anchor.at);
            blocks.ends.get(deepest).copied().unwrap_or(0)
        });
        let longest = longest.entry(replica.0).or_default();
        *longest = (*longest).max(bytes);
    }
    let held = |(replica, bytes): (u16, usize)| {
        let held = tokens(bytes as u64, blocks.per_token_milli);
        let held = Held {
            gpu: held,
            any: held,
            announced: held,
        };
        (replica, held)
    };
    Some(Known {
        history: History { look, ttl_ms },
        holdings: longest.into_iter().map(held).collect(),
        tokens: blocks.tokens_after(0),
        prefix_key: blocks.prefix_key(),
    })
}

/// The last turns, the whole first: what names each, and where it ends. A name is made of the hash of
/// the last whole block and of what follows it, so that no text is hashed twice.
fn turns(outline: &Outline, blocks: &Blocks, root: u64) -> Vec<(u64, usize)> {
    let Prompt::Text(text) = &outline.prompt else {
        return Vec::new();
    };
    let text = text.text.as_bytes();
    let last = outline.turns.iter().rev().take(TURNS_MAX);
    let named = last.map(|&end| {
        let whole = blocks.ends.partition_point(|&block| block <= end);
        let before = whole.checked_sub(1);
        let hash = before.and_then(|at| blocks.hashes.get(at));
        let hash = hash.map_or(0, |&BlockHash(hash)| hash);
        let start = before.and_then(|at| blocks.ends.get(at)).copied();
        let mut name = [root.to_le_bytes(), hash.to_le_bytes()].concat();
        name.extend(text.get(start.unwrap_or(0)..end).unwrap_or_default());
        (digest("turn", &name), end)
    });
    named.collect()
}

impl History {
    /// The request goes to a replica, by its name.
    #[must_use]
    pub fn claim(self, host: &impl Host, replica: &str) -> Claimed {
        BOARD.claim(host, self.look, place(replica), self.ttl_ms)
    }
}
