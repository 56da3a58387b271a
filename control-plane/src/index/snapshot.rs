//! The index on disk, so that a restarted control plane knows what engines will not say again.
//!
//! Layout (numbers little-endian): magic, version; fingerprint of everything that hashes depend on;
//! nodes, parents first, with the blocks that end in them; replicas by name with their stream's
//! position, their groups, saved states, and what they hold; SHA-256 of all before. `docs/wire-format.md` does not
//! list it: nobody else reads it, and another version starts empty.
//!
//! Absent: orphans and placeholders, which have no credit. Credit is computed afresh.

mod read;
mod write;

use super::{IndexConfig, PoolIndex};
use prefix_picker_core::blocks::HASH_DOMAIN_VERSION;
use prefix_picker_core::ids::ReplicaIndex;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};

const MAGIC: [u8; 8] = *b"PPINDEX\0";
/// Goes up with any change of the layout or of what its numbers mean.
const VERSION: u32 = 3;

/// No parent, no main group.
const NONE: u32 = u32::MAX;

/// Why a snapshot was not loaded. The index is empty then.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It could not be read to its end.
    #[error("the snapshot cannot be read")]
    Io(#[from] std::io::Error),
    /// Not a snapshot, or of another version.
    #[error("not an index snapshot of version {VERSION}")]
    Version,
    /// Written for another pool, key, prompt profile or vocabulary.
    #[error("the snapshot is of another pool, key, prompt profile or vocabulary")]
    OtherPool,
    /// Damaged.
    #[error("the snapshot is damaged: {0}")]
    Damaged(&'static str),
}

/// What a snapshot brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnapshotLoaded {
    /// Distinct engine blocks.
    pub nodes: usize,
    /// Replicas that were found again.
    pub replicas: usize,
    /// Replicas that are not known any more; what they held is left out.
    pub unknown_replicas: usize,
}

/// Everything on which the meaning of a snapshot depends.
fn fingerprint(config: &IndexConfig) -> [u8; 32] {
    Sha256::new()
        .chain_update(b"prefix-picker index snapshot")
        .chain_update(HASH_DOMAIN_VERSION.to_le_bytes())
        .chain_update(config.key.0)
        .chain_update(config.profile_hash.to_le_bytes())
        .chain_update((config.vocab.len() as u64).to_le_bytes())
        .chain_update([u8::from(config.text)])
        .finalize()
        .into()
}

impl PoolIndex {
    /// Writes all that is known with its content. `name_of` gives each replica a name that is the same
    /// in the next life; replicas without one are left out.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_snapshot(
        &self,
        out: &mut impl Write,
        name_of: impl Fn(ReplicaIndex) -> Option<String>,
    ) -> std::io::Result<()> {
        write::Writer::new(out).write(self, &name_of)
    }

    /// Replaces all that is known by a snapshot. `replica_of` finds the replica of a name.
    ///
    /// # Errors
    /// A snapshot that is damaged, of another version or of another pool is refused; the index is empty
    /// then.
    pub fn read_snapshot(
        &mut self,
        input: &mut impl Read,
        replica_of: impl FnMut(&str) -> Option<ReplicaIndex>,
    ) -> Result<SnapshotLoaded, SnapshotError> {
        let mut fresh = Self::with_speller(self.config.clone(), self.speller.clone());
        let loaded = read::Reader::new(input).read(&mut fresh, replica_of);
        // The table must hear of the groups that are gone.
        let gone = self.published_anchors();
        *self = match loaded {
            Ok(_) => fresh,
            Err(_) => Self::with_speller(self.config.clone(), self.speller.clone()),
        };
        self.blocks.groups.set_gone(gone);
        loaded
    }

    /// Forgets everything and goes on under another prompt profile: every block's hash is another one
    /// then. `text` as in [`IndexConfig::text`].
    pub fn begin_anew(&mut self, profile_hash: u64, text: bool) {
        let config = IndexConfig {
            profile_hash,
            text,
            ..self.config.clone()
        };
        // The table must hear of the groups that are gone.
        let gone = self.published_anchors();
        *self = Self::with_speller(config, self.speller.clone());
        self.blocks.groups.set_gone(gone);
    }

    /// Has every group written again by the next [`Self::drain_dirty`].
    pub fn mark_all(&mut self) {
        let groups: Vec<u32> = {
            let tree = &self.blocks.tree;
            tree.indices().map(|block| tree.get(block).group).collect()
        };
        for group in groups {
            self.blocks.groups.mark(group);
        }
    }

    fn published_anchors(&mut self) -> Vec<prefix_picker_core::ids::BlockHash> {
        let mut gone = self.blocks.groups.take_gone();
        let blocks = &self.blocks;
        gone.extend(blocks.tree.indices().filter_map(|index| {
            let block = blocks.tree.get(index);
            let group = blocks.groups.get(block.group);
            (group.anchor == index && group.published).then_some(block.hash)
        }));
        gone
    }
}
