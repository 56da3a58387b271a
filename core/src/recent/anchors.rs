//! Which blocks of a prompt are noted, and what else is noted with them.
//!
//! Few blocks, since each costs a read and a write of shared data; and such that two prompts that share
//! a prefix have deep ones in common, wherever they part. These are the anchors: the first block, and
//! of the blocks 16 to 63, 64 to 255, 256 to 1023 and so on the one with the smallest hash. Prompts
//! agree on the anchor of every region that they share whole, and mostly on that of the region in
//! which they part.
//!
//! How far they agree behind an anchor tell its marks: 16 bits of the hashes of up to [`MARKS_MAX`]
//! blocks, evenly spaced from the anchor to the end of the region after its own, or of the prompt.
//! Hashes are chained, so a mark that is equal means that all before it is.

use crate::ids::BlockHash;

/// Blocks noted of one prompt at most.
pub const ANCHORS_MAX: usize = 6;
/// Marks of one anchor at most.
pub const MARKS_MAX: usize = 23;
/// Where the first region begins; each ends at so many times its beginning.
const REGION_START: usize = 16;
const REGION_FACTOR: usize = 4;

/// What follows an anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Blocks from the anchor to the last mark.
    pub(super) span: u16,
    pub(super) len: u8,
    pub(super) marks: [u16; MARKS_MAX],
}

impl Marks {
    /// Those of the blocks after `at`, up to before `end`.
    fn of(hashes: &[BlockHash], at: usize, end: usize) -> Self {
        let last = end.min(hashes.len()).saturating_sub(1);
        let span = u16::try_from(last.saturating_sub(at)).unwrap_or(u16::MAX);
        let len = span.min(MARKS_MAX as u16) as u8;
        let mut new = Self {
            span,
            len,
            marks: [0; MARKS_MAX],
        };
        let offsets = new.offsets();
        for (mark, offset) in new.marks.iter_mut().zip(offsets) {
            *mark = hashes.get(at + offset).map_or(0, mark_of);
        }
        new
    }

    /// Distances of the marked blocks from the anchor, ascending.
    fn offsets(&self) -> impl Iterator<Item = usize> + use<> {
        let (span, len) = (usize::from(self.span), usize::from(self.len));
        (1..=len).map(move |n| (n * span).div_ceil(len))
    }

    /// The last block that a prompt with these hashes shares, as far as the marks tell, with the
    /// prompt that left them; `at` is where the anchor is in both.
    #[must_use]
    pub fn deepest(&self, hashes: &[BlockHash], at: usize) -> usize {
        let marks = self.offsets().zip(&self.marks);
        let equal =
            |&(offset, mark): &(usize, &u16)| hashes.get(at + offset).map(mark_of) == Some(*mark);
        // From the anchor on, so that a mark that is equal by chance claims one step at most.
        let last = marks.take_while(equal).last();
        at + last.map_or(0, |(offset, _)| offset)
    }
}

fn mark_of(hash: &BlockHash) -> u16 {
    (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

/// A block that is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its position in the prompt.
    pub at: usize,
    /// Its hash.
    pub key: u64,
    /// What follows it.
    pub marks: Marks,
}

impl Anchor {
    /// A name that stands for itself, see [`super::digest`].
    #[must_use]
    pub fn name(key: u64) -> Self {
        Self {
            at: 0,
            key,
            marks: Marks::default(),
        }
    }
}

/// The blocks to note of a prompt, deepest first, at most [`ANCHORS_MAX`]: of more regions than that
/// the deepest.
#[must_use]
pub fn anchors(hashes: &[BlockHash]) -> Vec<Anchor> {
    let mut found = Vec::with_capacity(ANCHORS_MAX);
    let anchor = |at: usize, end: usize| {
        let hash = hashes.get(at)?;
        Some(Anchor {
            at,
            key: hash.0,
            marks: Marks::of(hashes, at, end),
        })
    };
    let starts = core::iter::successors(Some(REGION_START), |n| n.checked_mul(REGION_FACTOR));
    let starts: Vec<usize> = starts.take_while(|&n| n < hashes.len()).collect();
    for &start in starts.iter().rev().take(ANCHORS_MAX - 1) {
        let end = start * REGION_FACTOR;
        let region = hashes.iter().enumerate().take(end).skip(start);
        let smallest = region.min_by_key(|(_, hash)| **hash).map(|(at, _)| at);
        found.extend(smallest.and_then(|at| anchor(at, end.saturating_mul(REGION_FACTOR))));
    }
    found.extend(anchor(0, REGION_START * REGION_FACTOR));
    found
}
