//! An engine's KV cache by segments: which are held and how much of each, what running requests pin,
//! and what goes first when room is needed.
//!
//! As vLLM: blocks of running requests stay, all others are free and still hit until they are
//! reallocated, least recently released first and a prompt's end before its beginning. Simpler than
//! vLLM: whole prompts and answers are reserved when a request is admitted, so nothing is preempted,
//! and what two requests compute at the same time is there once.

use std::collections::BTreeSet;

use crate::workload::{BLOCK, Segment};

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Tokens that hit.
    ready: u32,
    /// Tokens that take room: all of it while pinned.
    room: u32,
    /// Requests that pin it.
    pins: u32,
    /// When it was released, for the order of eviction.
    released: u64,
    /// Its place in the chain.
    depth: u32,
}

/// A segment of which another number of tokens hits now.
pub type Change = (Segment, u32);

/// One engine's cache.
#[derive(Debug)]
pub struct Cache {
    entries: Vec<Entry>,
    /// Unpinned segments, next to go first.
    idle: BTreeSet<(u64, u32, Segment)>,
    capacity: u64,
    /// Room of pinned segments and answers.
    pinned: u64,
    /// Room of unpinned segments.
    unpinned: u64,
    clock: u64,
    /// What has changed since it was last taken.
    pub changes: Vec<Change>,
}

impl Cache {
    /// Empty, for that many tokens, of a trace with that many segments.
    #[must_use]
    pub fn new(capacity: u64, segments: usize) -> Self {
        Self {
            entries: vec![Entry::default(); segments],
            idle: BTreeSet::new(),
            capacity,
            pinned: 0,
            unpinned: 0,
            clock: 0,
            changes: Vec::new(),
        }
    }

    /// Tokens of a chain that hit, in whole blocks and never all of it.
    #[must_use]
    pub fn hit(&self, chain: &[Segment], lengths: &[u32]) -> u32 {
        let mut hit = 0;
        let mut prompt = 0;
        let mut unbroken = true;
        for &s in chain {
            let length = lengths[s as usize];
            prompt += length;
            if unbroken {
                let ready = self.entries[s as usize].ready;
                hit += ready;
                unbroken = ready == length;
            }
        }
        hit.min(prompt.saturating_sub(1)) / BLOCK * BLOCK
    }

    /// Pins a chain and room for an answer. False, and nothing changed, if there is no room.
    pub fn pin(&mut self, chain: &[Segment], lengths: &[u32], output: u32) -> bool {
        let new = chain
            .iter()
            .filter(|&&s| self.entries[s as usize].pins == 0);
        let wanted: u64 = new.map(|&s| u64::from(lengths[s as usize])).sum();
        if self.pinned + wanted + u64::from(output) > self.capacity {
            return false;
        }
        for (depth, &s) in chain.iter().enumerate() {
            let entry = &mut self.entries[s as usize];
            if entry.pins == 0 {
                if entry.room > 0 {
                    self.unpinned -= u64::from(entry.room);
                    self.idle.remove(&(entry.released, !entry.depth, s));
                }
                entry.room = lengths[s as usize];
                entry.depth = depth as u32;
                self.pinned += u64::from(entry.room);
            }
            entry.pins += 1;
        }
        self.pinned += u64::from(output);
        self.make_room();
        true
    }

    /// Tokens of the chain from `from` to `to` are computed.
    pub fn computed(&mut self, chain: &[Segment], lengths: &[u32], from: u32, to: u32) {
        let mut start = 0;
        for &s in chain {
            let length = lengths[s as usize];
            if start >= to {
                break;
            }
            if start + length > from {
                let ready = (to - start).min(length);
                let entry = &mut self.entries[s as usize];
                if ready > entry.ready {
                    entry.ready = ready;
                    self.changes.push((s, ready));
                }
            }
            start += length;
        }
    }

    /// A request ended: its segments are free, its answer hits as `answer` if that is a segment.
    pub fn release(&mut self, chain: &[Segment], output: u32, answer: Option<Segment>) {
        self.clock += 1;
        self.pinned -= u64::from(output);
        for &s in chain {
            let entry = &mut self.entries[s as usize];
            entry.pins -= 1;
            if entry.pins == 0 {
                self.pinned -= u64::from(entry.room);
                self.rest(s);
            }
        }
        if let Some(s) = answer {
            let entry = &mut self.entries[s as usize];
            if entry.pins == 0 && entry.room == 0 {
                (entry.ready, entry.room) = (output, output);
                entry.depth = chain.len() as u32;
                self.changes.push((s, output));
                self.rest(s);
            }
        }
        self.make_room();
    }

    fn rest(&mut self, s: Segment) {
        let entry = &mut self.entries[s as usize];
        entry.room = entry.ready;
        if entry.room > 0 {
            entry.released = self.clock;
            self.unpinned += u64::from(entry.room);
            self.idle.insert((entry.released, !entry.depth, s));
        }
    }

    fn make_room(&mut self) {
        while self.pinned + self.unpinned > self.capacity {
            let Some(&(released, depth, s)) = self.idle.first() else {
                break;
            };
            let excess = self.pinned + self.unpinned - self.capacity;
            let entry = &mut self.entries[s as usize];
            let goes = u64::from(entry.room).min(excess.next_multiple_of(u64::from(BLOCK)));
            self.unpinned -= goes;
            entry.room -= goes as u32;
            entry.ready = entry.ready.min(entry.room);
            self.changes.push((s, entry.ready));
            if entry.room == 0 {
                self.idle.remove(&(released, depth, s));
            }
        }
    }

    /// Share of the memory that running requests use, in thousandths.
    #[must_use]
    pub fn usage_permille(&self) -> u16 {
        (self.pinned * 1_000 / self.capacity.max(1)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const LENGTHS: [u32; 4] = [64, 32, 48, 160];

    fn serve(cache: &mut Cache, chain: &[Segment]) -> u32 {
        let hit = cache.hit(chain, &LENGTHS);
        let prompt = chain.iter().map(|&s| LENGTHS[s as usize]).sum();
        assert!(cache.pin(chain, &LENGTHS, 16));
        cache.computed(chain, &LENGTHS, hit, prompt);
        cache.release(chain, 16, None);
        hit
    }

    #[test]
    fn what_was_computed_hits_but_for_the_last_block() {
        let mut cache = Cache::new(1_000, 4);
        assert_eq!(serve(&mut cache, &[0, 1]), 0);
        assert_eq!(serve(&mut cache, &[0, 1]), 80);
        assert_eq!(serve(&mut cache, &[0, 2]), 64);
        assert_eq!(cache.hit(&[1], &LENGTHS), 16);
    }

    #[test]
    fn the_end_of_the_oldest_goes_first() {
        let mut cache = Cache::new(200, 4);
        serve(&mut cache, &[0, 1]);
        serve(&mut cache, &[2]);
        // 144 tokens are held; 48 + 16 more than there is room for.
        assert!(cache.pin(&[], &LENGTHS, 120));
        assert_eq!(cache.hit(&[0, 1], &LENGTHS), 32);
        assert_eq!(cache.hit(&[2], &LENGTHS), 32);
        assert!(!cache.pin(&[3], &LENGTHS, 0));
        assert_eq!(cache.usage_permille(), 600);
    }

    #[test]
    fn an_answer_hits_in_the_next_turn() {
        let mut cache = Cache::new(1_000, 4);
        assert!(cache.pin(&[0], &LENGTHS, 32));
        cache.computed(&[0], &LENGTHS, 0, 40);
        assert_eq!(cache.hit(&[0, 1], &LENGTHS), 32);
        cache.computed(&[0], &LENGTHS, 40, 64);
        cache.release(&[0], 32, Some(1));
        assert_eq!(cache.hit(&[0, 1, 2], &LENGTHS), 96);
    }

    #[test]
    fn room_is_never_exceeded_and_all_comes_back() {
        let mut rng = Rng::new(9);
        let lengths: Vec<u32> = (0..50).map(|n| 16 * (1 + n % 7)).collect();
        let mut cache = Cache::new(1_500, 50);
        let mut running: Vec<(Vec<Segment>, u32)> = Vec::new();
        for _ in 0..20_000 {
            if rng.below(2) == 0 {
                let first = rng.below(10) as u32;
                let chain = vec![
                    first,
                    10 + first * 2 + rng.below(2) as u32,
                    30 + rng.below(20) as u32,
                ];
                let output = 16 + rng.below(4) as u32 * 16;
                if cache.pin(&chain, &lengths, output) {
                    let hit = cache.hit(&chain, &lengths);
                    cache.computed(&chain, &lengths, hit, hit + rng.below(200) as u32);
                    running.push((chain, output));
                }
            } else if !running.is_empty() {
                let (chain, output) = running.swap_remove(rng.below(running.len()));
                cache.release(&chain, output, None);
            }
            assert!(cache.pinned + cache.unpinned <= 1_500);
            let held: u64 = cache.entries.iter().map(|e| u64::from(e.room)).sum();
            let outputs: u64 = running.iter().map(|r| u64::from(r.1)).sum();
            assert_eq!(held + outputs, cache.pinned + cache.unpinned);
        }
        for (chain, output) in running {
            cache.release(&chain, output, None);
        }
        assert_eq!(cache.pinned, 0);
    }
}
