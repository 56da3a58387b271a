//! Blocks of one replica of which we know only the hash: orphans, whose parent was never announced,
//! and placeholders, which carry no tokens. Kept without credit, within limits, oldest dropped first.

use super::adapters::Adapter;
use super::held::{Copies, Tier};
use super::media::{Extra, Item};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Most blocks of one replica that wait.
const BLOCKS_MAX: usize = 1 << 15;
/// Most tokens in the runs that wait, and the like, per replica: 1 MB.
const TOKENS_MAX: usize = 1 << 18;

/// A stored run, kept until its parent appears.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) parent: u64,
    pub(super) hashes: Vec<u64>,
    pub(super) tokens: Vec<u32>,
    /// Per block what tells it apart; none: nothing.
    pub(super) extras: Vec<Extra>,
    pub(super) block_size: usize,
    /// The adapter that its event names.
    pub(super) adapter: Option<Adapter>,
    pub(super) lookahead: u32,
}

impl Run {
    /// Its tokens, and what tells its blocks apart, in words of the same size.
    fn size(&self) -> usize {
        let extras = self.extras.len() * size_of::<Extra>();
        let items: usize = self.extras.iter().map(|extra| extra.media.len()).sum();
        self.tokens.len() + (extras + items * size_of::<Item>()) / size_of::<u32>()
    }
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    Run(u32),
    Placeholder(u64),
}

/// What waits at one replica.
#[derive(Debug, Default)]
pub(super) struct Pending {
    copies: HashMap<u64, Copies>,
    runs: HashMap<u32, Run>,
    by_parent: HashMap<u64, Vec<u32>>,
    order: VecDeque<Waiting>,
    next_run: u32,
    tokens: usize,
    /// Length of `order` at which what is gone is looked for again.
    compact_at: usize,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.copies.len()
    }

    /// One more copy of a block of which only the hash is known. Returns how many blocks were dropped
    /// to make room.
    pub(super) fn add_placeholder(&mut self, hash: u64, tier: Tier) -> usize {
        if self.add(hash, tier) {
            self.order.push_back(Waiting::Placeholder(hash));
        }
        self.trim()
    }

    /// Whether the hash is new.
    fn add(&mut self, hash: u64, tier: Tier) -> bool {
        let mut new = false;
        let copies = self.copies.entry(hash).or_insert_with(|| {
            new = true;
            Copies::default()
        });
        copies.add(tier);
        new
    }

    /// Keeps a run until `run.parent` appears, and counts a copy of each block that is not `known`.
    /// Returns how many blocks were dropped to make room.
    pub(super) fn add_run(&mut self, run: Run, tier: Tier, known: impl Fn(u64) -> bool) -> usize {
        let (mut any_new, mut all_known) = (false, true);
        for hash in run.hashes.iter().filter(|hash| !known(**hash)) {
            all_known = false;
            any_new |= self.add(*hash, tier);
        }
        if all_known {
            return 0;
        }
        let waits_already = !any_new
            && self.by_parent.get(&run.parent).is_some_and(|waiting| {
                waiting.iter().any(|id| {
                    self.runs
                        .get(id)
                        .is_some_and(|other| other.hashes == run.hashes)
                })
            });
        if waits_already {
            return 0;
        }
        let id = self.next_run;
        self.next_run = self.next_run.wrapping_add(1);
        self.tokens += run.size();
        self.by_parent.entry(run.parent).or_default().push(id);
        self.runs.insert(id, run);
        self.order.push_back(Waiting::Run(id));
        self.trim()
    }

    /// One copy less; `false`: there was none.
    pub(super) fn remove(&mut self, hash: u64, tier: Tier) -> bool {
        let Some(copies) = self.copies.get_mut(&hash) else {
            return false;
        };
        let had = copies.take(tier);
        if copies.is_none() {
            self.copies.remove(&hash);
            self.compact();
        }
        had
    }

    /// The copies of a block whose content is now known.
    pub(super) fn take(&mut self, hash: u64) -> Option<Copies> {
        if self.copies.is_empty() {
            return None;
        }
        let copies = self.copies.remove(&hash);
        if self.copies.is_empty() {
            self.compact();
        }
        copies
    }

    /// The runs that wait for `parent`.
    pub(super) fn take_runs(&mut self, parent: u64) -> Vec<Run> {
        if self.by_parent.is_empty() {
            return Vec::new();
        }
        let Some(ids) = self.by_parent.remove(&parent) else {
            return Vec::new();
        };
        let runs: Vec<Run> = ids.iter().filter_map(|id| self.runs.remove(id)).collect();
        self.tokens -= runs.iter().map(Run::size).sum::<usize>();
        self.compact();
        runs
    }

    /// The GPU tier is empty.
    pub(super) fn clear_gpu(&mut self) {
        self.copies.retain(|_, copies| {
            copies.gpu = 0;
            !copies.is_none()
        });
        self.compact();
    }

    /// Forgets the runs of an adapter.
    pub(super) fn drop_adapter(&mut self, adapter: Adapter) {
        let of_adapter = |run: &Run| run.adapter == Some(adapter);
        let ids: Vec<u32> = self
            .runs
            .iter()
            .filter(|(_, run)| of_adapter(run))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.drop_run(id);
        }
        self.compact();
    }

    fn trim(&mut self) -> usize {
        let before = self.copies.len();
        while self.copies.len() > BLOCKS_MAX
            || self.tokens > TOKENS_MAX
            || self.runs.len() > BLOCKS_MAX
        {
            match self.order.pop_front() {
                None => break,
                Some(Waiting::Placeholder(hash)) => {
                    self.copies.remove(&hash);
                }
                Some(Waiting::Run(id)) => self.drop_run(id),
            }
        }
        self.compact();
        before.saturating_sub(self.copies.len())
    }

    fn drop_run(&mut self, id: u32) {
        let Some(run) = self.runs.remove(&id) else {
            return;
        };
        self.tokens -= run.size();
        for hash in &run.hashes {
            self.copies.remove(hash);
        }
        if let Some(waiting) = self.by_parent.get_mut(&run.parent) {
            waiting.retain(|other| *other != id);
            if waiting.is_empty() {
                self.by_parent.remove(&run.parent);
            }
        }
    }

    /// Forgets runs of which no block is left, whenever what waits may have doubled.
    fn compact(&mut self) {
        if self.copies.is_empty() {
            *self = Self {
                next_run: self.next_run,
                ..Self::default()
            };
            return;
        }
        if self.order.len() < self.compact_at.max(64) {
            return;
        }
        let dead: Vec<u32> = self
            .runs
            .iter()
            .filter(|(_, run)| !run.hashes.iter().any(|hash| self.copies.contains_key(hash)))
            .map(|(id, _)| *id)
            .collect();
        for id in dead {
            self.drop_run(id);
        }
        let mut seen = hashbrown::HashSet::new();
        let (copies, runs) = (&self.copies, &self.runs);
        self.order.retain(|waiting| match waiting {
            Waiting::Run(id) => runs.contains_key(id),
            Waiting::Placeholder(hash) => copies.contains_key(hash) && seen.insert(*hash),
        });
        self.compact_at = 2 * self.order.len();
        self.order.shrink_to_fit();
        self.copies.shrink_to_fit();
        self.runs.shrink_to_fit();
        self.by_parent.shrink_to_fit();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.copies.allocation_size()
            + self.runs.allocation_size()
            + self.by_parent.allocation_size()
            + self.order.capacity() * size_of::<Waiting>()
            + self.tokens * size_of::<u32>()
            + self.runs.len() * 64
            + self.copies.len() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(parent: u64, first: u64, blocks: u64) -> Run {
        Run {
            parent,
            hashes: (first..first + blocks).collect(),
            tokens: vec![7; usize::try_from(blocks).unwrap() * 16],
            extras: Vec::new(),
            block_size: 16,
            adapter: None,
            lookahead: 0,
        }
    }

    #[test]
    fn endless_orphans_stay_within_the_limits() {
        let mut pending = Pending::default();
        for n in 0..40_000 {
            pending.add_run(run(n << 32 | 1, n << 32 | 2, 4), Tier::Gpu, |_| false);
            pending.add_placeholder(n << 32 | 77, Tier::Lower);
        }
        assert!(pending.len() <= BLOCKS_MAX);
        assert!(pending.tokens <= TOKENS_MAX);
        assert!(
            pending.memory_bytes() < 8 << 20,
            "{}",
            pending.memory_bytes()
        );
        assert_eq!(pending.take_runs(39_999 << 32 | 1).len(), 1);
        assert!(pending.take_runs(1).is_empty());
    }

    #[test]
    fn stores_and_removes_of_orphans_leave_nothing() {
        let mut pending = Pending::default();
        for n in 0..10_000_u64 {
            pending.add_run(run(1, n * 100 + 2, 3), Tier::Gpu, |_| false);
            for hash in n * 100 + 2..n * 100 + 5 {
                assert!(pending.remove(hash, Tier::Gpu));
            }
        }
        assert_eq!(pending.len(), 0);
        assert!(pending.order.len() < 200, "{}", pending.order.len());
    }
}
