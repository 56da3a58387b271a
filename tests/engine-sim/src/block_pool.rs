//! KV blocks as vLLM's block pool keeps them: a free list in LRU order, reference counts, and a map from
//! digest to every block that holds it (vLLM does not deduplicate).
//!
//! Pure: no clock, no I/O. A freed block keeps its content and its place in the map until it is handed out
//! again; only then is its removal announced.

use hashbrown::HashMap;

use crate::hash::BlockDigest;

/// Index of a physical block; 0 is the null block and never handed out.
pub(crate) type BlockId = u32;

const NIL: u32 = u32::MAX;

#[derive(Debug, Clone)]
struct Block {
    references: u32,
    digest: Option<BlockDigest>,
    /// Neighbours in the free list; meaningless while referenced.
    prev: u32,
    next: u32,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    /// First is the one used longest ago.
    head: u32,
    tail: u32,
    free: u32,
    /// Copies in the order they were stored: a hit takes the first.
    cached: HashMap<BlockDigest, Vec<BlockId>>,
    cached_count: usize,
    evictions: u64,
}

impl BlockPool {
    /// A pool of `count` blocks, one of which is the null block.
    pub(crate) fn new(count: u32) -> Self {
        let block = Block {
            references: 0,
            digest: None,
            prev: NIL,
            next: NIL,
        };
        let mut pool = Self {
            blocks: vec![block; count as usize],
            head: NIL,
            tail: NIL,
            free: 0,
            cached: HashMap::new(),
            cached_count: 0,
            evictions: 0,
        };
        for id in 1..count {
            pool.push_back(id);
        }
        pool
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free
    }

    /// Blocks that may ever be handed out.
    pub(crate) fn usable(&self) -> u32 {
        u32::try_from(self.blocks.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(1)
    }

    /// Blocks with content that a later request may hit, referenced or not, copies counted.
    pub(crate) fn cached_count(&self) -> usize {
        self.cached_count
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Every digest held and its number of copies, in no order.
    pub(crate) fn cached(&self) -> impl Iterator<Item = (&BlockDigest, usize)> {
        self.cached
            .iter()
            .map(|(digest, copies)| (digest, copies.len()))
    }

    /// The block a request would hit.
    pub(crate) fn lookup(&self, digest: &BlockDigest) -> Option<BlockId> {
        self.cached
            .get(digest)
            .and_then(|copies| copies.first())
            .copied()
    }

    /// How many of these blocks are in the free list now (a hit takes them out of it).
    pub(crate) fn unreferenced(&self, blocks: &[BlockId]) -> u32 {
        let free = blocks
            .iter()
            .filter(|id| self.blocks[**id as usize].references == 0)
            .count();
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    /// One more reference to each.
    pub(crate) fn touch(&mut self, blocks: &[BlockId]) {
        for id in blocks {
            if self.blocks[*id as usize].references == 0 {
                self.unlink(*id);
            }
            self.blocks[*id as usize].references += 1;
        }
    }

    /// Takes `count` blocks, longest unused first; `removed` is told each digest that is lost by it.
    /// `None`, and nothing changed, if there are not as many.
    pub(crate) fn allocate(
        &mut self,
        count: u32,
        mut removed: impl FnMut(BlockDigest),
    ) -> Option<Vec<BlockId>> {
        if count > self.free {
            return None;
        }
        let mut taken = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let id = self.head;
            self.unlink(id);
            self.blocks[id as usize].references = 1;
            if let Some(digest) = self.blocks[id as usize].digest.take() {
                self.forget(&digest, id);
                self.evictions += 1;
                removed(digest);
            }
            taken.push(id);
        }
        Some(taken)
    }

    /// Makes a full block findable.
    pub(crate) fn store(&mut self, id: BlockId, digest: BlockDigest) {
        self.blocks[id as usize].digest = Some(digest);
        self.cached.entry(digest).or_default().push(id);
        self.cached_count += 1;
    }

    /// One reference less to each, in the order given: the first is the first to be evicted. Blocks without
    /// content are handed out again before all others.
    pub(crate) fn release(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        for id in blocks {
            let block = &mut self.blocks[id as usize];
            block.references -= 1;
            match (block.references, block.digest.is_some()) {
                (0, true) => self.push_back(id),
                (0, false) => self.push_front(id),
                _ => {}
            }
        }
    }

    /// Forgets all content. False, and nothing changed, while a request holds a block.
    pub(crate) fn reset(&mut self) -> bool {
        if self.free != self.usable() {
            return false;
        }
        self.cached.clear();
        self.cached_count = 0;
        for block in &mut self.blocks {
            block.digest = None;
        }
        true
    }

    fn forget(&mut self, digest: &BlockDigest, id: BlockId) {
        if let Some(copies) = self.cached.get_mut(digest) {
            self.cached_count -= 1;
            copies.retain(|copy| *copy != id);
            if copies.is_empty() {
                self.cached.remove(digest);
            }
        }
    }

    fn push_back(&mut self, id: BlockId) {
        let tail = self.tail;
        let block = &mut self.blocks[id as usize];
        (block.prev, block.next) = (tail, NIL);
        match tail {
            NIL => self.head = id,
            tail => self.blocks[tail as usize].next = id,
        }
        self.tail = id;
        self.free += 1;
    }

    fn push_front(&mut self, id: BlockId) {
        let head = self.head;
        let block = &mut self.blocks[id as usize];
        (block.prev, block.next) = (NIL, head);
        match head {
            NIL => self.tail = id,
            head => self.blocks[head as usize].prev = id,
        }
        self.head = id;
        self.free += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let (prev, next) = (self.blocks[id as usize].prev, self.blocks[id as usize].next);
        match prev {
            NIL => self.head = next,
            prev => self.blocks[prev as usize].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => self.blocks[next as usize].prev = prev,
        }
        self.free -= 1;
    }
}

#[cfg(test)]
mod tests;
