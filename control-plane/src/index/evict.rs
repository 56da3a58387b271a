//! Staying within the memory budget: what is deepest, least shared and longest unused goes first.

use super::PoolIndex;
use super::arena::NIL;
use super::holdings::EMPTY;
use super::nodes::{Node, ROOT};
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// At least this part of all nodes is dropped at a time, since each time all replicas are gone through.
const DROP_PART: usize = 16;
/// Bytes that one entry of a table costs, the table's empty places included.
const TABLE_ENTRY_BYTES: usize = 24;
/// Memory is looked at again after so many new nodes.
const CHECK_EVERY: usize = 1 << 10;
/// And after so many calls, since replicas that come to share nodes cost memory too.
const CHECK_EVERY_CALLS: u32 = 1 << 8;

/// Nodes by number.
pub(super) struct Marks(Vec<u64>);

impl Marks {
    pub(super) fn new(slots: u32) -> Self {
        Self(vec![0; slots as usize / 64 + 1])
    }

    pub(super) fn mark(&mut self, node: u32) {
        if let Some(word) = self.0.get_mut(node as usize / 64) {
            *word |= 1 << (node % 64);
        }
    }

    pub(super) fn has(&self, node: u32) -> bool {
        self.0
            .get(node as usize / 64)
            .is_some_and(|word| word >> (node % 64) & 1 == 1)
    }
}

impl PoolIndex {
    /// Bytes in use. Arenas keep freed slots for reuse, so that allocated memory never goes down far
    /// enough to be steered by.
    fn used_bytes(&self) -> usize {
        let held: usize = self
            .replicas
            .iter()
            .flatten()
            .map(|replica| replica.held.len())
            .sum();
        let pending: usize = self
            .replicas
            .iter()
            .flatten()
            .map(|replica| replica.pending.memory_bytes() + replica.checkpoints.memory_bytes())
            .sum();
        let ids = if self.id_chains.is_empty() {
            0
        } else {
            size_of::<prefix_picker_core::blocks::IdChain>()
        };
        self.nodes.len() * (size_of::<Node>() + ids)
            + held * TABLE_ENTRY_BYTES
            + self.blocks.used_bytes()
            + self.holdings.memory_bytes()
            + pending
    }

    /// Drops nodes if there are too many.
    pub(super) fn enforce_budget(&mut self) {
        if self.nodes.len() < self.next_memory_check
            && !self.clock.is_multiple_of(CHECK_EVERY_CALLS)
        {
            return;
        }
        let used = self.used_bytes();
        let budget = self.config.memory_budget_bytes;
        if used > budget {
            self.settle();
            let nodes = self.nodes.len();
            let per_node = (used / nodes.max(1)).max(1);
            let surplus = (used - budget) / per_node + 1;
            self.drop_nodes(surplus.max(nodes / DROP_PART));
        }
        self.next_memory_check = self.nodes.len() + CHECK_EVERY;
    }

    /// Lower goes first: long unused, shared by few, deep.
    fn worth(&self, node: u32, oldest: u32) -> u64 {
        let held = self.nodes.get(node);
        let span = u64::from(self.clock - oldest.min(self.clock));
        let shared_by = self.holdings.sharers(held.holding).clamp(1, 16) as u64;
        let used = u64::from(held.used) + (shared_by - 1) * span / 8;
        used << 28 | u64::from((1 << 28) - 1 - held.tokens())
    }

    /// Drops `wanted` nodes, ends of prompts before what leads to them.
    fn drop_nodes(&mut self, wanted: usize) {
        let oldest = self
            .nodes
            .indices()
            .map(|node| self.nodes.get(node).used)
            .min()
            .unwrap_or(0);
        let mut ends: BinaryHeap<Reverse<(u64, u32)>> = self
            .nodes
            .indices()
            .filter(|node| self.is_end(*node))
            .map(|node| Reverse((self.worth(node, oldest), node)))
            .collect();
        let mut doomed = Vec::new();
        let mut marks = Marks::new(self.nodes.slots());
        let mut children_left: HashMap<u32, usize> = HashMap::new();
        while doomed.len() < wanted
            && let Some(Reverse((_, node))) = ends.pop()
        {
            doomed.push(node);
            marks.mark(node);
            let parent = self.nodes.get(node).links.parent;
            let left = children_left
                .entry(parent)
                .or_insert_with(|| self.nodes.children(parent).count());
            *left -= 1;
            if *left == 0 && !self.nodes.get(parent).is(ROOT) {
                ends.push(Reverse((self.worth(parent, oldest), parent)));
            }
        }
        for replica in self.replicas.iter_mut().flatten() {
            replica.retain_nodes(|node| !marks.has(node));
        }
        self.dropped_for_memory += doomed.len() as u64;
        for node in doomed {
            let holding = std::mem::replace(&mut self.nodes.get_mut(node).holding, EMPTY);
            self.holdings.empty();
            self.holdings.release(holding);
            self.loose.push(node);
            self.reap();
        }
    }

    fn is_end(&self, node: u32) -> bool {
        let held = self.nodes.get(node);
        held.links.first_child == NIL && !held.is(ROOT)
    }
}
