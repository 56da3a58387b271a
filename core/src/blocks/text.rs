//! Blocks of text: the token-aligned cutter and the chained hash, in one streaming pass.
//!
//! A block that has [`TARGET_BYTES`] ends before the first space that follows a visible ASCII
//! character other than `>` (a *soft* cut: a token boundary in every tokenizer we tried). One that
//! has [`HARD_CAP_BYTES`] ends before the next byte that begins a UTF-8 character (a *hard* cut).
//! The rule looks at the block's own bytes and the one after, so it does not matter where in the
//! prompt a reader starts, nor in which pieces the bytes arrive.

use core::ops::ControlFlow;

use super::mix::{absorb, avalanche};
use super::{BlockHash, HARD_CAP_BYTES, MAX_BLOCK_BYTES, Seed, TARGET_BYTES};

/// A finished block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextBlock {
    /// Stands for the whole prompt up to the block's end.
    pub hash: BlockHash,
    /// Where the block ends in the slice of this very `feed` (exclusive; `0..len`). A block is
    /// finished when the byte after it is seen, so 0 means: it ended with the slice before.
    pub end: usize,
    /// Whether it was cut where a token may lie across: count
    /// [`HARD_CUT_HOLDBACK_TOKENS`](super::HARD_CUT_HOLDBACK_TOKENS) less.
    pub hard_cut: bool,
}

/// The state of a chain at any byte of a prompt. Cheap to copy and to store: a prompt that shares a
/// prefix with another continues from a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextChain {
    /// Hash of the blocks before this one, with this block's whole words mixed in.
    acc: u64,
    /// This block's bytes that do not fill a word yet: `block_len % 8` of them, little-endian.
    pending: u64,
    /// Bytes of this block so far.
    block_len: u16,
    /// The last byte fed; decides whether a cut may come here.
    last: u8,
}

impl TextChain {
    /// The state before a prompt's first byte.
    pub fn new(seed: Seed) -> Self {
        Self {
            acc: seed.0,
            pending: 0,
            block_len: 0,
            last: 0,
        }
    }

    /// Takes the prompt's next bytes and reports each block that they finish, in order.
    ///
    /// Any division of a prompt into slices gives the same blocks. The bytes after the last cut
    /// stay in the state: a prompt's unfinished end has no hash.
    pub fn feed(&mut self, bytes: &[u8], mut on_block: impl FnMut(TextBlock)) {
        // The closure never breaks.
        let _ = self.feed_while(bytes, |block| {
            on_block(block);
            ControlFlow::Continue(())
        });
    }

    /// As [`feed`](Self::feed), until `on_block` breaks: the state then stands at that block's end,
    /// and the rest of `bytes` is not taken.
    pub fn feed_while(
        &mut self,
        bytes: &[u8],
        mut on_block: impl FnMut(TextBlock) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut start = 0;
        loop {
            // Up to the target nothing can be cut: hash in bulk.
            let rest = bytes.get(start..).unwrap_or_default();
            let bulk = TARGET_BYTES
                .saturating_sub(usize::from(self.block_len))
                .min(rest.len());
            let (head, tail) = rest.split_at(bulk);
            self.take(head);
            let Some((cut, hard_cut)) = self.find_cut(tail) else {
                self.take(tail);
                return ControlFlow::Continue(());
            };
            self.take(tail.get(..cut).unwrap_or_default());
            start += bulk + cut;
            on_block(TextBlock {
                hash: self.finish(hard_cut),
                end: start,
                hard_cut,
            })?;
        }
    }

    /// Ends the block here if this next byte says so.
    pub(super) fn cut_before(&mut self, next: Option<u8>) -> Option<TextBlock> {
        if usize::from(self.block_len) < TARGET_BYTES {
            return None;
        }
        let (_, hard_cut) = self.find_cut(&[next?])?;
        Some(TextBlock {
            hash: self.finish(hard_cut),
            end: 0,
            hard_cut,
        })
    }

    pub(super) fn replace_accumulator(&mut self, acc: u64) {
        self.acc = acc;
    }

    /// Bytes of the unfinished block.
    pub fn pending_bytes(&self) -> usize {
        usize::from(self.block_len)
    }

    /// The first place in `bytes` before which this block ends, and whether that is a hard cut.
    /// The block has its target already, or `bytes` is empty.
    #[inline]
    fn find_cut(&self, bytes: &[u8]) -> Option<(usize, bool)> {
        let soft_zone = HARD_CAP_BYTES
            .saturating_sub(usize::from(self.block_len))
            .min(bytes.len());
        let (zone, beyond) = bytes.split_at(soft_zone);
        let byte_before = |at: usize| {
            at.checked_sub(1)
                .map_or(Some(self.last), |at| bytes.get(at).copied())
                .unwrap_or(b' ')
        };
        let mut from = 0;
        while let Some(space) = find_space(zone.get(from..).unwrap_or_default()) {
            let at = from + space;
            if ends_a_token(byte_before(at)) {
                return Some((at, false));
            }
            from = at + 1;
        }
        let block_len = usize::from(self.block_len) + soft_zone;
        for (ahead, &next) in beyond.iter().enumerate() {
            let at = soft_zone + ahead;
            if next == b' ' && ends_a_token(byte_before(at)) {
                return Some((at, false));
            }
            if !is_utf8_continuation(next) || block_len + ahead >= MAX_BLOCK_BYTES {
                return Some((at, true));
            }
        }
        None
    }

    /// Hashes bytes that belong to this block.
    #[inline]
    fn take(&mut self, bytes: &[u8]) {
        let Some(&last) = bytes.last() else { return };
        self.last = last;
        let filled = u32::from(self.block_len % 8);
        self.block_len = self.block_len.saturating_add(bytes.len() as u16);
        let mut rest = bytes;
        if filled > 0 {
            let missing = 8 - filled as usize;
            let (head, tail) = rest.split_at(missing.min(rest.len()));
            self.pending |= little_endian(head) << (8 * filled);
            if head.len() < missing {
                return;
            }
            self.acc = absorb(self.acc, self.pending);
            rest = tail;
        }
        let (words, tail) = rest.as_chunks::<8>();
        let mut acc = self.acc;
        for word in words {
            acc = absorb(acc, u64::from_le_bytes(*word));
        }
        self.acc = acc;
        self.pending = little_endian(tail);
    }

    /// Ends the block. Its hash is where the next block starts.
    fn finish(&mut self, hard_cut: bool) -> BlockHash {
        // At most 7 pending bytes leave the top byte free for the length (a block that ends has
        // between the target and the maximum) and the kind of cut. The kind is part of the hash
        // since the same bytes, cut hard, are worth fewer tokens.
        let over_target = u64::from(self.block_len).saturating_sub(TARGET_BYTES as u64) & 0x7f;
        let ending = self.pending | (over_target << 56) | (u64::from(hard_cut) << 63);
        let hash = avalanche(absorb(self.acc, ending));
        *self = Self {
            acc: hash,
            pending: 0,
            block_len: 0,
            last: self.last,
        };
        BlockHash(hash)
    }

    /// The state as bytes: accumulator (8, little-endian), pending bytes (7), last byte (1), block
    /// length (2, little-endian), zeros (6), which [`from_bytes`](Self::from_bytes) does not look at:
    /// who keeps states may note something there.
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut out = [0; 24];
        let (words, _) = out.as_chunks_mut::<8>();
        let fields = [
            self.acc,
            self.pending | (u64::from(self.last) << 56),
            u64::from(self.block_len),
        ];
        for (word, field) in words.iter_mut().zip(fields) {
            *word = field.to_le_bytes();
        }
        out
    }

    /// The state that [`to_bytes`](Self::to_bytes) wrote. Any 24 bytes give a usable state, but only
    /// those that it wrote give one that means something: guard stored states by a checksum.
    pub fn from_bytes(bytes: &[u8; 24]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let mut fields = [0u64; 3];
        for (field, word) in fields.iter_mut().zip(words) {
            *field = u64::from_le_bytes(*word);
        }
        let [acc, packed, block_len] = fields;
        let block_len = (block_len & 0xffff).min(MAX_BLOCK_BYTES as u64) as u16;
        let pending_mask = (1u64 << (8 * u32::from(block_len % 8))) - 1;
        Self {
            acc,
            pending: packed & pending_mask,
            block_len,
            last: (packed >> 56) as u8,
        }
    }
}

/// The hashes of the first `max_blocks` blocks of a prompt.
pub fn hash_text(seed: Seed, prompt: &[u8], max_blocks: usize) -> Vec<BlockHash> {
    let mut hashes = Vec::with_capacity(max_blocks.min(prompt.len() / TARGET_BYTES));
    if max_blocks > 0 {
        let _ = TextChain::new(seed).feed_while(prompt, |block| {
            hashes.push(block.hash);
            if hashes.len() < max_blocks {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
    hashes
}

/// Whether a token ends between this byte and a space: a visible ASCII character, except `>` (one
/// vocabulary has a token `> </`).
fn ends_a_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'>'
}

/// Where the first space is, looking at a word at a time: text without spaces has 64 bytes to look
/// through in each block.
#[inline]
fn find_space(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const SPACES: u64 = u64::from_le_bytes([b' '; 8]);
    let (words, tail) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        // A byte that is a space becomes 0, and the lowest 0 byte's top bit is the first one set.
        let differs = u64::from_le_bytes(*word) ^ SPACES;
        let zeros = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        if zeros != 0 {
            return Some(8 * at + zeros.trailing_zeros() as usize / 8);
        }
    }
    let in_tail = tail.iter().position(|byte| *byte == b' ')?;
    Some(8 * words.len() + in_tail)
}

fn is_utf8_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// At most 8 bytes as a number.
#[inline]
fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |n, byte| (n << 8) | u64::from(*byte))
}
