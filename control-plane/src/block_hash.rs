//! vLLM's own block hash, recomputed: a check of what engines announce, never needed for routing.
//!
//! `H_i = H(serialised((H_{i-1}, (token, ...), extra_keys)))`, where the serialisation is Python's
//! pickle, protocol 5, or canonical CBOR, and `H_{-1}` is the hash of a seed text. Engines before
//! vLLM 0.29 without `PYTHONHASHSEED` start from random bytes, so that nothing can be recomputed.
//!
//! Absent: the identifier of a media item that occurs twice in one block. Pickle writes the second
//! as a reference if both are one Python object, which cannot be seen from outside.

use sha2::{Digest as _, Sha256};

mod cbor;
mod pickle;

/// vLLM's `--prefix-caching-hash-algo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// `sha256`, the default: SHA-256 over pickle.
    Sha256,
    /// `sha256_cbor`.
    Sha256Cbor,
    /// `xxhash`: XXH3, 128 bits, over pickle.
    Xxhash,
    /// `xxhash_cbor`.
    XxhashCbor,
}

impl Algorithm {
    /// By the name that vLLM's option and its `cache_config_info` metric use.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Self::Sha256),
            "sha256_cbor" => Some(Self::Sha256Cbor),
            "xxhash" => Some(Self::Xxhash),
            "xxhash_cbor" => Some(Self::XxhashCbor),
            _ => None,
        }
    }

    /// As [`Self::of_name`] takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha256Cbor => "sha256_cbor",
            Self::Xxhash => "xxhash",
            Self::XxhashCbor => "xxhash_cbor",
        }
    }

    fn serialise(self, value: &Value<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Sha256 | Self::Xxhash => pickle::write(value, out),
            Self::Sha256Cbor | Self::XxhashCbor => cbor::write(value, out),
        }
    }

    fn digest(self, bytes: &[u8]) -> Digest {
        match self {
            Self::Sha256 | Self::Sha256Cbor => Digest::new(&Sha256::digest(bytes)),
            Self::Xxhash | Self::XxhashCbor => {
                Digest::new(&twox_hash::XxHash3_128::oneshot(bytes).to_be_bytes())
            }
        }
    }
}

/// The seed text of vLLM 0.29 and later where `PYTHONHASHSEED` is not set.
pub const DEFAULT_SEED: &str = "vllm-none-hash";

/// A digest of 32 bytes (SHA-256) or 16 (XXH3).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    bytes: [u8; 32],
    length: u8,
}

impl Digest {
    /// From 32 or 16 bytes; of other lengths the first 32 are kept.
    #[must_use]
    pub fn new(digest: &[u8]) -> Self {
        let mut bytes = [0; 32];
        let mut length = 0;
        for (to, from) in bytes.iter_mut().zip(digest) {
            *to = *from;
            length += 1;
        }
        Self { bytes, length }
    }

    /// The digest.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }

    /// What events carry by default: the last 8 bytes as a big-endian number.
    #[must_use]
    pub fn low(&self) -> u64 {
        let bytes = self.as_bytes();
        bytes
            .iter()
            .skip(bytes.len().saturating_sub(8))
            .fold(0, |low, byte| (low << 8) | u64::from(*byte))
    }
}

/// Lower-case hex.
impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// A Python value, as far as block hashes hold such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `None`
    None,
    /// An `int`.
    Int(i64),
    /// A `str` of its own.
    Text(&'a str),
    /// A `str` that stands in vLLM's source, like `"mm"`: every occurrence is the same object, which
    /// pickle writes once and refers to from then on.
    Literal(&'static str),
    /// A `bytes`.
    Bytes(&'a [u8]),
    /// A `tuple`.
    Tuple(Vec<Value<'a>>),
    /// A `tuple` of token ids.
    Tokens(&'a [u32]),
}

impl<'a> Value<'a> {
    /// The salt as it goes into a prompt's first block, vLLM 0.31 and later. Before, it was the bare
    /// text.
    #[must_use]
    pub fn salt(salt: &'a str) -> Self {
        Self::Tuple(vec![Self::Literal("cache_salt"), Self::Text(salt)])
    }

    /// A LoRA adapter, vLLM 0.31 and later. Before, it was the bare name.
    #[must_use]
    pub fn lora(name: &'a str, path: &'a str) -> Self {
        Self::Tuple(vec![
            Self::Literal("lora"),
            Self::Text(name),
            Self::Text(path),
        ])
    }

    /// A media item, vLLM 0.31 and later; `offset` counts from the block's first token.
    #[must_use]
    pub fn media(identifier: &'a str, offset: i64) -> Self {
        Self::Tuple(vec![
            Self::Literal("mm"),
            Self::Text(identifier),
            Self::Int(offset),
        ])
    }
}

/// Computes chains of block hashes.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    algorithm: Algorithm,
    none_hash: Digest,
    scratch: Vec<u8>,
}

impl BlockHasher {
    /// With the seed text of the engine: [`DEFAULT_SEED`], or its `PYTHONHASHSEED`.
    #[must_use]
    pub fn new(algorithm: Algorithm, seed: &str) -> Self {
        let mut scratch = Vec::new();
        algorithm.serialise(&Value::Text(seed), &mut scratch);
        Self {
            algorithm,
            none_hash: algorithm.digest(&scratch),
            scratch,
        }
    }

    /// What stands for the parent of a prompt's first block.
    #[must_use]
    pub fn none_hash(&self) -> Digest {
        self.none_hash
    }

    /// The hash of one block. `extra` is `None` or a tuple of extra keys.
    pub fn block(&mut self, parent: &Digest, tokens: &[u32], extra: Value<'_>) -> Digest {
        self.scratch.clear();
        let input = Value::Tuple(vec![
            Value::Bytes(parent.as_bytes()),
            Value::Tokens(tokens),
            extra,
        ]);
        self.algorithm.serialise(&input, &mut self.scratch);
        self.algorithm.digest(&self.scratch)
    }

    /// The hashes of a prompt's full blocks. `extra` gives each block's extra keys, by its number.
    /// With a look-ahead (EAGLE, MTP) a block is hashed once that many tokens follow it, and they are
    /// part of its hash.
    pub fn prompt<'a>(
        &mut self,
        tokens: &'a [u32],
        block_size: usize,
        lookahead: usize,
        mut extra: impl FnMut(usize) -> Value<'a>,
    ) -> Vec<Digest> {
        let mut parent = self.none_hash;
        let mut hashes = Vec::new();
        for (number, block) in tokens.chunks_exact(block_size.max(1)).enumerate() {
            let end = (number + 1) * block_size;
            let Some(following) = tokens.get(end..end.saturating_add(lookahead)) else {
                break;
            };
            let keys = extra(number);
            let keys = if lookahead == 0 {
                keys
            } else {
                let following = following.iter().map(|token| Value::Int(i64::from(*token)));
                Value::Tuple(std::iter::once(keys).chain(following).collect())
            };
            parent = self.block(&parent, block, keys);
            hashes.push(parent);
        }
        hashes
    }

    /// The bytes that were hashed last.
    #[must_use]
    pub fn last_input(&self) -> &[u8] {
        &self.scratch
    }
}

#[cfg(test)]
mod tests;
