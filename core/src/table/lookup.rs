//! A request's block hashes -> how far each replica holds them, in few page reads.
//!
//! Holdings are prefixes: who holds a block holds all before it. So the look-up need not read every
//! group. It gallops over the regular anchors (levels 0, 1, 3, 7, ...) until nobody holds a whole
//! level, which leaves for each replica and tier an interval of levels: the last one it was seen to
//! hold whole, and the first one that was read without finding it. The intervals of the best few
//! replicas are then halved until they are closed. Everybody else keeps what was seen.

mod tally;

use super::GROUP_DEPTH;
use super::group::GroupRef;
use super::page::{PageRef, page_of};
use crate::ids::{BlockHash, Epoch, ReplicaIndex};
use tally::Tally;

/// Where pages come from: the shared data in the filter, a store in tests.
pub trait PageSource {
    /// The bytes of a page, or `None` if there is none. Called at most once per page and look-up.
    fn page(&mut self, index: u32) -> Option<Vec<u8>>;
}

impl<F: FnMut(u32) -> Option<Vec<u8>>> PageSource for F {
    fn page(&mut self, index: u32) -> Option<Vec<u8>> {
        self(index)
    }
}

/// Which pages belong together; from the head that this request read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableShape {
    /// The table's life.
    pub epoch: Epoch,
    /// The table's layout.
    pub generation: u32,
    /// Pages of that layout.
    pub page_count: u32,
}

/// What a look-up may spend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookupLimits {
    /// Pages read at most.
    pub max_reads: u32,
    /// Replicas whose match is made exact; the others keep a lower bound.
    pub refine: usize,
}

impl Default for LookupLimits {
    fn default() -> Self {
        Self {
            max_reads: 40,
            refine: 8,
        }
    }
}

/// Who holds how much of the prompt.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Matches {
    /// Replicas that hold at least one block, in no particular order.
    pub replicas: Vec<ReplicaMatch>,
    /// Pages read.
    pub reads: u32,
}

/// How much of the prompt one replica holds, counted from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaMatch {
    /// The replica.
    pub replica: ReplicaIndex,
    /// Blocks in GPU memory.
    pub gpu_blocks: u32,
    /// Tokens of those blocks.
    pub gpu_tokens: u32,
    /// Blocks in any tier; at least `gpu_blocks`.
    pub any_blocks: u32,
    /// Tokens of those blocks.
    pub any_tokens: u32,
}

/// Who holds how much of the prompt with these block hashes.
///
/// A page that is missing, damaged, or of another epoch, generation or index than `shape` counts as
/// one without groups. What is credited was seen in a page; see the module for what is not looked
/// at.
pub fn lookup(
    shape: &TableShape,
    hashes: &[BlockHash],
    source: &mut impl PageSource,
    limits: LookupLimits,
) -> Matches {
    let depth = GROUP_DEPTH as usize;
    let hashes = hashes
        .get(..hashes.len().min(MAX_BLOCKS))
        .unwrap_or_default();
    let levels = hashes.len().div_ceil(depth);
    let mut reader = Reader {
        shape,
        hashes,
        source,
        reads_left: limits.max_reads,
        pages: Vec::new(),
    };
    let mut tally = Tally::new(hashes.len());
    // Gallop: how deep does anybody hold?
    let mut level = 0;
    while level < levels && reader.probe(level, &mut tally) && tally.whole(level) {
        level = (2 * level + 1).min((levels - 1).max(level + 1));
    }
    // Close the intervals of the best.
    while reader.reads_left > 0
        && let Some(level) = tally.next_level(limits.refine)
    {
        if !reader.probe(level, &mut tally) {
            break;
        }
    }
    Matches {
        replicas: tally.into_matches(),
        reads: limits.max_reads - reader.reads_left,
    }
}

/// Blocks of a prompt that are looked up at most (16 M tokens).
const MAX_BLOCKS: usize = 1 << 18;

struct Reader<'a, S> {
    shape: &'a TableShape,
    hashes: &'a [BlockHash],
    source: &'a mut S,
    reads_left: u32,
    /// Pages read by this look-up; `None`: missing, or not of this table.
    pages: Vec<(u32, Option<Vec<u8>>)>,
}

impl<S: PageSource> Reader<'_, S> {
    /// Credits what a level's groups say of the prompt. `false`: no reads left to look at all.
    fn probe(&mut self, level: usize, tally: &mut Tally) -> bool {
        let mut at = level * GROUP_DEPTH as usize;
        let end = (at + GROUP_DEPTH as usize).min(self.hashes.len());
        let hashes = self.hashes;
        while let Some(rest) = hashes.get(at..end)
            && let Some(anchor) = rest.first()
        {
            let Some(page) = self.page_of(*anchor) else {
                return false;
            };
            // Without the anchor nobody holds from here on.
            let Some(group) = page.and_then(|p| p.find(*anchor)).and_then(GroupRef::parse) else {
                break;
            };
            let matched = group.walk(rest, |run, matched| tally.credit(at, &group, run, matched));
            let split = usize::from(group.split);
            if split == 0 || matched < split {
                break;
            }
            at += split;
        }
        tally.probed(level);
        true
    }

    /// The page that an anchor is in. `None`: no reads left; `Some(None)`: no such page.
    fn page_of(&mut self, anchor: BlockHash) -> Option<Option<PageRef<'_>>> {
        let index = page_of(anchor, self.shape.page_count);
        let at = match self.pages.iter().position(|(held, _)| *held == index) {
            Some(at) => at,
            None => {
                self.reads_left = self.reads_left.checked_sub(1)?;
                let page = self
                    .source
                    .page(index)
                    .filter(|bytes| self.is_ours(bytes, index));
                self.pages.push((index, page));
                self.pages.len() - 1
            }
        };
        let (_, page) = self.pages.get(at)?;
        Some(page.as_deref().and_then(|bytes| PageRef::parse(bytes).ok()))
    }

    fn is_ours(&self, bytes: &[u8], index: u32) -> bool {
        PageRef::parse(bytes).is_ok_and(|page| {
            let header = page.header();
            header.epoch == self.shape.epoch
                && header.generation == self.shape.generation
                && header.index == index
        })
    }
}
