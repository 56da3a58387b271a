//! Who holds a whole prefix.
//!
//! A replica is credited with a node if it holds the node and is credited with its parent. A change
//! is passed on to the children by a queue, a bounded number of nodes a call: engines evict a
//! prompt's end first, so that there is hardly ever anything to pass on.

use super::PoolIndex;
use super::arena::NIL;
use super::holdings::{ANY_PREFIX, CHECKPOINT, EMPTY, GPU, GPU_PREFIX, LOWER, PREFIX, State};
use super::limits::Limit;
use super::nodes::ROOT;
use prefix_picker_core::ids::ReplicaIndex;

/// A node, and its later siblings, at which a replica's credit may have changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    node: u32,
    replica: ReplicaIndex,
    /// What its blocks are worth may have changed as well.
    marks: bool,
}

/// The state of a replica that holds a node in `tiers` and is credited with its parent as `parent`.
const fn with_credit(tiers: State, parent: State) -> State {
    let gpu = if tiers & GPU != 0 {
        parent & GPU_PREFIX
    } else {
        0
    };
    let any = if tiers & (GPU | LOWER) != 0 {
        parent & ANY_PREFIX
    } else {
        0
    };
    tiers | gpu | any
}

impl PoolIndex {
    fn credit_of_parent(&self, node: u32, replica: ReplicaIndex) -> State {
        let parent = self.nodes.get(node).links.parent;
        if parent == NIL || self.nodes.get(parent).is(ROOT) {
            return PREFIX;
        }
        self.holdings.state(self.nodes.get(parent).holding, replica) & PREFIX
    }

    /// A replica now holds a node in `tiers` and no others; its state was `before`.
    pub(super) fn set_tiers(
        &mut self,
        node: u32,
        replica: ReplicaIndex,
        before: State,
        tiers: State,
    ) {
        let parent = if tiers == 0 {
            0
        } else {
            self.credit_of_parent(node, replica)
        };
        let after = with_credit(tiers, parent);
        if after != before {
            self.change_state(node, replica, before, after);
        }
    }

    /// Sets a replica's state without a thought for the children.
    pub(super) fn set_state(&mut self, node: u32, replica: ReplicaIndex, state: State) {
        let before = self.holdings.state(self.nodes.get(node).holding, replica);
        if before != state {
            self.write_state(node, replica, before, state);
        }
    }

    fn write_state(&mut self, node: u32, replica: ReplicaIndex, before: State, after: State) {
        let held = self.nodes.get_mut(node);
        held.holding = self.holdings.transition(held.holding, replica, after);
        if held.holding == EMPTY {
            self.loose.push(node);
        }
        if (before ^ after) & (PREFIX | CHECKPOINT) != 0 {
            self.mark_owned(node);
        }
    }

    pub(super) fn mark_owned(&mut self, node: u32) {
        let mut at = self.nodes.get(node).owns;
        while at != NIL {
            let owner = *self.blocks.owner(at);
            self.blocks.mark(owner.block);
            at = owner.next_in_node;
        }
    }

    pub(super) fn change_state(
        &mut self,
        node: u32,
        replica: ReplicaIndex,
        before: State,
        after: State,
    ) {
        self.write_state(node, replica, before, after);
        if (before ^ after) & (PREFIX | CHECKPOINT) != 0 {
            let limited = self.limit(replica) != Limit::NONE;
            self.visit_below(node, replica, limited);
        }
    }

    fn visit_below(&mut self, node: u32, replica: ReplicaIndex, marks: bool) {
        let first_child = self.nodes.get(node).links.first_child;
        if first_child != NIL {
            self.queue.push(Visit {
                node: first_child,
                replica,
                marks,
            });
        }
    }

    /// Looks again whether a replica is credited with a node.
    pub(super) fn refresh(&mut self, node: u32, replica: ReplicaIndex) {
        let before = self.holdings.state(self.nodes.get(node).holding, replica);
        let tiers = before & (GPU | LOWER | CHECKPOINT);
        if tiers == 0 {
            return;
        }
        let after = with_credit(tiers, self.credit_of_parent(node, replica));
        if after != before {
            self.change_state(node, replica, before, after);
        }
    }

    /// The last place above a node up to which a replica can use what it holds may be another one now:
    /// so it may be for what follows, down to the next such place.
    fn mark_limited(&mut self, node: u32, replica: ReplicaIndex) {
        let state = self.holdings.state(self.nodes.get(node).holding, replica);
        if state & PREFIX == 0 {
            return;
        }
        self.mark_owned(node);
        if !self.allows(replica, node, state) {
            self.visit_below(node, replica, true);
        }
    }

    /// Passes credit on, looking at `steps` nodes at most.
    pub(super) fn settle_some(&mut self, steps: usize) {
        for _ in 0..steps {
            let Some(visit) = self.queue.pop() else {
                break;
            };
            let Visit {
                node,
                replica,
                marks,
            } = visit;
            let next = self.nodes.get(node).links.next;
            if next != NIL {
                self.queue.push(Visit {
                    node: next,
                    ..visit
                });
            }
            self.refresh(node, replica);
            if marks {
                self.mark_limited(node, replica);
            }
        }
        if self.queue.is_empty() && self.queue.capacity() > 1 << 16 {
            self.queue = Vec::new();
        }
        self.reap();
    }
}
