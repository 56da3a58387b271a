//! Engine blocks by content: parent, tokens and what else went into the engine's hash. Shared by all
//! replicas of the pool.

use super::arena::NIL;
use super::tree::{Item, Links, Tree};

/// Nothing is known about the bytes at or after such a node: none of our blocks ends in it.
pub(super) const OPAQUE: u32 = 1 << 31;
/// The empty prompt of one namespace.
pub(super) const ROOT: u32 = 1 << 30;
/// The namespace belongs to a LoRA adapter.
pub(super) const LORA: u32 = 1 << 29;
/// The chain over token ids has been followed to this node's end.
pub(super) const IDS: u32 = 1 << 28;
/// The text chain has been followed to this node's end.
pub(super) const TEXT: u32 = 1 << 27;
const WIDE: u32 = 1 << 26;
/// Grown by decoding and not judged yet: no text is claimed of it.
pub(super) const HELD: u32 = 1 << 25;
/// No tokenizer makes these tokens of their text: none is ever claimed.
pub(super) const SPOILT: u32 = 1 << 24;
const TOKENS_MASK: u32 = SPOILT - 1;

/// Most tokens of a prompt that are followed.
pub(super) const MAX_TOKENS: u32 = TOKENS_MASK;

/// One engine block. One cache line.
#[derive(Debug)]
pub(super) struct Node {
    /// Chained hash of the content from the namespace's root to this block's end.
    pub(super) key: u64,
    /// The text chain's state at the block's end; in its last four bytes, which the chain leaves free,
    /// the token of the media run that the block ends in, and one more; 0: none.
    pub(super) text: [u8; 24],
    pub(super) links: Links,
    /// Cumulative tokens, and flags in the upper bits.
    tokens: u32,
    /// Who holds it.
    pub(super) holding: u32,
    /// The first of the links to our blocks that end in this node.
    pub(super) owns: u32,
    /// When it was last stored or continued: number of the batch.
    pub(super) used: u32,
}

impl Node {
    pub(super) fn new(
        key: u64,
        parent: u32,
        tokens: u32,
        flags: u32,
        holding: u32,
        used: u32,
    ) -> Self {
        Self {
            key,
            text: [0; 24],
            links: Links::below(parent),
            tokens: tokens & TOKENS_MASK | flags,
            holding,
            owns: NIL,
            used,
        }
    }

    pub(super) const fn tokens(&self) -> u32 {
        self.tokens & TOKENS_MASK
    }

    /// The token of the media run that the block ends in.
    pub(super) fn run(&self) -> Option<u32> {
        let noted = self.text.last_chunk().copied().map(u32::from_le_bytes);
        noted?.checked_sub(1)
    }

    /// After the chain's state has been set.
    pub(super) fn set_run(&mut self, token: Option<u32>) {
        let noted = token.map_or(0, |token| token.saturating_add(1));
        if let Some(place) = self.text.last_chunk_mut() {
            *place = noted.to_le_bytes();
        }
    }

    /// Whether any of the flags is set.
    pub(super) const fn is(&self, flags: u32) -> bool {
        self.tokens & flags != 0
    }

    pub(super) const fn set(&mut self, flags: u32) {
        self.tokens |= flags;
    }

    pub(super) const fn clear(&mut self, flags: u32) {
        self.tokens &= !flags | TOKENS_MASK;
    }

    /// The flags, without what concerns only this index's memory.
    pub(super) const fn flags(&self) -> u32 {
        self.tokens & (OPAQUE | ROOT | LORA | IDS | TEXT | HELD | SPOILT)
    }
}

impl Item for Node {
    fn links(&self) -> &Links {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn is_wide(&self) -> bool {
        self.is(WIDE)
    }
    fn set_wide(&mut self, wide: bool) {
        if wide {
            self.tokens |= WIDE
        } else {
            self.tokens &= !WIDE
        }
    }
}

pub(super) type Nodes = Tree<Node>;

/// Hashes content. Keyed by the pool's secret, so that nobody can make two prompts collide.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentHasher {
    words: u64,
    pairs: u64,
}

/// Folded multiplication: the 128-bit product's halves, xored.
#[allow(clippy::cast_possible_truncation)] // the halves of the product
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a).wrapping_mul(u128::from(b));
    (product as u64) ^ ((product >> 64) as u64)
}

impl ContentHasher {
    pub(super) const fn new(words: u64, pairs: u64) -> Self {
        Self {
            words,
            pairs: pairs | 1,
        }
    }

    fn mix(self, hash: u64, first: u64, second: u64) -> u64 {
        fold(hash ^ first ^ self.words, second ^ self.pairs) ^ hash.rotate_left(29)
    }

    /// The key of a block below `parent_key`. `extra`: hash of what beside tokens tells it apart.
    pub(super) fn block(self, parent_key: u64, tokens: &[u32], extra: u64) -> u64 {
        let mut hash = self.mix(parent_key, extra, tokens.len() as u64);
        let mut fours = tokens.chunks_exact(4);
        for four in &mut fours {
            if let [a, b, c, d] = four {
                hash = self.mix(hash, word(*a, *b), word(*c, *d));
            }
        }
        for token in fours.remainder() {
            hash = self.mix(hash, u64::from(*token), u64::MAX);
        }
        fold(hash ^ self.pairs, self.words | 1)
    }

    /// Hash of bytes, continued from `hash`.
    pub(super) fn bytes(self, hash: u64, bytes: &[u8]) -> u64 {
        bytes
            .chunks(8)
            .fold(self.mix(hash, bytes.len() as u64, 0x5bd1), |hash, chunk| {
                let mut word = [0; 8];
                word.iter_mut()
                    .zip(chunk)
                    .for_each(|(to, from)| *to = *from);
                self.mix(hash, u64::from_le_bytes(word), 0x1b87)
            })
    }
}

fn word(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_one_cache_line() {
        assert_eq!(size_of::<Node>(), 64);
    }

    #[test]
    fn content_keys_depend_on_parent_order_length_and_extras() {
        let hasher = ContentHasher::new(11, 12);
        let tokens: Vec<u32> = (0..16).collect();
        let mut keys = std::collections::BTreeSet::new();
        keys.insert(hasher.block(1, &tokens, 0));
        keys.insert(hasher.block(2, &tokens, 0));
        keys.insert(hasher.block(1, &tokens, 7));
        for length in 1..16 {
            keys.insert(hasher.block(1, &tokens[..length], 0));
        }
        for at in 0..15 {
            let mut swapped = tokens.clone();
            swapped.swap(at, at + 1);
            keys.insert(hasher.block(1, &swapped, 0));
            let mut changed = tokens.clone();
            changed[at] ^= 0x10_000;
            keys.insert(hasher.block(1, &changed, 0));
        }
        assert_eq!(keys.len(), 3 + 15 + 30);
    }
}
