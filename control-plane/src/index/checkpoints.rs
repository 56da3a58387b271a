//! Up to where a held prefix is of use.
//!
//! Mamba and linear-attention layers keep a state, not a cache of every token: engines save it now and
//! then ("align" mode: at the end of each step of a prefill), and reuse a prefix only up to a place
//! where every such group has saved its state. An engine names a saved state by the hash of the whole
//! prefix, which is the hash of the attention block that ends there, so that hashes alone tell the
//! places: it does not matter that such stores leave out blocks and not say which.
//!
//! A lower tier may load several blocks as one chunk only. Chunks are counted from the prompt's start,
//! so their size tells the places.
//!
//! What is held stays a whole prefix, since the table knows no other. The places tell how many tokens
//! of it count: see [`super::limits`].

use super::PoolIndex;
use super::held::Tier;
use super::holdings::{CHECKPOINT, GPU};
use super::replica::Replica;
use crate::events::{Removed, Stored};
use hashbrown::HashMap;
use prefix_picker_core::ids::ReplicaIndex;

/// Most saved states of one replica that are noted; more are claimed less. 6 MB.
const NOTED_MAX: usize = 1 << 18;

/// Most groups of states; an engine has a handful.
pub(super) const STATE_GROUPS_MAX: usize = 64;

/// A group where none is named.
const UNNAMED: u32 = u32::MAX;

/// The states that one replica has saved, in GPU memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoints {
    /// Groups that keep states.
    groups: Vec<u32>,
    /// Copies by group and hash.
    saved: HashMap<(u32, u64), u16>,
}

impl Checkpoints {
    fn keeps(&self, group: u32) -> bool {
        self.groups.contains(&group)
    }

    /// A group keeps states; `true`: that is news.
    fn learn(&mut self, group: u32) -> bool {
        let is_new = !self.keeps(group) && self.groups.len() < STATE_GROUPS_MAX;
        if is_new {
            self.groups.push(group);
        }
        is_new
    }

    fn add(&mut self, group: u32, hash: u64) {
        if let Some(copies) = self.saved.get_mut(&(group, hash)) {
            *copies = copies.saturating_add(1);
        } else if self.saved.len() < NOTED_MAX {
            self.saved.insert((group, hash), 1);
        }
    }

    fn remove(&mut self, group: u32, hash: u64) -> bool {
        let Some(copies) = self.saved.get_mut(&(group, hash)) else {
            return false;
        };
        *copies = copies.saturating_sub(1);
        if *copies == 0 {
            self.saved.remove(&(group, hash));
        }
        true
    }

    /// Whether every group has saved its state at a prefix's end.
    pub(super) fn has(&self, hash: u64) -> bool {
        !self.groups.is_empty()
            && self
                .groups
                .iter()
                .all(|group| self.saved.contains_key(&(*group, hash)))
    }

    /// Nothing is saved any more. What groups there are stays known.
    pub(super) fn clear(&mut self) {
        self.saved = HashMap::new();
    }

    pub(super) fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Group, hash and copies, in no order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u64, u16)> + '_ {
        self.saved
            .iter()
            .map(|((group, hash), copies)| (*group, *hash, *copies))
    }

    /// As a snapshot tells it; `None`: impossible.
    pub(super) fn restore(&mut self, group: u32, hash: u64, copies: u16) -> Option<()> {
        let fits = self.keeps(group) && copies > 0 && self.saved.len() < NOTED_MAX;
        (fits && self.saved.insert((group, hash), copies).is_none()).then_some(())
    }

    /// A group as a snapshot tells it; `None`: impossible.
    pub(super) fn restore_group(&mut self, group: u32) -> Option<()> {
        self.learn(group).then_some(())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.saved.allocation_size() + self.groups.capacity() * size_of::<u32>()
    }
}

impl PoolIndex {
    /// A group that keeps states has saved some.
    pub(super) fn states_stored(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        event: &Stored,
    ) {
        let group = event.group.unwrap_or(UNNAMED);
        if of.checkpoints.learn(group) {
            self.needs_checkpoints(replica, of);
        }
        if Tier::of_medium(event.medium.as_deref()) == Tier::Lower || event.tokens.is_empty() {
            // What a connector offloads has states and blocks apart, and does not say what goes together.
            return;
        }
        if self.is_report_of_states(of, group, event) {
            return;
        }
        for hash in &event.hashes {
            of.checkpoints.add(group, hash.low);
            self.note_checkpoint(replica, of, hash.low);
        }
    }

    /// A full report names every block up to the hit, though only the last one has a state: it is the
    /// hit.
    fn is_report_of_states(&self, of: &Replica, group: u32, event: &Stored) -> bool {
        let last_is_saved = event
            .hashes
            .last()
            .is_some_and(|hash| of.checkpoints.saved.contains_key(&(group, hash.low)));
        self.config.full_reports && event.parent.is_none() && last_is_saved
    }

    /// Whether a remove is of a group that keeps states; then it is done.
    pub(super) fn states_removed(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        event: &Removed,
    ) -> bool {
        let group = event.group.unwrap_or(UNNAMED);
        if !of.checkpoints.keeps(group) {
            return false;
        }
        if Tier::of_medium(event.medium.as_deref()) == Tier::Gpu {
            for hash in &event.hashes {
                if of.checkpoints.remove(group, hash.low) {
                    self.note_checkpoint(replica, of, hash.low);
                }
            }
        }
        true
    }

    /// Looks again whether there is a checkpoint at a block's end.
    fn note_checkpoint(&mut self, replica: ReplicaIndex, of: &Replica, hash: u64) {
        let Some((node, copies)) = of.held.get(hash) else {
            return;
        };
        let before = self.holdings.state(self.nodes.get(node).holding, replica);
        let after = if copies.gpu > 0 && before & GPU != 0 && of.checkpoints.has(hash) {
            before | CHECKPOINT
        } else {
            before & !CHECKPOINT
        };
        if after != before {
            self.change_state(node, replica, before, after);
        }
    }

    /// One group more must have saved its state: nothing is a checkpoint before it has.
    fn needs_checkpoints(&mut self, replica: ReplicaIndex, of: &Replica) {
        self.limit_mut(replica).checkpoints = true;
        for (_, node, _) in of.held.iter() {
            let state = self.holdings.state(self.nodes.get(node).holding, replica);
            self.set_state(node, replica, state & !CHECKPOINT);
            self.mark_owned(node);
        }
    }

    /// Learns from a store in a lower tier how many tokens it loads as one. Only engines that name
    /// the kind of a block's group put one chunk in one store; others string chunks together.
    pub(super) fn learn_chunk(&mut self, replica: ReplicaIndex, of: &Replica, event: &Stored) {
        let tokens = u32::try_from(event.tokens.len()).unwrap_or(0);
        if event.kind.is_none()
            || event.hashes.len() < 2
            || tokens <= self.limit(replica).chunk_tokens
        {
            return;
        }
        self.limit_mut(replica).chunk_tokens = tokens;
        for (_, node, copies) in of.held.iter() {
            if copies.lower > 0 {
                self.mark_owned(node);
            }
        }
    }
}
