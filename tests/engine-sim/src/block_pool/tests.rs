//! The pool against a model that keeps its free list in a plain vector.

use super::*;

#[derive(Default)]
struct Model {
    free: Vec<BlockId>,
    references: Vec<u32>,
    content: Vec<Option<BlockDigest>>,
    /// In the order stored.
    stored: Vec<(BlockDigest, BlockId)>,
}

impl Model {
    fn new(count: u32) -> Self {
        Self {
            free: (1..count).collect(),
            references: vec![0; count as usize],
            content: vec![None; count as usize],
            stored: Vec::new(),
        }
    }
    fn lookup(&self, digest: &BlockDigest) -> Option<BlockId> {
        self.stored
            .iter()
            .find(|(d, _)| d == digest)
            .map(|(_, id)| *id)
    }
    fn touch(&mut self, id: BlockId) {
        self.free.retain(|f| *f != id);
        self.references[id as usize] += 1;
    }
    fn allocate(&mut self, count: usize) -> Option<(Vec<BlockId>, Vec<BlockDigest>)> {
        if count > self.free.len() {
            return None;
        }
        let taken: Vec<_> = self.free.drain(..count).collect();
        let mut removed = Vec::new();
        for id in &taken {
            self.references[*id as usize] = 1;
            removed.extend(self.content[*id as usize].take());
            self.stored.retain(|(_, s)| s != id);
        }
        Some((taken, removed))
    }
    fn store(&mut self, id: BlockId, digest: BlockDigest) {
        self.content[id as usize] = Some(digest);
        self.stored.push((digest, id));
    }
    fn release(&mut self, id: BlockId) {
        self.references[id as usize] -= 1;
        if self.references[id as usize] == 0 {
            let at = if self.content[id as usize].is_some() {
                self.free.len()
            } else {
                0
            };
            self.free.insert(at, id);
        }
    }
}

/// Small deterministic random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

#[test]
fn equals_the_model() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let count = 2 + random.below(20) as u32;
        let (mut pool, mut model) = (BlockPool::new(count), Model::new(count));
        let mut held: Vec<Vec<BlockId>> = Vec::new();
        for step in 0..400 {
            match random.below(4) {
                0 => {
                    let n = random.below(6) as u32;
                    let mut removed = Vec::new();
                    let got = pool.allocate(n, |d| removed.push(d));
                    let want = model.allocate(n as usize);
                    assert_eq!(
                        got.clone().map(|ids| (ids, removed)),
                        want,
                        "seed {seed} step {step}"
                    );
                    for id in got.iter().flatten() {
                        if random.below(4) > 0 {
                            let digest = [random.below(12) as u8; 32];
                            pool.store(*id, digest);
                            model.store(*id, digest);
                        }
                    }
                    held.extend(got);
                }
                1 if !held.is_empty() => {
                    let ids = held.swap_remove(random.below(held.len() as u64) as usize);
                    pool.release(ids.iter().rev().copied());
                    ids.iter().rev().for_each(|id| model.release(*id));
                }
                2 => {
                    let digest = [random.below(12) as u8; 32];
                    assert_eq!(
                        pool.lookup(&digest),
                        model.lookup(&digest),
                        "seed {seed} step {step}"
                    );
                    if let Some(id) = pool.lookup(&digest) {
                        pool.touch(&[id]);
                        model.touch(id);
                        held.push(vec![id]);
                    }
                }
                _ if random.below(20) == 0 => {
                    let idle = held.iter().all(Vec::is_empty);
                    assert_eq!(pool.reset(), idle, "seed {seed} step {step}");
                    if idle {
                        model.stored.clear();
                        model.content.fill(None);
                    }
                }
                _ => {}
            }
            assert_eq!(pool.free_count() as usize, model.free.len());
            assert_eq!(pool.cached_count(), model.stored.len());
        }
    }
}

#[test]
fn copies_are_removed_one_by_one() {
    let mut pool = BlockPool::new(4);
    let digest = [7; 32];
    for id in pool.allocate(2, |_| ()).unwrap() {
        pool.store(id, digest);
        pool.release([id]);
    }
    let mut removed = 0;
    pool.allocate(2, |_| removed += 1).unwrap();
    assert_eq!(
        (removed, pool.lookup(&digest)),
        (1, Some(2)),
        "one copy is left"
    );
    pool.allocate(1, |_| removed += 1).unwrap();
    assert_eq!((removed, pool.lookup(&digest)), (2, None));
}
