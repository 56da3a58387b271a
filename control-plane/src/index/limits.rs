//! How many tokens of a held prefix count.
//!
//! The table tells for each block how many tokens a prompt up to its end is worth, one number for all
//! who hold it. Where the deepest place up to which a holder can use its prefix lies further up, it is
//! worth that; where holders differ, the least counts. They differ where prompts share a start; what
//! follows, a conversation of one client, most often has one holder, and its number is exact.

use super::PoolIndex;
use super::arena::NIL;
use super::holdings::{ANY_PREFIX, CHECKPOINT, GPU_PREFIX, PREFIX, State};
use super::nodes::ROOT;
use prefix_picker_core::ids::ReplicaIndex;

/// What limits the use of what a replica holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Limit {
    /// Prefixes can be used up to a checkpoint only. Lower tiers do not count then: which states they
    /// have is not told.
    pub(super) checkpoints: bool,
    /// Tokens that lower tiers load as one; 0: single blocks.
    pub(super) chunk_tokens: u32,
}

impl Limit {
    pub(super) const NONE: Self = Self {
        checkpoints: false,
        chunk_tokens: 0,
    };

    /// The credit that counts.
    pub(super) const fn counts(self, state: State) -> State {
        if self.checkpoints && state & GPU_PREFIX == 0 {
            state & !PREFIX
        } else {
            state
        }
    }

    /// Whether a prefix can be used up to the end of a block that is held so, `tokens` from the start.
    pub(super) const fn allows(self, state: State, tokens: u32) -> bool {
        if self.checkpoints {
            return state & CHECKPOINT != 0 && state & GPU_PREFIX != 0;
        }
        state & GPU_PREFIX != 0
            || (state & ANY_PREFIX != 0
                && (self.chunk_tokens == 0 || tokens.is_multiple_of(self.chunk_tokens)))
    }
}

impl PoolIndex {
    pub(super) fn limit(&self, replica: ReplicaIndex) -> Limit {
        self.limits
            .get(usize::from(replica.0))
            .copied()
            .unwrap_or(Limit::NONE)
    }

    pub(super) fn limit_mut(&mut self, replica: ReplicaIndex) -> &mut Limit {
        let at = usize::from(replica.0);
        if self.limits.len() <= at {
            self.limits.resize(at + 1, Limit::NONE);
        }
        // There is one now.
        &mut self.limits[at]
    }

    /// Nothing is known of a replica any more.
    pub(super) fn forget_limit(&mut self, replica: ReplicaIndex) {
        if let Some(limit) = self.limits.get_mut(usize::from(replica.0)) {
            *limit = Limit::NONE;
        }
        while self.limits.pop_if(|limit| *limit == Limit::NONE).is_some() {}
    }

    /// Whether a replica can use its prefix up to a node's end.
    pub(super) fn allows(&self, replica: ReplicaIndex, node: u32, state: State) -> bool {
        self.limit(replica)
            .allows(state, self.nodes.get(node).tokens())
    }

    /// Who is credited with what is held so, and how.
    pub(super) fn credited(
        &self,
        holding: u32,
    ) -> impl Iterator<Item = (ReplicaIndex, State)> + '_ {
        self.holdings
            .members(holding)
            .map(|(replica, state)| (replica, self.limit(replica).counts(state)))
            .filter(|(_, state)| state & ANY_PREFIX != 0)
    }

    /// How many tokens a prompt up to a block's end is worth. Not below `floor`, which it is known to
    /// be worth.
    pub(super) fn tokens_of_block(&self, block: u32, floor: u32) -> u32 {
        let mut worth = self.blocks.tree.get(block).tokens;
        if self.limits.is_empty() {
            return worth.max(floor);
        }
        for owner in self.blocks.owners_of(block) {
            let node = self.nodes.get(owner.node);
            let is_last = self
                .blocks
                .owned(node.owns)
                .take_while(|other| other.block != block)
                .all(|other| {
                    let ids = self.blocks.tree.get(block).is_ids();
                    self.blocks.tree.get(other.block).is_ids() != ids
                });
            for (replica, _) in self.credited(node.holding) {
                let limit = self.limit(replica);
                if worth <= floor {
                    return floor;
                }
                if limit == Limit::NONE {
                    continue;
                }
                // A prompt that ends inside an engine block does not have it.
                let from = if is_last {
                    owner.node
                } else {
                    node.links.parent
                };
                worth = worth.min(self.usable(replica, limit, from, floor));
            }
        }
        worth.max(floor)
    }

    /// Tokens up to the last place, at or above a node's end, up to which a replica can use what it
    /// holds; `floor` or less: not above it.
    fn usable(&self, replica: ReplicaIndex, limit: Limit, from: u32, floor: u32) -> u32 {
        let mut at = from;
        while at != NIL {
            let node = self.nodes.get(at);
            if node.is(ROOT) || node.tokens() <= floor {
                return floor.min(node.tokens());
            }
            let state = self.holdings.state(node.holding, replica);
            if limit.allows(state, node.tokens()) {
                return node.tokens();
            }
            at = node.links.parent;
        }
        0
    }
}
