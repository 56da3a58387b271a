//! What engines say about their KV caches, decoded.
//!
//! An engine publishes one ZMQ message per scheduler step that changed its cache: a topic, a
//! sequence number and a MessagePack payload ([`frame`]). A payload is a batch of events
//! ([`decode_batch`]). Every wire form of vLLM 0.10 to 0.33 and of SGLang is read: events as
//! arrays or as maps, mixed in one batch, hashes as integers or as bytes, fields missing or nil.
//!
//! A bad event never loses its batch: it is left out and named in [`KvEventBatch::problems`].
//! What is merely unknown (a new tag, a new field) is named in [`KvEventBatch::notes`].
//!
//! Absent here: what the events mean (copies, tiers, groups, orphans), which is the index's part.

use std::borrow::Cow;

mod cursor;
mod decode;
pub mod frame;
mod identity;
mod stored;

pub use decode::{DecodeError, decode_batch};
pub use identity::BlockIdentity;

/// Most tokens a block may say to have. The largest seen in an engine is about 4,000 (hybrid
/// models); more than this is taken for damage, and the event is refused.
pub const MAX_BLOCK_SIZE_TOKENS: u32 = 1 << 20;

/// A name from the wire. Names that every event repeats (`GPU`, `full_attention`) are borrowed from
/// the program, so that they cost no allocation.
pub type Name = Cow<'static, str>;

/// One message of one engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvEventBatch {
    /// When the engine made the batch, seconds since 1970 by its own clock. 0 where it does not say.
    pub ts: f64,
    /// Data-parallel rank of the engine core that made the batch.
    pub rank: Option<i64>,
    /// The events that could be read, in order.
    pub events: Vec<KvEvent>,
    /// Harmless oddities: unknown tags and fields. Each at most once, at most [`MAX_REMARKS`].
    pub notes: Vec<String>,
    /// Events that had to be left out, and why. At most [`MAX_REMARKS`] texts.
    pub problems: Vec<String>,
    /// How many events were left out as bad; counts on where `problems` is full.
    pub bad_events: u32,
    /// One of them may have been a removal or a clearing: what was known of the replica may now be
    /// more than it has.
    pub lost_removals: bool,
}

/// Most notes, and most problems, that a batch holds.
pub const MAX_REMARKS: usize = 16;

/// One change of a KV cache.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // stores outweigh the rest; a box would cost them an allocation
pub enum KvEvent {
    /// Blocks are now cached.
    Stored(Stored),
    /// Blocks are no longer cached.
    Removed(Removed),
    /// The GPU tier of this rank is empty.
    Cleared,
}

/// An engine's own hash of one of its blocks, which stands for the whole prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct EngineHash {
    /// The hash as an integer: an integer on the wire bit-cast to unsigned, or the last 8 bytes
    /// of a byte string as a big-endian number (shorter ones filled with zeros in front). This is
    /// how vLLM itself derives integers from digests, so both forms of one hash agree.
    pub low: u64,
    /// The whole hash where the engine sends bytes.
    pub bytes: Option<Box<[u8]>>,
}

impl EngineHash {
    /// From the wire's integer form.
    #[must_use]
    pub const fn from_u64(low: u64) -> Self {
        Self { low, bytes: None }
    }

    /// From the wire's byte form.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let low = bytes
            .iter()
            .skip(bytes.len().saturating_sub(8))
            .fold(0, |low, byte| (low << 8) | u64::from(*byte));
        Self {
            low,
            bytes: Some(bytes.into()),
        }
    }
}

/// Lower-case hex: 16 digits of an integer, else two per byte.
impl std::fmt::Display for EngineHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.bytes {
            None => write!(f, "{:016x}", self.low),
            Some(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// A run of blocks that is now cached.
///
/// `tokens` covers the whole run from the first new block to the last. In groups that keep only some
/// blocks (sliding window, Mamba) it is longer than `hashes` times `block_size`, with nothing to say
/// which tokens belong to which hash: [`Stored::is_dense`] tells.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Stored {
    /// The blocks, in order.
    pub hashes: Vec<EngineHash>,
    /// The block before the run; `None` at the start of a prompt (and in offload placeholders).
    pub parent: Option<EngineHash>,
    /// Token ids of the run.
    pub tokens: Vec<u32>,
    /// Tokens per block; 0 in offload placeholders, which only say that a known hash is in another
    /// tier, and where it was nil.
    pub block_size: u32,
    /// Whether `block_size` was on the wire at all.
    pub block_size_given: bool,
    /// Deprecated by vLLM in favour of `lora_name`; depends on the order of loading.
    pub lora_id: Option<i64>,
    /// The LoRA adapter; `None` for the base model.
    pub lora_name: Option<String>,
    /// The tier, verbatim: `GPU`, `CPU`, `cpu`, `CPU_PINNED`, `STORAGE`, `DISK`, ...; nil means GPU.
    pub medium: Option<Name>,
    /// What beside the tokens went into the hashes, one entry per hash. vLLM 0.17 and later.
    pub extra_keys: Option<Vec<Option<Vec<ExtraKey>>>>,
    /// SGLang's salt of the request. vLLM's is in `extra_keys`; [`Stored::identity`] knows both.
    pub cache_salt: Option<String>,
    /// Which KV cache group; hybrid models have several.
    pub group: Option<u32>,
    /// The group's kind of attention: `full_attention`, `sliding_window`, `mamba`, ...
    pub kind: Option<Name>,
    /// The window of a sliding-window group, tokens.
    pub sliding_window: Option<u32>,
    /// `LOCAL` or `REMOTE` (connectors only).
    pub locality: Option<Name>,
    /// How many tokens after each block its hash also covers (EAGLE, MTP). 0: none.
    pub lookahead: u32,
    /// Those tokens, `lookahead` for each hash.
    pub lookahead_tokens: Vec<u32>,
    /// The tokens came as pairs (token, next token), as SGLang sends for EAGLE; `tokens` holds the
    /// first of each.
    pub bigram: bool,
}

impl Stored {
    /// Whether every hash has its own `block_size` tokens.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        let block_size = self.block_size as usize;
        block_size > 0 && self.hashes.len().checked_mul(block_size) == Some(self.tokens.len())
    }
}

/// Something beside tokens that went into a block's hash, as the event tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraKey {
    /// A bare string: a LoRA name, a cache salt, or (vLLM 0.17 and 0.18) a media identifier.
    Text(String),
    /// A media item: its identifier and where it starts, in tokens from the block's start (negative
    /// where it started before the block).
    Media {
        /// The engine's identifier of the item.
        identifier: String,
        /// Its first token, counted from the block's first.
        offset: i64,
    },
    /// A tagged salt: not sent by any version so far, but how the hash itself names it.
    Salt(String),
    /// A tagged LoRA adapter, likewise.
    Lora {
        /// The adapter's name.
        name: String,
    },
    /// A digest of prompt embeddings.
    Bytes(Vec<u8>),
    /// Something else: no claim can be made about such a block.
    Unknown,
}

/// Blocks that are no longer cached.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Removed {
    /// The blocks.
    pub hashes: Vec<EngineHash>,
    /// The tier, as in [`Stored::medium`].
    pub medium: Option<Name>,
    /// The group, as in [`Stored::group`].
    pub group: Option<u32>,
}

#[cfg(test)]
pub(crate) mod tests;
