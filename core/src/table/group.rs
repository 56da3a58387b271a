//! A group: up to 32 blocks of one chain position range and everything that branches off there.
//!
//! A small trie of *runs*, unbranched sequences of blocks. If it grows too large it is cut at an
//! offset, its *split*: blocks from there on live in groups of their own, one for each distinct
//! block at that offset, which reach to the same regular anchor as the group they came from. A
//! reader learns the offset from the group's first byte. Splits nest.

mod encode;
mod read;

pub use encode::encode_group;
pub use read::decode_group;
pub(super) use read::{GroupRef, RunRef, Tier, for_each_holder};

use crate::ids::{BlockHash, ReplicaIndex};

/// Blocks in the longest run.
pub(super) const MAX_RUN: usize = super::GROUP_DEPTH as usize;

/// A block's tokens may be fewer than the last one's by this much and still take one byte: the end
/// of a hard cut counts less than what it follows.
const TOKEN_BIAS: i64 = super::super::blocks::HARD_CUT_HOLDBACK_TOKENS as i64;

/// What a group says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupSpec {
    /// Tokens before the anchor block.
    pub base_tokens: u32,
    /// Blocks from the anchor after which the chain goes on in groups of their own (`1..=31`).
    pub split: Option<u8>,
    /// The runs, in any order but for the first, which starts with the anchor.
    pub runs: Vec<RunSpec>,
}

/// Blocks that follow each other without a branch between them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunSpec {
    /// Offset of its first block from the anchor; 0 for the first run only. The run hangs below the
    /// one that ends there.
    pub start: u8,
    /// At least one.
    pub hashes: Vec<BlockHash>,
    /// For each block: tokens of the whole prompt up to its end.
    pub tokens: Vec<u32>,
    /// Who holds how much of it. No replica twice.
    pub holders: Vec<Holder>,
}

/// How many of a run's first blocks a replica holds with everything before them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The replica.
    pub replica: ReplicaIndex,
    /// In GPU memory; at most `any`.
    pub gpu: u8,
    /// In any tier; `1..=` the run's length.
    pub any: u8,
}

/// Why a group cannot be written or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupError {
    /// No run, or a run without blocks.
    #[error("a group needs a run, and a run a block")]
    Empty,
    /// Hashes and tokens of a run differ in number.
    #[error("run {0} has not as many token counts as hashes")]
    TokenCount(usize),
    /// A run starts where none ends, or reaches past the group's end or split.
    #[error("run {0} is not where a run can be")]
    Place(usize),
    /// Not `gpu <= any`, `1 <= any <= length`, or a replica twice.
    #[error("run {0} has a holder that cannot be")]
    Holder(usize),
    /// A split outside `1..=31`.
    #[error("a split must leave blocks on both sides")]
    Split,
    /// Bytes that no encoder wrote.
    #[error("the group's bytes are damaged")]
    Damaged,
}

/// Where to split a group that is too large: the largest offset such that the blocks before it stay
/// within `limit`, but at least 1. `None` if all of it fits.
///
/// `weights[o]` is what the blocks at offset `o` weigh all together, in any unit (bytes, blocks).
pub fn choose_split(weights: &[u32], limit: u32) -> Option<u8> {
    let mut before = 0u64;
    for (offset, weight) in weights.iter().take(MAX_RUN).enumerate() {
        before += u64::from(*weight);
        if before > u64::from(limit) && offset > 0 {
            return Some(offset as u8);
        }
    }
    // All in the first block, or nothing to cut off.
    let deeper = weights.iter().skip(1).any(|weight| *weight > 0);
    (before > u64::from(limit) && deeper).then_some(1)
}
