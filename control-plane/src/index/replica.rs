//! What is known of one replica: its engine blocks, and how their copies come and go.

use super::arena::NIL;
use super::checkpoints::Checkpoints;
use super::held::{Added, Copies, Held, Tier};
use super::holdings::{CHECKPOINT, EMPTY, GPU, LOWER, State};
use super::kv_groups::KvGroups;
use super::pending::Pending;
use super::{PoolIndex, StreamPosition};
use hashbrown::HashMap;
use prefix_picker_core::ids::ReplicaIndex;

/// A node that several hashes of one replica stand for (an adapter reloaded in place, a salt that the
/// engine's version does not tell): how many of them are in which tier.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    hashes: u32,
    gpu: u32,
    lower: u32,
}

/// One replica.
#[derive(Debug, Default)]
pub(super) struct Replica {
    pub(super) held: Held,
    shared: HashMap<u32, Shared>,
    pub(super) pending: Pending,
    pub(super) groups: KvGroups,
    pub(super) checkpoints: Checkpoints,
    pub(super) position: Option<StreamPosition>,
}

fn residency(gpu: bool, lower: bool) -> State {
    (if gpu { GPU } else { 0 }) | (if lower { LOWER } else { 0 })
}

fn tiers_of(copies: Copies) -> State {
    residency(copies.gpu > 0, copies.lower > 0)
}

impl Tier {
    /// The tier that an event's medium names; nil is the GPU.
    pub(super) fn of_medium(medium: Option<&str>) -> Self {
        match medium {
            Some(medium) if !medium.eq_ignore_ascii_case("gpu") => Self::Lower,
            _ => Self::Gpu,
        }
    }
}

impl Replica {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.held.memory_bytes()
            + self.shared.allocation_size()
            + self.pending.memory_bytes()
            + self.checkpoints.memory_bytes()
    }

    /// Which tiers hold `node` after one hash's copies changed; `before`: which did.
    fn tiers_after(&mut self, node: u32, before: State, old: Copies, new: Copies) -> State {
        let (added, gone) = (
            old.is_none() && !new.is_none(),
            !old.is_none() && new.is_none(),
        );
        if self.shared.is_empty() || !self.shared.contains_key(&node) {
            if !added || before & (GPU | LOWER) == 0 {
                return tiers_of(new);
            }
            let first = Shared {
                hashes: 1,
                gpu: u32::from(before & GPU != 0),
                lower: u32::from(before & LOWER != 0),
            };
            self.shared.insert(node, first);
        }
        let shared = self.shared.entry(node).or_default();
        shared.hashes = shared.hashes + u32::from(added) - u32::from(gone);
        shared.gpu = shared.gpu + u32::from(new.gpu > 0) - u32::from(old.gpu > 0);
        shared.lower = shared.lower + u32::from(new.lower > 0) - u32::from(old.lower > 0);
        let tiers = residency(shared.gpu > 0, shared.lower > 0);
        if shared.hashes <= 1 {
            self.shared.remove(&node);
        }
        tiers
    }

    /// Forgets the nodes that `keep` says not to keep.
    pub(super) fn retain_nodes(&mut self, mut keep: impl FnMut(u32) -> bool) {
        self.held.retain(&mut keep);
        self.shared.retain(|node, _| keep(*node));
    }
}

impl PoolIndex {
    /// A block with known content has one more copy.
    pub(super) fn add_copy(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        hash: u64,
        node: u32,
        tier: Tier,
    ) -> bool {
        let waited = of.pending.take(hash).unwrap_or_default();
        let found = if waited.is_none() {
            of.held.add(hash, node, tier)
        } else {
            Added::Known(node)
        };
        if found == Added::New {
            let mut new = Copies::default();
            new.add(tier);
            self.apply_copies(replica, of, hash, node, Copies::default(), new);
            return false;
        }
        let (old, moved) = match of.held.get(hash) {
            Some((held, copies)) if held == node => (copies, false),
            Some((held, copies)) => {
                // The hash stands for other content now. What it stood for may be gone.
                self.set_copies(replica, of, hash, held, copies, Copies::default());
                (Copies::default(), true)
            }
            None => (Copies::default(), false),
        };
        let mut new = old;
        new.add(tier);
        new.gpu = new.gpu.saturating_add(waited.gpu);
        new.lower = new.lower.saturating_add(waited.lower);
        self.set_copies(replica, of, hash, node, old, new);
        moved
    }

    /// One copy less; `false`: the hash is not known, or not in this tier.
    pub(super) fn remove_copy(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        hash: u64,
        tier: Tier,
    ) -> bool {
        let Some((node, old)) = of.held.get(hash) else {
            return false;
        };
        let mut new = old;
        if !new.take(tier) {
            return false;
        }
        self.set_copies(replica, of, hash, node, old, new);
        true
    }

    pub(super) fn set_copies(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        hash: u64,
        node: u32,
        old: Copies,
        new: Copies,
    ) {
        of.held.set(hash, node, new);
        self.apply_copies(replica, of, hash, node, old, new);
    }

    /// The node's part of a change of copies.
    fn apply_copies(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        hash: u64,
        node: u32,
        old: Copies,
        new: Copies,
    ) {
        let before = self.holdings.state(self.nodes.get(node).holding, replica);
        let mut tiers = of.tiers_after(node, before, old, new);
        if new.gpu > 0 && of.checkpoints.has(hash) {
            tiers |= CHECKPOINT;
        }
        self.set_tiers(node, replica, before, tiers);
    }

    /// Empties the GPU tier. Lower tiers are the connector's and stay.
    pub(super) fn clear_gpu(&mut self, replica: ReplicaIndex, of: &mut Replica) {
        of.pending.clear_gpu();
        of.checkpoints.clear();
        let entries: Vec<(u64, u32, Copies)> = of.held.iter().collect();
        let keeps_lower = entries.iter().any(|(_, _, copies)| copies.lower > 0);
        if !keeps_lower {
            self.forget_held(replica, of);
            return;
        }
        of.shared.retain(|_, shared| {
            shared.gpu = 0;
            shared.lower > 0
        });
        for (hash, node, copies) in &entries {
            of.held.set(
                *hash,
                *node,
                Copies {
                    gpu: 0,
                    lower: copies.lower,
                },
            );
        }
        // First what is where, without credit; then the credit, from wherever it starts.
        for (_, node, copies) in &entries {
            let lower =
                copies.lower > 0 || of.shared.get(node).is_some_and(|shared| shared.lower > 0);
            self.set_state(*node, replica, residency(false, lower));
        }
        for (hash, _, copies) in &entries {
            if copies.lower == 0 {
                continue;
            }
            if let Some(node) = of.held.node(*hash) {
                self.refresh(node, replica);
            }
        }
        // Hashes that left a node shared by several: count them afresh.
        of.shared.clear();
        let mut hashes: HashMap<u32, u32> = HashMap::new();
        for (_, node, _) in of.held.iter() {
            *hashes.entry(node).or_default() += 1;
        }
        hashes.retain(|_, count| *count > 1);
        of.shared.extend(hashes.into_iter().map(|(node, hashes)| {
            (
                node,
                Shared {
                    hashes,
                    gpu: 0,
                    lower: hashes,
                },
            )
        }));
    }

    /// Everything of a replica goes.
    pub(super) fn forget_all(&mut self, replica: ReplicaIndex, of: &mut Replica) {
        self.forget_held(replica, of);
        *of = Replica::default();
        self.forget_limit(replica);
        self.reap();
    }

    /// Everything that a replica holds goes.
    pub(super) fn forget_held(&mut self, replica: ReplicaIndex, of: &mut Replica) {
        for (_, node, _) in of.held.iter() {
            self.set_state(node, replica, 0);
        }
        of.held = Held::default();
        of.shared = HashMap::new();
    }

    /// Frees nodes that nobody holds and that lead nowhere. Not while the queue points at siblings.
    pub(super) fn reap(&mut self) {
        if !self.queue.is_empty() {
            return;
        }
        while let Some(index) = self.loose.pop() {
            if !self.nodes.is_live(index) {
                continue;
            }
            let node = self.nodes.get(index);
            if node.holding != EMPTY || node.links.first_child != NIL {
                continue;
            }
            let (parent, owns, holding) = (node.links.parent, node.owns, node.holding);
            self.blocks.disown(owns);
            self.holdings.release(holding);
            self.nodes.remove(index);
            if parent == NIL {
                self.adapters.forget(index);
            } else {
                self.loose.push(parent);
            }
        }
        if self.loose.capacity() > 1 << 16 {
            self.loose = Vec::new();
        }
        if self.nodes.len() == 0 {
            self.id_chains = Vec::new();
        }
    }
}
