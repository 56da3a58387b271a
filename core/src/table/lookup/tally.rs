//! What a look-up has seen so far, per replica, and which level it should see next.

use super::super::GROUP_DEPTH;
use super::super::group::{GroupRef, RunRef, Tier, for_each_holder};
use super::ReplicaMatch;
use crate::ids::ReplicaIndex;

const DEPTH: u32 = GROUP_DEPTH;

pub(super) struct Tally {
    /// Blocks of the prompt.
    blocks: u32,
    matches: Vec<ReplicaMatch>,
    /// For each replica: its place in `matches`, plus 1.
    places: Vec<u32>,
    /// For each level: read already.
    probed: Vec<bool>,
    /// Deepest credit.
    deepest: u32,
}

impl Tally {
    pub(super) fn new(blocks: usize) -> Self {
        Self {
            blocks: blocks as u32,
            matches: Vec::new(),
            places: Vec::new(),
            probed: vec![false; blocks.div_ceil(DEPTH as usize)],
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
        let mut last = (0, 0, 0);
        // A damaged end is as good as no more holders.
        let _ = for_each_holder(run.holders, |tier, held, replica| {
            if last.0 != held {
                let held_here = usize::from(held).min(matched);
                let Some(tokens) = held_here.checked_sub(1).and_then(|i| tokens.get(i)) else {
                    return;
                };
                last = (held, before + held_here as u32, *tokens);
            }
            let (_, blocks, tokens) = last;
            let found = self.entry(replica);
            if tier == Tier::Gpu && found.gpu_blocks < blocks {
                (found.gpu_blocks, found.gpu_tokens) = (blocks, tokens);
            }
            if found.any_blocks < blocks {
                (found.any_blocks, found.any_tokens) = (blocks, tokens);
            }
            self.deepest = self.deepest.max(blocks);
        });
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
        // Deepest possible match first, then deepest seen.
        let mut best: Vec<(u32, u32, &ReplicaMatch)> = self
            .matches
            .iter()
            .map(|found| (self.bound(found.any_blocks), found.any_blocks, found))
            .collect();
        if best.len() > refine && refine > 0 {
            let key = |entry: &(u32, u32, &ReplicaMatch)| {
                (
                    core::cmp::Reverse((entry.0, entry.1, entry.2.gpu_blocks)),
                    entry.2.replica,
                )
            };
            best.select_nth_unstable_by_key(refine - 1, key);
        }
        best.iter().take(refine).find_map(|(_, _, found)| {
            self.middle(found.any_blocks)
                .or_else(|| self.middle(found.gpu_blocks))
        })
    }

    pub(super) fn into_matches(self) -> Vec<ReplicaMatch> {
        self.matches
    }

    /// Who was seen to hold `held` blocks holds at most this many.
    fn bound(&self, held: u32) -> u32 {
        self.unknown_levels(held)
            .map_or(held, |(_, end)| (end * DEPTH).min(self.blocks))
    }

    /// Halves the interval of levels about which nothing is known.
    fn middle(&self, held: u32) -> Option<usize> {
        self.unknown_levels(held)
            .map(|(first, end)| (first + (end - first) / 2) as usize)
    }

    /// The levels after `held` blocks that were not read, up to the next one that was.
    fn unknown_levels(&self, held: u32) -> Option<(u32, u32)> {
        // A credit that ends inside a level ends for good: the level was read.
        if !held.is_multiple_of(DEPTH) || held >= self.blocks {
            return None;
        }
        let first = held / DEPTH;
        let after = self.probed.get(first as usize..)?;
        let unknown = after
            .iter()
            .position(|probed| *probed)
            .unwrap_or(after.len());
        (unknown > 0).then_some((first, first + unknown as u32))
    }

    fn entry(&mut self, replica: ReplicaIndex) -> &mut ReplicaMatch {
        let place = usize::from(replica.0);
        if self.places.len() <= place {
            self.places.resize(place + 1, 0);
        }
        let none = ReplicaMatch {
            replica,
            gpu_blocks: 0,
            gpu_tokens: 0,
            any_blocks: 0,
            any_tokens: 0,
        };
        // `places` has `place`, and what it says is in `matches`: the fallbacks are never taken.
        let known = self.places.get(place).copied().unwrap_or(0) as usize;
        let at = if known > 0 {
            known - 1
        } else {
            self.matches.push(none);
            if let Some(slot) = self.places.get_mut(place) {
                *slot = self.matches.len() as u32;
            }
            self.matches.len() - 1
        };
        &mut self.matches[at]
    }
}
