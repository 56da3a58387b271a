//! One pool: its index, its profile, and what its events tell besides blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use prefix_picker_core::prompt::{CompiledProfile, Profile, ProfileError};
use tokio::sync::watch;

use super::lock;
use crate::canonicity::Checker;
use crate::events::{KvEvent, KvEventBatch};
use crate::index::{IndexStats, PoolIndex};
use crate::vocab::Vocab;

/// Tokens of a store that are measured for the pool's bytes per token.
const MEASURED_TOKENS: usize = 64;

/// One pool.
pub struct Pool {
    /// As configured.
    pub name: String,
    pub(super) index: Mutex<PoolIndex>,
    pub(super) vocab: Arc<Vocab>,
    /// Token-id prompts are indexed once a gateway reports one.
    pub(super) ids_on_report: bool,
    pub(super) ids_on: AtomicBool,
    pub(super) measured: Mutex<Measured>,
    pub(super) profile: Mutex<Profile>,
    /// The same, ready to render; made when first asked for.
    pub(super) compiled: Mutex<Option<Arc<CompiledProfile>>>,
    /// The configuration says the engines' version: what they say is not heeded.
    pub(super) pinned: bool,
    /// Counts up when its replicas must be followed from the beginning.
    pub(super) lives: watch::Sender<u64>,
    /// Looks at generated tokens; without one they are trusted.
    pub(super) checker: OnceLock<Checker>,
}

/// What stores tell of a pool besides its blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    bytes: u64,
    tokens: u64,
    pub(super) block_size: u32,
}

impl Pool {
    /// What renders its prompts, as gateways do.
    ///
    /// # Errors
    /// If a template cannot be compiled.
    pub fn compiled(&self) -> Result<Arc<CompiledProfile>, ProfileError> {
        let profile = lock(&self.profile).clone();
        let mut known = lock(&self.compiled);
        if let Some(compiled) = known.as_ref().filter(|c| *c.profile() == profile) {
            return Ok(compiled.clone());
        }
        let compiled = Arc::new(CompiledProfile::compile(&profile)?);
        *known = Some(compiled.clone());
        Ok(compiled)
    }

    /// Are its token-id prompts in the table?
    #[must_use]
    pub fn has_token_ids(&self) -> bool {
        self.ids_on.load(Ordering::Acquire)
    }

    /// Size and history of the index.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        lock(&self.index).stats()
    }

    /// Learns bytes per token from the first tokens of a batch's stores, and the block size.
    pub(super) fn measure(&self, batch: &KvEventBatch) {
        let stored = batch.events.iter().find_map(|event| match event {
            KvEvent::Stored(stored) if stored.is_dense() => Some(stored),
            _ => None,
        });
        let Some(stored) = stored else { return };
        let lengths = stored
            .tokens
            .iter()
            .take(MEASURED_TOKENS)
            .filter_map(|token| self.vocab.bytes(*token))
            .map(<[u8]>::len);
        let (tokens, bytes) = lengths.fold((0u64, 0u64), |(n, sum), len| (n + 1, sum + len as u64));
        let mut measured = lock(&self.measured);
        if measured.tokens > 1 << 20 {
            // Half-forgotten, so that it follows what is asked now.
            measured.tokens /= 2;
            measured.bytes /= 2;
        }
        measured.tokens += tokens;
        measured.bytes += bytes;
        measured.block_size = measured.block_size.max(stored.block_size);
    }
}

impl Measured {
    pub(super) fn bytes_per_token_milli(self) -> u32 {
        u32::try_from(
            self.bytes
                .saturating_mul(1000)
                .checked_div(self.tokens)
                .unwrap_or(0),
        )
        .unwrap_or(u32::MAX)
    }
}
