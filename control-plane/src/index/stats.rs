//! What the index counts.

use super::PoolIndex;
use std::ops::AddAssign;

macro_rules! apply_stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a message, or all messages, came to. Blocks, but where it says otherwise.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct ApplyStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for ApplyStats {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

apply_stats! {
    /// Stored, and their content known.
    stored,
    /// Of these, stored alone, as decoded blocks are, where such blocks are checked.
    grown,
    /// Copies removed.
    removed,
    /// Removes of blocks that were not known: before we listened, or of a group that does not count.
    unknown_removes,
    /// Stored below a parent that is not known: held without credit until it is.
    orphans,
    /// Stored without tokens, or in a lower tier without identity: linked to a known block by hash, or
    /// held without credit until that is known.
    links,
    /// Blocks that waited for their parent and were dropped to make room.
    orphans_dropped,
    /// Blocks of KV cache groups that make no prefix.
    other_group,
    /// Stores in which not every hash has its own tokens. Events.
    sparse,
    /// Times that what was taken for a replica's main group turned out to be sparse.
    demoted,
    /// Hashes that now stand for other content than before.
    conflicts,
    /// Stores without a hash, or too long a prompt. Events.
    malformed,
    /// Blocks of full reports.
    reported,
    /// Times that the GPU tier was emptied.
    cleared,
    /// Stored blocks that found no room.
    refused,
}

/// The index's size and history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexStats {
    /// Distinct engine blocks.
    pub nodes: usize,
    /// Our blocks.
    pub blocks: usize,
    /// Groups of our blocks.
    pub groups: usize,
    /// Distinct sets of replicas.
    pub holdings: usize,
    /// Engine blocks held, summed over replicas.
    pub held: usize,
    /// Blocks held without credit since their content is not known.
    pub pending: usize,
    /// Groups to be written again.
    pub dirty_groups: usize,
    /// Nodes from which credit is still to be passed on.
    pub unsettled: usize,
    /// Memory allocated, the table of token bytes left out. Bytes.
    pub memory_bytes: usize,
    /// Nodes dropped to stay within the memory budget, ever.
    pub dropped_for_memory: u64,
    /// Blocks grown by decoding that wait for a judgement of their tokens.
    pub grown_waiting: usize,
    /// Such blocks whose tokens are those that a tokenizer makes of their text, ever.
    pub grown_canonical: u64,
    /// Such blocks whose tokens are others: never claimed, ever.
    pub grown_spoilt: u64,
    /// Such blocks that were never judged since too many came, and so never claimed, ever.
    pub grown_unchecked: u64,
    /// All messages together.
    pub applied: ApplyStats,
}

impl PoolIndex {
    /// The index's size and history.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        let replicas = || self.replicas.iter().flatten();
        IndexStats {
            nodes: self.nodes.len(),
            blocks: self.blocks.tree.len(),
            groups: self.blocks.groups.len(),
            holdings: self.holdings.len(),
            held: replicas().map(|replica| replica.held.len()).sum(),
            pending: replicas().map(|replica| replica.pending.len()).sum(),
            dirty_groups: self.blocks.groups.dirty_len(),
            unsettled: self.queue.len(),
            memory_bytes: self.memory_bytes(),
            dropped_for_memory: self.dropped_for_memory,
            grown_waiting: self.grown.waiting(),
            grown_canonical: self.grown.canonical,
            grown_spoilt: self.grown.spoilt,
            grown_unchecked: self.grown.dropped,
            applied: self.totals,
        }
    }

    fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes()
            + self.holdings.memory_bytes()
            + self.blocks.memory_bytes()
            + self.adapters.memory_bytes()
            + self.grown.memory_bytes()
            + self.id_chains.capacity() * size_of::<prefix_picker_core::blocks::IdChain>()
            + self
                .replicas
                .iter()
                .flatten()
                .map(|replica| replica.memory_bytes())
                .sum::<usize>()
            + self.queue.capacity() * size_of::<super::credit::Visit>()
            + self.loose.capacity() * size_of::<u32>()
    }
}
