//! A group as the table writes it: runs of blocks, and how far into each a replica is credited.

use super::PoolIndex;
use super::arena::NIL;
use super::groups::regular_end;
use super::holdings::{ANY_PREFIX, EMPTY, GPU_PREFIX, State};
use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::table::{GroupSpec, Holder, RunSpec};

/// A replica's credit at one block.
type Credit = (ReplicaIndex, State);

/// Buffers for one drain.
#[derive(Default)]
pub(super) struct SpecBuilder {
    /// The holding that `credits` came from, if from one alone.
    holding: u32,
    credits: Vec<Credit>,
}

/// Where a run starts.
struct Start {
    block: u32,
    offset: u32,
    /// Tokens at the end of the block before.
    tokens: u32,
    /// Who is credited with the whole run above; `None`: the run starts at the anchor.
    above: Option<Vec<Credit>>,
}

impl SpecBuilder {
    /// What a group says; `None`: nobody holds any of it.
    pub(super) fn build(&mut self, index: &PoolIndex, group: u32) -> Option<GroupSpec> {
        self.holding = EMPTY;
        self.credits.clear();
        let held = index.blocks.groups.get(group);
        let anchor = index.blocks.tree.get(held.anchor);
        let (start, end) = (anchor.depth(), held.end);
        let parent = anchor.links.parent;
        let base_tokens = if parent == NIL {
            0
        } else {
            index.blocks.tree.get(parent).tokens
        };
        let split =
            (end < regular_end(start)).then(|| u8::try_from(end - start).unwrap_or(u8::MAX));
        let mut spec = GroupSpec {
            base_tokens,
            split,
            runs: Vec::new(),
        };
        // What the group's holders are credited with may be worth less than what leads to it.
        let floor = if index.limits.is_empty() {
            base_tokens
        } else {
            0
        };
        let mut starts = vec![Start {
            block: held.anchor,
            offset: 0,
            tokens: floor,
            above: None,
        }];
        while let Some(next) = starts.pop() {
            if let Some(run) = self.run(index, next, end - start, &mut starts) {
                spec.runs.push(run);
            }
        }
        let first = spec.runs.first()?.tokens.first().copied();
        spec.base_tokens = base_tokens.min(first.unwrap_or(base_tokens));
        Some(spec)
    }

    /// The run from a block to the next branch or end. Branches are put onto `starts`.
    fn run(
        &mut self,
        index: &PoolIndex,
        start: Start,
        end: u32,
        starts: &mut Vec<Start>,
    ) -> Option<RunSpec> {
        self.load(index, start.block);
        let mut holders: Vec<Holder> = Vec::new();
        for (replica, state) in &self.credits {
            let state = state
                & start
                    .above
                    .as_ref()
                    .map_or(u8::MAX, |above| credit_of(above, *replica));
            if state & ANY_PREFIX != 0 {
                holders.push(Holder {
                    replica: *replica,
                    gpu: u8::from(state & GPU_PREFIX != 0),
                    any: 1,
                });
            }
        }
        if holders.is_empty() {
            return None;
        }
        let offset = u8::try_from(start.offset).ok()?;
        let mut run = RunSpec {
            start: offset,
            hashes: Vec::new(),
            tokens: Vec::new(),
            holders,
        };
        let (mut block, mut tokens, mut length) = (start.block, start.tokens, 1_u8);
        loop {
            let held = index.blocks.tree.get(block);
            // A longer match is never worth less.
            tokens = index.tokens_of_block(block, tokens);
            run.hashes.push(held.hash);
            run.tokens.push(tokens);
            let at = start.offset + u32::from(length);
            if at >= end {
                return Some(run);
            }
            let mut children = index
                .blocks
                .tree
                .children(block)
                .filter(|child| self.is_held(index, *child));
            let (first, second) = (children.next(), children.next());
            match (first, second) {
                (None, _) => return Some(run),
                (Some(only), None) => {
                    self.load(index, only);
                    if !self.extend(&mut run.holders, length) {
                        return Some(run);
                    }
                    (block, length) = (only, length + 1);
                }
                (Some(_), Some(_)) => {
                    let above: Vec<Credit> = run
                        .holders
                        .iter()
                        .map(|holder| whole(holder, length))
                        .collect();
                    for child in index.blocks.tree.children(block) {
                        starts.push(Start {
                            block: child,
                            offset: at,
                            tokens,
                            above: Some(above.clone()),
                        });
                    }
                    return Some(run);
                }
            }
        }
    }

    /// Makes each holder of the whole run so far that is credited with the loaded block one longer;
    /// `false`: there is none.
    fn extend(&self, holders: &mut [Holder], length: u8) -> bool {
        let mut any = false;
        for holder in holders.iter_mut().filter(|holder| holder.any == length) {
            let state = credit_of(&self.credits, holder.replica);
            if state & ANY_PREFIX != 0 {
                any = true;
                holder.any += 1;
                if holder.gpu == length && state & GPU_PREFIX != 0 {
                    holder.gpu += 1;
                }
            }
        }
        any
    }

    fn is_held(&self, index: &PoolIndex, block: u32) -> bool {
        index.blocks.owners_of(block).any(|owner| {
            let holding = index.nodes.get(owner.node).holding;
            (holding == self.holding && !self.credits.is_empty())
                || index.credited(holding).next().is_some()
        })
    }

    /// Loads who is credited with a block: by any of its owners.
    fn load(&mut self, index: &PoolIndex, block: u32) {
        let mut owners = index.blocks.owners_of(block);
        let (Some(first), second) = (owners.next(), owners.next()) else {
            self.credits.clear();
            self.holding = EMPTY;
            return;
        };
        let holding = index.nodes.get(first.node).holding;
        if second.is_none() && holding == self.holding && holding != EMPTY {
            return;
        }
        self.credits.clear();
        self.credits.extend(index.credited(holding));
        self.holding = if second.is_none() { holding } else { EMPTY };
        if second.is_none() {
            return;
        }
        for owner in index.blocks.owners_of(block).skip(1) {
            let holding = index.nodes.get(owner.node).holding;
            self.credits.extend(index.credited(holding));
        }
        self.credits.sort_unstable();
        self.credits.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 |= later.1;
            }
            same
        });
    }
}

fn credit_of(credits: &[Credit], replica: ReplicaIndex) -> State {
    match credits.binary_search_by_key(&replica, |credit| credit.0) {
        Ok(at) => credits.get(at).map_or(0, |credit| credit.1),
        Err(_) => 0,
    }
}

/// A holder's credit at the end of its run.
fn whole(holder: &Holder, length: u8) -> Credit {
    let gpu = if holder.gpu == length { GPU_PREFIX } else { 0 };
    let any = if holder.any == length { ANY_PREFIX } else { 0 };
    (holder.replica, gpu | any)
}
