//! Which replica of a pool holds which prefix.
//!
//! Engines tell of their own blocks by opaque hashes, with the tokens in them. The index keeps each
//! block once by its content ([`nodes`]), notes which replicas hold it ([`holdings`], [`held`]),
//! turns its tokens into bytes and those into our blocks ([`blocks`]), which gateways can compute from
//! a request, and groups these for the table ([`groups`], [`spec`]).
//!
//! A replica is credited with a block if it holds every engine block from the prompt's start to
//! there: in GPU memory, or in any tier. What can be read in two ways is read so that less is claimed:
//! a wrong claim costs a request its prefill, a missing one only a chance.
//!
//! Pure: no I/O, no clock. Absent here: order, gaps and restarts of the event stream, which are the
//! subscriber's part.

mod adapters;
mod arena;
mod blocks;
mod checkpoints;
mod credit;
mod emit;
mod evict;
mod groups;
pub mod grown;
mod held;
mod holdings;
mod kv_groups;
mod limits;
mod media;
mod nodes;
mod pending;
mod replica;
mod snapshot;
mod spec;
mod speller;
mod stats;
mod store;
mod tree;

#[cfg(test)]
mod tests;

pub use snapshot::{SnapshotError, SnapshotLoaded};
pub use stats::{ApplyStats, IndexStats};

use crate::events::{KvEvent, KvEventBatch, Removed};
use crate::vocab::Vocab;
use adapters::Adapters;
use blocks::Blocks;
use credit::Visit;
use emit::Scratch;
use grown::Grown;
use held::Tier;
use holdings::Holdings;
use limits::Limit;
use nodes::{ContentHasher, Nodes};
use prefix_picker_core::blocks::{IdChain, PoolKey};
use prefix_picker_core::ids::{BlockHash, ReplicaIndex};
use prefix_picker_core::table::GroupSpec;
use replica::Replica;
use sha2::{Digest, Sha256};
use speller::Speller;
use std::sync::Arc;

/// Nodes that one call looks at, at most, to pass credit on below a block that came or went. What is
/// left over is done by the next calls.
const CREDIT_STEPS_PER_CALL: usize = 1 << 16;

/// What an index needs to know of its pool.
#[derive(Clone)]
pub struct IndexConfig {
    /// The pool's secret for hashing.
    pub key: PoolKey,
    /// The prompt profile's hash, part of every chain's seed.
    pub profile_hash: u64,
    /// Token id -> bytes.
    pub vocab: Arc<Vocab>,
    /// Emit blocks of prompt text. Off where requests cannot be rendered exactly.
    pub text: bool,
    /// Emit blocks of token ids. See [`PoolIndex::set_token_ids`].
    pub token_ids: bool,
    /// The pool's requests ask engines for full reports (`kv_cache_report_mode`): a store without
    /// parent whose blocks are all held is such a report, not a second copy.
    pub full_reports: bool,
    /// Blocks grown by decoding claim nothing until they are judged. See [`grown`].
    pub check_grown: bool,
    /// Clients send salts, and what engines that tell no identities store may be salted: nothing is
    /// claimed of it.
    pub untold_salts: bool,
    /// Engines speculate with EAGLE or MTP and tell no lookahead tokens (vLLM before 0.33): a hit is
    /// one engine block shorter than what is held.
    pub eagle_drops_block: bool,
    /// Over this, blocks are dropped. Bytes.
    pub memory_budget_bytes: usize,
}

/// How far a publisher's stream has been applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    /// Sequence number of the last message applied.
    pub sequence: u64,
    /// The first 8 bytes of SHA-256 of its payload.
    pub digest: [u8; 8],
}

impl StreamPosition {
    /// The position after a message.
    #[must_use]
    pub fn after(sequence: u64, payload: &[u8]) -> Self {
        let hash: [u8; 32] = Sha256::digest(payload).into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        Self {
            sequence,
            digest: [a, b, c, d, e, f, g, h],
        }
    }
}

/// The index of one pool.
pub struct PoolIndex {
    config: IndexConfig,
    hasher: ContentHasher,
    speller: Arc<Speller>,
    nodes: Nodes,
    holdings: Holdings,
    blocks: Blocks,
    /// Id chains at the nodes' ends, by node; as long as needed where token ids are emitted.
    id_chains: Vec<IdChain>,
    replicas: Vec<Option<Box<Replica>>>,
    /// What limits the use of what a replica holds; none: nothing.
    limits: Vec<Limit>,
    /// Which adapter each root of an adapter's namespace belongs to.
    adapters: Adapters,
    grown: Grown,
    /// Nodes whose credit may have changed: each with its later siblings.
    queue: Vec<Visit>,
    /// Nodes that may have become useless.
    loose: Vec<u32>,
    /// Number of the batch: what was used when.
    clock: u32,
    scratch: Scratch,
    totals: ApplyStats,
    dropped_for_memory: u64,
    /// Nodes at which memory is looked at again.
    next_memory_check: usize,
}

impl PoolIndex {
    /// An index that holds nothing.
    #[must_use]
    pub fn new(config: IndexConfig) -> Self {
        let speller = Arc::new(Speller::new(&config.vocab));
        Self::with_speller(config, speller)
    }

    fn with_speller(config: IndexConfig, speller: Arc<Speller>) -> Self {
        let digest = Sha256::new()
            .chain_update(b"prefix-picker index content")
            .chain_update(config.key.0)
            .finalize();
        let (words, _) = digest.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        Self {
            hasher: ContentHasher::new(word(0), word(1)),
            config,
            speller,
            nodes: Nodes::default(),
            holdings: Holdings::default(),
            blocks: Blocks::default(),
            id_chains: Vec::new(),
            replicas: Vec::new(),
            limits: Vec::new(),
            adapters: Adapters::default(),
            grown: Grown::default(),
            queue: Vec::new(),
            loose: Vec::new(),
            clock: 0,
            scratch: Scratch::default(),
            totals: ApplyStats::default(),
            dropped_for_memory: 0,
            next_memory_check: 0,
        }
    }

    /// Applies one message of a replica. Messages must come in order, each once.
    pub fn apply(&mut self, replica: ReplicaIndex, batch: &KvEventBatch) -> ApplyStats {
        self.clock = self.clock.saturating_add(1);
        let mut stats = ApplyStats::default();
        let mut held = self.take_replica(replica);
        for event in &batch.events {
            match event {
                KvEvent::Stored(event) => self.stored(replica, &mut held, event, &mut stats),
                KvEvent::Removed(event) => self.removed(replica, &mut held, event, &mut stats),
                KvEvent::Cleared => {
                    self.clear_gpu(replica, &mut held);
                    stats.cleared += 1;
                }
            }
            self.reap();
        }
        self.put_replica(replica, held);
        self.settle_some(CREDIT_STEPS_PER_CALL);
        self.enforce_budget();
        self.totals += stats;
        stats
    }

    /// Empties the GPU tier of a replica.
    pub fn clear(&mut self, replica: ReplicaIndex) {
        let mut held = self.take_replica(replica);
        self.clear_gpu(replica, &mut held);
        self.put_replica(replica, held);
        self.settle_some(CREDIT_STEPS_PER_CALL);
    }

    /// Forgets all that a replica holds, what is known of it, and its stream's position: it is gone,
    /// has restarted, or its events have been lost.
    pub fn drop_replica(&mut self, replica: ReplicaIndex) {
        if let Some(slot) = self.replicas.get_mut(usize::from(replica.0))
            && let Some(mut held) = slot.take()
        {
            self.forget_all(replica, &mut held);
        }
        while self.replicas.pop_if(|slot| slot.is_none()).is_some() {}
        self.settle_some(CREDIT_STEPS_PER_CALL);
    }

    /// Notes how far a replica's stream has been applied; kept in snapshots.
    pub fn set_position(&mut self, replica: ReplicaIndex, position: StreamPosition) {
        let mut held = self.take_replica(replica);
        held.position = Some(position);
        self.put_replica(replica, held);
    }

    /// How far a replica's stream has been applied.
    #[must_use]
    pub fn position(&self, replica: ReplicaIndex) -> Option<StreamPosition> {
        self.replica(replica)?.position
    }

    /// Engine blocks that a replica holds.
    #[must_use]
    pub fn held_blocks(&self, replica: ReplicaIndex) -> usize {
        self.replica(replica).map_or(0, |held| held.held.len())
    }

    /// Emits blocks of token ids, or no more. Prompts stored before are not known by their ids.
    pub fn set_token_ids(&mut self, token_ids: bool) {
        self.config.token_ids = token_ids;
    }

    /// Yields each group that has changed since the last call: its anchor, and what it now says, or
    /// `None` if it is gone. An anchor may come twice; the last word counts.
    pub fn drain_dirty(&mut self, mut yields: impl FnMut(BlockHash, Option<GroupSpec>)) {
        for anchor in self.blocks.groups.take_gone() {
            yields(anchor, None);
        }
        let mut builder = spec::SpecBuilder::default();
        while let Some(group) = self.blocks.groups.take_dirty(&mut self.blocks.tree) {
            for anchor in self.blocks.groups.take_gone() {
                yields(anchor, None);
            }
            let anchor = self
                .blocks
                .tree
                .get(self.blocks.groups.get(group).anchor)
                .hash;
            let spec = builder.build(self, group);
            let was_published = std::mem::replace(
                &mut self.blocks.groups.get_mut(group).published,
                spec.is_some(),
            );
            if spec.is_some() || was_published {
                yields(anchor, spec);
            }
        }
    }

    /// Whether [`Self::drain_dirty`] has something to yield.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.blocks.groups.dirty_len() > 0
    }

    /// Passes on all credit that is still to be passed on. Calls that change something do a bounded
    /// part of it themselves.
    pub fn settle(&mut self) {
        self.settle_some(usize::MAX);
    }

    fn removed(
        &mut self,
        replica: ReplicaIndex,
        held: &mut Replica,
        event: &Removed,
        stats: &mut ApplyStats,
    ) {
        if self.states_removed(replica, held, event) {
            stats.other_group += event.hashes.len() as u64;
            return;
        }
        if !held.groups.judges_remove(event.group) {
            stats.other_group += event.hashes.len() as u64;
            return;
        }
        let tier = Tier::of_medium(event.medium.as_deref());
        for hash in &event.hashes {
            // An unknown hash is no reason to leave out the rest.
            if self.remove_copy(replica, held, hash.low, tier)
                || held.pending.remove(hash.low, tier)
            {
                stats.removed += 1;
            } else {
                stats.unknown_removes += 1;
            }
        }
    }

    fn replica(&self, replica: ReplicaIndex) -> Option<&Replica> {
        self.replicas.get(usize::from(replica.0))?.as_deref()
    }

    /// Takes a replica out, so that it and the rest of the index can be changed together.
    fn take_replica(&mut self, replica: ReplicaIndex) -> Box<Replica> {
        self.replicas
            .get_mut(usize::from(replica.0))
            .and_then(Option::take)
            .unwrap_or_default()
    }

    fn put_replica(&mut self, replica: ReplicaIndex, held: Box<Replica>) {
        let at = usize::from(replica.0);
        if self.replicas.len() <= at {
            self.replicas.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.replicas.get_mut(at) {
            *slot = Some(held);
        }
    }
}
