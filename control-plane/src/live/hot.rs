//! Which beginnings of prompts are asked for most, by their hashes: what a prompt says is not known here.
//!
//! Prompts with the same first block are one family. Of a family the blocks that gateways name
//! ([`marks`](prefix_picker_core::sync::decisions::marks)) are counted, and the one that is worth most
//! stands for it: many requests, and far from the prompt's start.

use std::collections::HashMap;

use prefix_picker_core::sync::decisions::{Decision, Mark};

/// Families at most; the one that was asked for least gives way.
const FAMILIES_MAX: usize = 256;
/// Blocks of a family at most.
const BLOCKS_MAX: usize = 64;
/// Requests of the last so many milliseconds count, and of as many before.
const AGE_MS: u64 = 300_000;

/// A beginning of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Hash of its first block.
    pub first: u64,
    /// Hash of its last block.
    pub hash: u64,
    /// Its tokens.
    pub tokens: u32,
    /// Requests that began with it.
    pub requests: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    now: u32,
    before: u32,
}

impl Count {
    fn all(self) -> u64 {
        u64::from(self.now) + u64::from(self.before)
    }
}

#[derive(Debug, Default)]
struct Family {
    requests: Count,
    blocks: Vec<(Mark, Count)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Hot {
    families: HashMap<u64, Family>,
    since_ms: u64,
}

impl Hot {
    /// One request more.
    pub fn add(&mut self, decision: &Decision, now_ms: u64) {
        self.grow_old(now_ms);
        if decision.first == 0 {
            return;
        }
        if !self.families.contains_key(&decision.first) && self.families.len() >= FAMILIES_MAX {
            let coldest = self.families.iter().min_by_key(|(_, f)| f.requests.all());
            if let Some(&coldest) = coldest.map(|(first, _)| first) {
                self.families.remove(&coldest);
            }
        }
        let family = self.families.entry(decision.first).or_default();
        family.requests.now = family.requests.now.saturating_add(1);
        for mark in &decision.marks {
            family.count(mark);
        }
    }

    /// The hottest, those worth most first.
    #[must_use]
    pub fn top(&mut self, count: usize, now_ms: u64) -> Vec<Prefix> {
        self.grow_old(now_ms);
        let families = self.families.iter();
        let mut all: Vec<Prefix> = families
            .filter_map(|(&first, family)| family.best(first))
            .collect();
        all.sort_by_key(|prefix| (std::cmp::Reverse(prefix.worth()), prefix.hash));
        all.truncate(count);
        all
    }

    fn grow_old(&mut self, now_ms: u64) {
        let steps = now_ms.saturating_sub(self.since_ms) / AGE_MS;
        if steps == 0 {
            return;
        }
        self.since_ms = self.since_ms.saturating_add(steps * AGE_MS);
        let age = |count: &mut Count| {
            *count = Count {
                now: 0,
                before: if steps == 1 { count.now } else { 0 },
            };
        };
        self.families.retain(|_, family| {
            age(&mut family.requests);
            family.blocks.retain_mut(|(_, count)| {
                age(count);
                count.all() > 0
            });
            family.requests.all() > 0
        });
    }
}

impl Family {
    fn count(&mut self, mark: &Mark) {
        if let Some((_, count)) = self
            .blocks
            .iter_mut()
            .find(|(known, _)| known.key == mark.key)
        {
            count.now = count.now.saturating_add(1);
            return;
        }
        let new = (*mark, Count { now: 1, before: 0 });
        if self.blocks.len() < BLOCKS_MAX {
            self.blocks.push(new);
        } else if let Some(least) = self.blocks.iter_mut().min_by_key(|(_, count)| count.all()) {
            *least = new;
        }
    }

    /// `None`: nobody asked for it twice.
    fn best(&self, first: u64) -> Option<Prefix> {
        let prefixes = self.blocks.iter().map(|(mark, count)| Prefix {
            first,
            hash: mark.key,
            tokens: mark.tokens,
            requests: count.all(),
        });
        let shared = prefixes.filter(|prefix| prefix.requests > 1);
        shared.max_by_key(|prefix| (prefix.worth(), prefix.hash))
    }
}

impl Prefix {
    /// Tokens that need not be computed but once.
    fn worth(&self) -> u64 {
        u64::from(self.tokens).saturating_mul(self.requests.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(first: u64, keys: &[u64]) -> Decision {
        let marks = (1..).zip(keys).map(|(at, &key)| Mark {
            key,
            tokens: at * 64,
        });
        Decision {
            first,
            marks: marks.collect(),
            ..Decision::default()
        }
    }

    #[test]
    fn what_is_shared_most_deeply_by_many_stands_first() {
        let mut hot = Hot::default();
        for own in 0..10 {
            // Ten that share three blocks, and of those two that share five.
            let deep = if own < 2 { 7 } else { 100 + own };
            hot.add(&decision(1, &[1, 2, 3, deep, deep + 1_000, 500 + own]), 0);
        }
        hot.add(&decision(9, &[9, 10]), 0);
        hot.add(&decision(9, &[9, 11]), 0);
        hot.add(&decision(8, &[8]), 0);
        hot.add(&decision(0, &[5]), 0);
        let prefix = |first, hash, tokens, requests| Prefix {
            first,
            hash,
            tokens,
            requests,
        };
        let expected = [prefix(1, 3, 192, 10), prefix(9, 9, 64, 2)];
        assert_eq!(hot.top(9, 0), expected);
        assert_eq!(hot.top(1, 0), expected[..1]);
        // Half of the time is over, then all of it.
        assert_eq!(hot.top(9, 300_000), expected);
        hot.add(&decision(9, &[9]), 300_000);
        assert_eq!(hot.top(1, 599_000), expected[..1]);
        assert_eq!(hot.top(9, 600_000), []);
        assert!(hot.families.len() == 1);
        assert_eq!(hot.top(9, 10_000_000), []);
        assert!(hot.families.is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_hot_ones_stay() {
        let mut hot = Hot::default();
        for first in 1..=2_000u64 {
            let marks: Vec<u64> = (0..32).map(|at| first * 64 + at).collect();
            hot.add(&decision(first, &marks), 0);
            hot.add(&decision(1, &marks), 0);
        }
        assert_eq!(hot.families.len(), FAMILIES_MAX);
        assert!(hot.families.values().all(|f| f.blocks.len() <= BLOCKS_MAX));
        assert!(hot.families.contains_key(&1));
    }
}
