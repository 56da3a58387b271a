//! What a look-up has seen so far, per replica, and which level it should see next.

use super::super::GROUP_DEPTH;
use super::super::group::{GroupRef, RunRef, Tier, for_each_holder};
use super::ReplicaMatch;
use crate::ids::ReplicaIndex;

const DEPTH: u32 = GROUP_DEPTH;

pub(super) struct Tally {
    /// Blocks of the prompt.
    blocks: u32,
    /// By replica number, which are dense; those without a block are not known to hold any.
    seen: Vec<Seen>,
    /// For each level: read already.
    probed: Vec<bool>,
    /// Deepest credit.
    deepest: u32,
}

/// A replica's match so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    gpu_blocks: u32,
    gpu_tokens: u32,
    any_blocks: u32,
    any_tokens: u32,
}

impl Tally {
    pub(super) fn new(blocks: usize) -> Self {
        let probed = vec![false; blocks.div_ceil(DEPTH as usize)];
        Self {
            blocks: blocks as u32,
            seen: Vec::new(),
            probed,
            deepest: 0,
        }
    }

    /// The holders of a run of the group at block `at`, `matched` of whose blocks are the prompt's.
    pub(super) fn credit(
        &mut self,
        at: usize,
        group: &GroupRef<'_>,
        run: &RunRef<'_>,
        matched: usize,
    ) {
        let tokens = run.tokens(group.base_tokens);
        let before = at as u32 + u32::from(run.start);
        let mut bucket = (0, 0, 0);
        // A damaged end is as good as no more holders.
        let _ = for_each_holder(run.holders, |tier, held, replica| {
            if bucket.0 != held {
                let held_here = usize::from(held).min(matched);
                let Some(tokens) = held_here.checked_sub(1).and_then(|i| tokens.get(i)) else {
                    return;
                };
                bucket = (held, before + held_here as u32, *tokens);
                self.deepest = self.deepest.max(bucket.1);
            }
            let (_, blocks, tokens) = bucket;
            let Some(seen) = self.seen_of(replica) else {
                return;
            };
            if tier == Tier::Gpu && seen.gpu_blocks < blocks {
                (seen.gpu_blocks, seen.gpu_tokens) = (blocks, tokens);
            }
            if seen.any_blocks < blocks {
                (seen.any_blocks, seen.any_tokens) = (blocks, tokens);
            }
        });
    }

    /// Never `None`: the list grows to the replica.
    #[inline]
    fn seen_of(&mut self, replica: ReplicaIndex) -> Option<&mut Seen> {
        let at = usize::from(replica.0);
        if at >= self.seen.len() {
            self.seen
                .resize((at + 1).next_multiple_of(64), Seen::default());
        }
        self.seen.get_mut(at)
    }

    pub(super) fn probed(&mut self, level: usize) {
        if let Some(probed) = self.probed.get_mut(level) {
            *probed = true;
        }
    }

    /// Whether anybody holds the level to its end.
    pub(super) fn whole(&self, level: usize) -> bool {
        self.deepest as usize >= (level + 1) * DEPTH as usize
    }

    /// The level that tells most about the `refine` replicas that hold most, or may: `None` if what
    /// is known of them is exact.
    pub(super) fn next_level(&self, refine: usize) -> Option<usize> {
        let ends = self.unknown_ends();
        // Deepest possible match, then deepest seen; ascending, so the last one is the best.
        let mut best: Vec<(u32, u32, u32)> = Vec::with_capacity(refine.min(64) + 1);
        for seen in self.seen.iter().filter(|seen| seen.any_blocks > 0) {
            let key = (
                self.bound(&ends, seen.any_blocks),
                seen.any_blocks,
                seen.gpu_blocks,
            );
            if best.len() >= refine {
                if best.first().is_none_or(|worst| *worst >= key) {
                    continue;
                }
                best.remove(0);
            }
            best.insert(best.partition_point(|other| *other < key), key);
        }
        best.iter().rev().find_map(|(_, any_blocks, gpu_blocks)| {
            self.middle(&ends, *any_blocks)
                .or_else(|| self.middle(&ends, *gpu_blocks))
        })
    }

    pub(super) fn into_matches(self) -> Vec<ReplicaMatch> {
        let held = self
            .seen
            .iter()
            .enumerate()
            .filter(|(_, seen)| seen.any_blocks > 0);
        held.map(|(at, seen)| ReplicaMatch {
            replica: ReplicaIndex(at as u16),
            gpu_blocks: seen.gpu_blocks,
            gpu_tokens: seen.gpu_tokens,
            any_blocks: seen.any_blocks,
            any_tokens: seen.any_tokens,
        })
        .collect()
    }

    /// For each level, the first one from it on that was read.
    fn unknown_ends(&self) -> Vec<u32> {
        let mut end = self.probed.len() as u32;
        let mut ends = vec![end; self.probed.len()];
        for (level, (slot, probed)) in ends.iter_mut().zip(&self.probed).enumerate().rev() {
            if *probed {
                end = level as u32;
            }
            *slot = end;
        }
        ends
    }

    /// Who was seen to hold `held` blocks holds at most this many.
    fn bound(&self, ends: &[u32], held: u32) -> u32 {
        self.unknown_levels(ends, held)
            .map_or(held, |(_, end)| (end * DEPTH).min(self.blocks))
    }

    /// Halves the interval of levels about which nothing is known.
    fn middle(&self, ends: &[u32], held: u32) -> Option<usize> {
        self.unknown_levels(ends, held)
            .map(|(first, end)| (first + (end - first) / 2) as usize)
    }

    /// The levels after `held` blocks that were not read, up to the next one that was.
    fn unknown_levels(&self, ends: &[u32], held: u32) -> Option<(u32, u32)> {
        // A credit that ends inside a level ends for good: the level was read.
        if !held.is_multiple_of(DEPTH) || held >= self.blocks {
            return None;
        }
        let first = held / DEPTH;
        let end = *ends.get(first as usize)?;
        (end > first).then_some((first, end))
    }
}
