//! Which blocks are described together, and which groups have changed.
//!
//! A group covers the blocks at and below its anchor from the anchor's depth up to its `end`. One
//! that outgrows its limit is cut where most of it stays below the limit; what is left hangs at
//! anchors of its own and keeps the old end, so that groups further down are not touched: a store
//! costs what it adds, however many continuations a popular prompt has. A cut group that has shrunk
//! takes its parts back when it is next written.

use super::arena::{Arena, NIL};
use super::blocks::Block;
use super::tree::Tree;
use prefix_picker_core::ids::BlockHash;
use prefix_picker_core::table::GROUP_DEPTH;

/// More blocks than this are not described together.
pub(super) const GROUP_BLOCKS_MAX: u32 = 96;

/// A cut group with at most this many blocks tries to take its parts back...
const JOIN_BELOW: u32 = 24;
/// ...if the whole then has at most this many.
const JOINED_MAX: u32 = 48;

#[derive(Debug)]
pub(super) struct Group {
    /// Its first block; [`NIL`] in a free slot.
    pub(super) anchor: u32,
    /// Depth at which its blocks end (exclusive).
    pub(super) end: u32,
    blocks: u32,
    dirty: bool,
    /// The table has it.
    pub(super) published: bool,
}

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    arena: Arena<Group>,
    dirty: Vec<u32>,
    gone: Vec<BlockHash>,
}

/// Where a chain position's regular group ends.
pub(super) const fn regular_end(depth: u32) -> u32 {
    (depth / GROUP_DEPTH + 1) * GROUP_DEPTH
}

impl Groups {
    pub(super) fn get(&self, group: u32) -> &Group {
        self.arena.get(group)
    }

    pub(super) fn get_mut(&mut self, group: u32) -> &mut Group {
        self.arena.get_mut(group)
    }

    pub(super) fn len(&self) -> usize {
        self.arena.live()
    }

    /// Groups that have changed since they were last taken.
    pub(super) fn dirty_len(&self) -> usize {
        self.dirty.len() + self.gone.len()
    }

    /// The group must be written again.
    pub(super) fn mark(&mut self, group: u32) {
        if group == NIL {
            return;
        }
        let held = self.arena.get_mut(group);
        if !held.dirty {
            held.dirty = true;
            self.dirty.push(group);
        }
    }

    /// Finds a group for a new block without children.
    pub(super) fn add(&mut self, tree: &mut Tree<Block>, block: u32) {
        let (depth, parent) = (tree.get(block).depth(), tree.get(block).links.parent);
        let above = if parent == NIL || depth % GROUP_DEPTH == 0 {
            NIL
        } else {
            tree.get(parent).group
        };
        if above == NIL || depth >= self.get(above).end {
            let group = self.open(block, regular_end(depth));
            tree.get_mut(block).group = group;
            return;
        }
        tree.get_mut(block).group = above;
        self.mark(above);
        let held = self.get_mut(above);
        held.blocks += 1;
        if held.blocks > GROUP_BLOCKS_MAX {
            self.cut(tree, above);
        }
    }

    fn open(&mut self, anchor: u32, end: u32) -> u32 {
        let group = Group {
            anchor,
            end,
            blocks: 1,
            dirty: false,
            published: false,
        };
        // There are no more groups than blocks, and those fit.
        let group = self.arena.insert(group).unwrap_or(NIL);
        self.mark(group);
        group
    }

    /// A block without children and owners goes.
    pub(super) fn remove(&mut self, tree: &mut Tree<Block>, block: u32) {
        let group = tree.get(block).group;
        if group == NIL {
            return;
        }
        self.mark(group);
        let held = self.get_mut(group);
        held.blocks -= 1;
        if held.blocks == 0 {
            self.close(group, tree.get(block).hash);
        }
    }

    fn close(&mut self, group: u32, anchor: BlockHash) {
        let held = self.get_mut(group);
        if held.published {
            self.gone.push(anchor);
        }
        let held = self.get_mut(group);
        (held.anchor, held.dirty) = (NIL, false);
        self.arena.release(group);
    }

    /// The blocks of a group that ends at `end`, at and below `from`, parents first.
    fn members(tree: &Tree<Block>, end: u32, from: u32) -> Vec<u32> {
        let mut members = vec![from];
        let mut next = 0;
        while let Some(block) = members.get(next).copied() {
            // Beyond the end there may be a million.
            if tree.get(block).depth() + 1 < end {
                members.extend(tree.children(block));
            }
            next += 1;
        }
        members
    }

    /// Cuts a group at the largest depth that leaves it within the limit.
    fn cut(&mut self, tree: &mut Tree<Block>, group: u32) {
        let (anchor, end) = (self.get(group).anchor, self.get(group).end);
        let start = tree.get(anchor).depth();
        let members = Self::members(tree, end, anchor);
        let (mut at, mut kept) = (start + 1, 1);
        while at < end {
            let more = members
                .iter()
                .filter(|member| tree.get(**member).depth() == at)
                .count();
            if kept + more > GROUP_BLOCKS_MAX as usize {
                break;
            }
            kept += more;
            at += 1;
        }
        let anchors: Vec<u32> = members
            .into_iter()
            .filter(|member| tree.get(*member).depth() == at)
            .collect();
        for anchor in anchors {
            let moved = Self::members(tree, end, anchor);
            let part = self.open(anchor, end);
            let count = u32::try_from(moved.len()).unwrap_or(u32::MAX);
            if part != NIL {
                self.get_mut(part).blocks = count;
            }
            for block in moved {
                tree.get_mut(block).group = part;
            }
            self.get_mut(group).blocks -= count;
        }
        self.get_mut(group).end = at;
        self.mark(group);
    }

    /// Takes the parts of a cut group back, if there is little in them.
    fn join(&mut self, tree: &mut Tree<Block>, group: u32) {
        let (anchor, end, mut blocks) = {
            let held = self.get(group);
            (held.anchor, held.end, held.blocks)
        };
        if blocks > JOIN_BELOW || end >= regular_end(tree.get(anchor).depth()) {
            return;
        }
        let mut parts: Vec<u32> = Vec::new();
        let mut joined_end = None;
        for member in Self::members(tree, end, anchor) {
            if tree.get(member).depth() + 1 != end {
                continue;
            }
            for child in tree.children(member) {
                let part = tree.get(child).group;
                if part == NIL {
                    return;
                }
                let held = self.get(part);
                blocks += held.blocks;
                if blocks > JOINED_MAX || *joined_end.get_or_insert(held.end) != held.end {
                    return;
                }
                parts.push(part);
            }
        }
        for part in parts {
            let (anchor, end) = (self.get(part).anchor, self.get(part).end);
            for block in Self::members(tree, end, anchor) {
                tree.get_mut(block).group = group;
            }
            let hash = tree.get(anchor).hash;
            self.close(part, hash);
        }
        let held = self.get_mut(group);
        held.blocks = blocks;
        held.end = joined_end.unwrap_or_else(|| regular_end(end));
    }

    /// The anchors that are gone since this was last called.
    pub(super) fn take_gone(&mut self) -> Vec<BlockHash> {
        std::mem::take(&mut self.gone)
    }

    /// Anchors that the table still has though the index that wrote them is gone.
    pub(super) fn set_gone(&mut self, gone: Vec<BlockHash>) {
        self.gone = gone;
    }

    /// The next group to write again.
    pub(super) fn take_dirty(&mut self, tree: &mut Tree<Block>) -> Option<u32> {
        loop {
            let Some(group) = self.dirty.pop() else {
                self.dirty = Vec::new();
                return None;
            };
            if group < self.arena.slots() && self.get(group).dirty {
                self.join(tree, group);
                self.get_mut(group).dirty = false;
                return Some(group);
            }
        }
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.len() * size_of::<Group>() + self.dirty.len() * size_of::<u32>()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.arena.memory_bytes()
            + self.dirty.capacity() * size_of::<u32>()
            + self.gone.capacity() * size_of::<BlockHash>()
    }
}
