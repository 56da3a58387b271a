//! A prompt's bytes (or token ids) -> blocks -> one chained 64-bit hash per block.
//!
//! The filter hashes the text that it rendered; the control plane hashes the bytes that the
//! engine's tokens stand for. Both cut and hash with the code below, so equal prefixes give equal
//! [`BlockHash`]es without either side asking the other.
//!
//! - [`text`]: the token-aligned cutter and [`TextChain`], fed in pieces of any size;
//! - [`token_ids`]: the same for prompts that arrive as token ids;
//! - [`media`]: images and the like, known by their identifiers;
//! - [`mod@seed`]: where a chain starts, so that pools, profiles, adapters and salts never meet.
//!
//! What is covered by one hash: the seed, and every byte (or id) from the prompt's start to the
//! block's end. Absent on purpose: tokenizers (the cut rule stands in for them).
//!
//! The hash is not a cryptographic one: SHA-256 over all bytes costs 3 ms per 100K tokens in Envoy,
//! three times everything else that the filter does. Who does not know the seed's secret cannot
//! compute hashes or test collisions offline.

pub mod media;
mod mix;
pub mod prompt;
pub mod seed;
pub mod text;
pub mod token_ids;

#[cfg(test)]
mod tests;

pub use crate::ids::BlockHash;
pub use media::MediaKey;
pub use seed::{Family, Namespace, PoolKey, Seed, seed};
pub use text::{TextBlock, TextChain, hash_text};
pub use token_ids::{IdBlock, IdChain, hash_ids};

/// Version of everything that a hash depends on: cut rule, block sizes, mixing, seed derivation.
/// Part of the seed and of every page, so that two versions never match each other.
pub const HASH_DOMAIN_VERSION: u16 = 1;

/// From this many bytes on a text block ends at the next safe place (about 64 tokens).
pub const TARGET_BYTES: usize = 256;

/// From this many bytes on a text block ends at the next character boundary, safe or not.
pub const HARD_CAP_BYTES: usize = 320;

/// Longest text block: a hard cut waits at most this long for a character boundary, which only
/// invalid UTF-8 needs.
pub const MAX_BLOCK_BYTES: usize = HARD_CAP_BYTES + 4;

/// A block that ended at a hard cut counts this many tokens less: the tokens around such a cut may
/// differ between two prompts that share the bytes before it.
pub const HARD_CUT_HOLDBACK_TOKENS: u32 = 4;

/// Token ids in one block of an [`IdChain`].
pub const IDS_PER_BLOCK: usize = 64;
