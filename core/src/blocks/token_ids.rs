//! Blocks of token ids, for prompts that arrive as ids: [`IDS_PER_BLOCK`] ids each, no cut rule.

use core::ops::ControlFlow;

use super::mix::{absorb, avalanche};
use super::{BlockHash, IDS_PER_BLOCK, Seed};

/// A finished block of ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdBlock {
    /// Stands for the whole prompt up to the block's end.
    pub hash: BlockHash,
    /// Where the block ends in the slice of this very `feed` (exclusive; `1..=len`). A block is
    /// finished by its last id.
    pub end: usize,
}

/// The state of a chain at any id of a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdChain {
    acc: u64,
    /// The id that waits for its partner, if `block_len` is odd.
    pending: u32,
    /// Ids of this block so far.
    block_len: u16,
}

impl IdChain {
    /// The state before a prompt's first id.
    pub fn new(seed: Seed) -> Self {
        Self {
            acc: seed.0,
            pending: 0,
            block_len: 0,
        }
    }

    /// Takes the prompt's next ids and reports each block that they finish, in order.
    pub fn feed(&mut self, ids: &[u32], mut on_block: impl FnMut(IdBlock)) {
        // The closure never breaks.
        let _ = self.feed_while(ids, |block| {
            on_block(block);
            ControlFlow::Continue(())
        });
    }

    /// As [`feed`](Self::feed), until `on_block` breaks: the rest of `ids` is not taken.
    pub fn feed_while(
        &mut self,
        ids: &[u32],
        mut on_block: impl FnMut(IdBlock) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut rest = ids;
        let mut start = 0;
        while !rest.is_empty() {
            let missing = IDS_PER_BLOCK
                .saturating_sub(usize::from(self.block_len))
                .max(1);
            let (head, tail) = rest.split_at(missing.min(rest.len()));
            self.take(head);
            rest = tail;
            start += head.len();
            if usize::from(self.block_len) >= IDS_PER_BLOCK {
                let hash = avalanche(absorb(self.acc, u64::from(self.block_len)));
                *self = Self {
                    acc: hash,
                    pending: 0,
                    block_len: 0,
                };
                on_block(IdBlock {
                    hash: BlockHash(hash),
                    end: start,
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, ids: &[u32]) {
        let odd = self.block_len % 2 == 1;
        self.block_len = self.block_len.saturating_add(ids.len() as u16);
        let mut rest = ids;
        if odd && let Some((first, tail)) = rest.split_first() {
            self.acc = absorb(self.acc, pair(self.pending, *first));
            self.pending = 0;
            rest = tail;
        }
        let (pairs, tail) = rest.as_chunks::<2>();
        for [first, second] in pairs {
            self.acc = absorb(self.acc, pair(*first, *second));
        }
        if let [last] = tail {
            self.pending = *last;
        }
    }

    /// The state as bytes: accumulator (8, little-endian), pending id (4), ids in the block (2),
    /// zeros (10).
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut out = [0; 24];
        let (words, _) = out.as_chunks_mut::<8>();
        let fields = [
            self.acc,
            u64::from(self.pending) | (u64::from(self.block_len) << 32),
            0,
        ];
        for (word, field) in words.iter_mut().zip(fields) {
            *word = field.to_le_bytes();
        }
        out
    }

    /// The state that [`to_bytes`](Self::to_bytes) wrote. Any 24 bytes give a usable state.
    pub fn from_bytes(bytes: &[u8; 24]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let mut fields = [0u64; 3];
        for (field, word) in fields.iter_mut().zip(words) {
            *field = u64::from_le_bytes(*word);
        }
        let [acc, packed, _] = fields;
        let block_len = ((packed >> 32) & 0xffff).min(IDS_PER_BLOCK as u64 - 1) as u16;
        let pending = if block_len % 2 == 1 { packed as u32 } else { 0 };
        Self {
            acc,
            pending,
            block_len,
        }
    }
}

/// The hashes of the first `max_blocks` blocks of a prompt of ids.
pub fn hash_ids(seed: Seed, ids: &[u32], max_blocks: usize) -> Vec<BlockHash> {
    let covered = max_blocks.saturating_mul(IDS_PER_BLOCK).min(ids.len());
    let mut hashes = Vec::with_capacity(covered / IDS_PER_BLOCK);
    let covered = ids.get(..covered).unwrap_or_default();
    IdChain::new(seed).feed(covered, |block| hashes.push(block.hash));
    hashes
}

fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | (u64::from(second) << 32)
}
