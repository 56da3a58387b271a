//! A prompt in blocks: chained hashes, where each block ends, and what that is in tokens.

use std::ops::ControlFlow;

use super::mix::{absorb, avalanche};
use super::{
    BlockHash, Family, IDS_PER_BLOCK, MAX_BLOCK_BYTES, MediaKey, Namespace, Seed, TARGET_BYTES,
    TextBlock, TextChain, hash_ids, seed,
};
use crate::prompt::{Prompt, PromptText};
use crate::sync::PoolHead;
use crate::table::ReplicaMatch;

/// Blocks hashed at most: about 2 M tokens.
const BLOCKS_MAX: usize = 1 << 15;
/// Blocks by whose hash prompts are told to begin alike: about 500 tokens of text.
const PREFIX_KEY_BLOCKS: usize = 8;
/// Prompt bytes per token, in thousandths, until the pool has learned better.
const BYTES_PER_TOKEN_MILLI: u32 = 4_000;

/// A prompt in blocks.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Chained hashes, at most [`BLOCKS_MAX`].
    pub hashes: Vec<BlockHash>,
    /// Hash of the second block's bytes (or ids) alone, whatever stands before them; 0: there is none.
    /// Prompts that differ in their first block only, as by a date, share it.
    pub second: u64,
    /// Where each block ends: bytes of a text, ids of a token-id prompt.
    pub ends: Vec<usize>,
    /// The prompt's length in the same unit.
    pub len: usize,
    /// Thousandths of bytes (or ids) per token.
    pub per_token_milli: u32,
    /// Bytes (or ids) in the longest block.
    pub block_len: usize,
}

impl Blocks {
    /// Cuts and hashes a prompt, in the namespace of its kind.
    #[must_use]
    pub fn of<'n>(
        prompt: &Prompt,
        pool: &PoolHead,
        namespace: impl Fn(Family) -> Namespace<'n>,
    ) -> Self {
        let start = |family| seed(&pool.key, &namespace(family));
        match prompt {
            Prompt::Text(text) => {
                let seed = start(Family::Text);
                let (hashes, ends) = hash_text(seed, text);
                let words = second(&ends, text.text.as_bytes());
                Self {
                    second: hash_alone(seed, words, |byte| u64::from(*byte)),
                    hashes,
                    ends,
                    len: text.text.len(),
                    per_token_milli: bytes_per_token_milli(pool),
                    block_len: MAX_BLOCK_BYTES,
                }
            }
            Prompt::TokenIds(ids) => {
                let seed = start(Family::TokenIds);
                let hashes = hash_ids(seed, ids, BLOCKS_MAX);
                let ends: Vec<usize> = (1..=hashes.len()).map(|n| n * IDS_PER_BLOCK).collect();
                Self {
                    second: hash_alone(seed, second(&ends, ids), |id| u64::from(*id)),
                    hashes,
                    ends,
                    len: ids.len(),
                    per_token_milli: 1_000,
                    block_len: IDS_PER_BLOCK,
                }
            }
        }
    }

    /// The same for all prompts that begin alike; 0 where there is no whole block.
    #[must_use]
    pub fn prefix_key(&self) -> u64 {
        let at = self.hashes.len().min(PREFIX_KEY_BLOCKS);
        let last = at.checked_sub(1).and_then(|at| self.hashes.get(at));
        last.map_or(0, |hash| hash.0)
    }

    /// Tokens after the first `blocks` blocks, at least one: a block only ends where something
    /// follows, or the engine computes the last token anyway.
    #[must_use]
    pub fn tokens_after(&self, blocks: u32) -> u32 {
        let rest = self.len.saturating_sub(self.end(blocks));
        tokens(rest as u64, self.per_token_milli).max(1)
    }

    /// The prompt's length in tokens: known for token ids, else what the replica that holds most counted
    /// and an estimate of the rest.
    #[must_use]
    pub fn prompt_tokens(&self, prompt: &Prompt, found: &[ReplicaMatch]) -> u32 {
        match (prompt, found.iter().max_by_key(|m| m.any_tokens)) {
            (Prompt::TokenIds(ids), _) => u32::try_from(ids.len()).unwrap_or(u32::MAX),
            (Prompt::Text(_), None) => self.tokens_after(0),
            (Prompt::Text(_), Some(best)) => best
                .any_tokens
                .saturating_add(self.tokens_after(best.any_blocks)),
        }
    }

    /// Tokens of the blocks after the first `from` up to the first `to`.
    #[must_use]
    pub fn tokens_between(&self, from: u32, to: u32) -> u32 {
        let len = self.end(to).saturating_sub(self.end(from)) as u64;
        let tokens = len.saturating_mul(1_000) / u64::from(self.per_token_milli.max(1));
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The blocks that will be found cached once the prompt was computed: an engine caches whole blocks
    /// of its own, of `engine_block` tokens.
    #[must_use]
    pub fn cacheable(&self, engine_block: u32) -> &[BlockHash] {
        let rest = u64::from(engine_block) * u64::from(self.per_token_milli) / 1_000;
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        let last = self.len.saturating_sub(rest);
        let count = self.ends.partition_point(|&end| end <= last);
        self.hashes.get(..count).unwrap_or_default()
    }

    /// Where the first `blocks` blocks end.
    fn end(&self, blocks: u32) -> usize {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        let last = blocks.checked_sub(1).and_then(|at| self.ends.get(at));
        last.copied().unwrap_or(0)
    }
}

/// Tokens of so many bytes (or ids), rounded up.
#[must_use]
pub fn tokens(bytes: u64, per_token_milli: u32) -> u32 {
    let tokens = bytes
        .saturating_mul(1_000)
        .div_ceil(u64::from(per_token_milli.max(1)));
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// Prompt bytes per token of a pool, in thousandths.
#[must_use]
pub fn bytes_per_token_milli(pool: &PoolHead) -> u32 {
    if pool.bytes_per_token_milli == 0 {
        BYTES_PER_TOKEN_MILLI
    } else {
        pool.bytes_per_token_milli
    }
}

/// The second block's bytes (or ids).
fn second<'p, T>(ends: &[usize], prompt: &'p [T]) -> Option<&'p [T]> {
    let [first, second, ..] = ends else {
        return None;
    };
    prompt.get(*first..*second)
}

/// A keyed hash of a block by itself; 0 of none.
fn hash_alone<T>(seed: Seed, block: Option<&[T]>, word: impl Fn(&T) -> u64) -> u64 {
    block.map_or(0, |block| {
        let words = block.iter().map(word);
        avalanche(words.fold(seed.0, absorb)).max(1)
    })
}

/// Block hashes of a text and where each block ends.
fn hash_text(seed: Seed, text: &PromptText) -> (Vec<BlockHash>, Vec<usize>) {
    let bytes = text.text.as_bytes().get(..text.exact_bytes);
    let bytes = bytes.unwrap_or_default();
    let capacity = (bytes.len() / TARGET_BYTES + 1).min(BLOCKS_MAX);
    let mut hashing = Hashing {
        chain: TextChain::new(seed),
        hashes: Vec::with_capacity(capacity),
        ends: Vec::with_capacity(capacity),
    };
    let _ = hash_parts(&mut hashing, bytes, text);
    (hashing.hashes, hashing.ends)
}

struct Hashing {
    chain: TextChain,
    hashes: Vec<BlockHash>,
    ends: Vec<usize>,
}

/// Text and media items in turn. Ends where an item is not where it says, or has no usable
/// identifier: from there on nothing is known.
fn hash_parts(hashing: &mut Hashing, bytes: &[u8], text: &PromptText) -> ControlFlow<()> {
    let mut done = 0;
    for item in &text.media {
        let end = item.at.saturating_add(item.len);
        let parts = bytes.get(done..item.at).zip(bytes.get(item.at..end));
        let (Some((before, placeholder)), Some(key)) = (parts, MediaKey::of(&item.identifier))
        else {
            // What comes before the item is known all the same.
            let before = bytes.get(done..item.at.min(bytes.len()));
            return hash_bytes(hashing, done, before.unwrap_or_default());
        };
        hash_bytes(hashing, done, before)?;
        let Hashing {
            chain,
            hashes,
            ends,
        } = hashing;
        chain.feed_media_while(key, placeholder, |block| note(hashes, ends, item.at, block))?;
        done = end;
    }
    hash_bytes(hashing, done, bytes.get(done..).unwrap_or_default())
}

/// A function of its own on purpose: the engine that runs the filter optimises a function only when
/// it is entered again, and large ones late.
#[inline(never)]
fn hash_bytes(hashing: &mut Hashing, start: usize, bytes: &[u8]) -> ControlFlow<()> {
    let Hashing {
        chain,
        hashes,
        ends,
    } = hashing;
    chain.feed_while(bytes, |block| note(hashes, ends, start, block))
}

#[inline]
fn note(
    hashes: &mut Vec<BlockHash>,
    ends: &mut Vec<usize>,
    start: usize,
    block: TextBlock,
) -> ControlFlow<()> {
    hashes.push(block.hash);
    ends.push(start + block.end);
    if hashes.len() < BLOCKS_MAX {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::PoolKey;
    use crate::prompt::MediaItem;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const SEED: Seed = Seed(7);

    /// Prose with an image's placeholder in two places.
    fn prompt(first: &str, second: &str) -> PromptText {
        let (mut text, mut media) = (String::new(), Vec::new());
        for (words, identifier) in [(90, first), (70, second)] {
            text.push_str(&"some words of prose ".repeat(words));
            media.push(MediaItem {
                at: text.len(),
                len: "<|image_pad|>".len(),
                identifier: identifier.to_owned(),
            });
            text.push_str("<|image_pad|>");
        }
        text.push_str(&" and so on".repeat(100));
        PromptText {
            exact_bytes: text.len(),
            text,
            media,
        }
    }

    #[test]
    fn items_are_mixed_in_where_they_stand() {
        let (text, other) = (prompt("cat", "dog"), prompt("cat", "cow"));
        let (hashes, ends) = hash_text(SEED, &text);
        let plain = hash_text(SEED, &PromptText::from(text.text.clone()));
        // The same cuts, and the same hashes up to the first item.
        assert_eq!(ends, plain.1);
        let before = |at: usize| ends.iter().filter(|end| **end <= at).count();
        let first = before(text.media[0].at);
        assert!(first > 5);
        assert_eq!(hashes[..first], plain.0[..first]);
        assert!(hashes[first..].iter().all(|hash| !plain.0.contains(hash)));
        let second = before(text.media[1].at);
        let other = hash_text(SEED, &other).0;
        assert_eq!(hashes[..second], other[..second]);
        assert!(hashes[second..].iter().all(|hash| !other.contains(hash)));
    }

    #[test]
    fn the_second_block_alone_does_not_know_what_stands_before() {
        let pool = PoolHead {
            name: "p".to_owned(),
            key: PoolKey([7; 32]),
            profile_hash: 1,
            models: Vec::new(),
            clusters: Vec::new(),
            block_size: 16,
            bytes_per_token_milli: 0,
            token_ids: true,
            loras: Vec::new(),
            full_reports: false,
        };
        let of = |prompt: Prompt, salt: Option<&str>| {
            let namespace = |family| Namespace {
                family,
                profile_hash: 1,
                lora: None,
                salt,
            };
            Blocks::of(&prompt, &pool, namespace)
        };
        let text = |date: &str, word: &str| {
            let text = format!("{date} {}", format!("all the {word} same ").repeat(60));
            Prompt::Text(PromptText::from(text))
        };
        let ids = |first: u32, second: u32| {
            Prompt::TokenIds([vec![first; 64], vec![second; 64], vec![3; 9]].concat())
        };
        let kinds: [[Prompt; 3]; 2] = [
            [
                text("2026-11-30", "very"),
                text("2026-12-01", "very"),
                text("2026-11-30", "much"),
            ],
            [ids(1, 5), ids(2, 5), ids(1, 6)],
        ];
        for [one, dated, other] in kinds {
            let salted = of(one.clone(), Some("salt"));
            let [one, dated, other] = [one, dated, other].map(|prompt| of(prompt, None));
            assert_ne!(one.second, 0);
            assert_eq!(one.second, dated.second);
            assert_ne!(one.hashes[1], dated.hashes[1]);
            assert!(other.second != one.second && salted.second != one.second);
        }
        let short = of(Prompt::TokenIds(vec![1; 127]), None);
        assert_eq!((short.hashes.len(), short.second), (1, 0));
    }

    #[test]
    fn nothing_is_hashed_from_an_item_on_that_is_not_where_it_says() {
        let text = prompt("cat", "dog");
        let (hashes, ends) = hash_text(SEED, &text);
        let at = text.media[1].at;
        let known = ends.iter().filter(|end| **end < at).count();
        for change in [
            |item: &mut MediaItem| item.len = usize::MAX,
            |item: &mut MediaItem| item.at += 10_000,
            |item: &mut MediaItem| item.identifier = "x".repeat(5_000),
        ] {
            let mut broken = text.clone();
            change(&mut broken.media[1]);
            let found = hash_text(SEED, &broken).0;
            assert!(found.len() >= known);
            assert_eq!(found[..known], hashes[..known]);
        }
        let mut unordered = text.clone();
        unordered.media.swap(0, 1);
        assert!(hash_text(SEED, &unordered).0.len() < hashes.len());
        let cut = PromptText {
            exact_bytes: at,
            media: text.media[..1].to_vec(),
            ..text
        };
        assert_eq!(hash_text(SEED, &cut).0, hashes[..known]);
    }
}
