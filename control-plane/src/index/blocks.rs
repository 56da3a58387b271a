//! Our blocks: hashes of prompt text (or of token ids) that a gateway can compute, and the engine
//! blocks in which they end.
//!
//! A block usually ends in one node. Where two tokenisations give the same bytes it has several
//! owners, and a replica holds it if it holds any of them whole.

use super::arena::{Arena, NIL};
use super::groups::Groups;
use super::tree::{Item, Links, Tree};
use prefix_picker_core::ids::BlockHash;

/// In `depth`: the block's children are found through the table.
const WIDE: u32 = 1 << 31;
/// In `depth`: a block of token ids.
const IDS: u32 = 1 << 30;
const DEPTH_MASK: u32 = IDS - 1;

/// One of our blocks.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) hash: BlockHash,
    pub(super) links: Links,
    depth: u32,
    /// The group that describes it.
    pub(super) group: u32,
    /// First of its owners.
    pub(super) owners: u32,
    /// Tokens that a match to this block's end is worth: the least of its owners'.
    pub(super) tokens: u32,
}

impl Block {
    /// Place in its chain, from 0.
    pub(super) const fn depth(&self) -> u32 {
        self.depth & DEPTH_MASK
    }

    /// A block of token ids rather than of text.
    pub(super) const fn is_ids(&self) -> bool {
        self.depth & IDS != 0
    }
}

impl Item for Block {
    fn links(&self) -> &Links {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
    fn key(&self) -> u64 {
        self.hash.0
    }
    fn is_wide(&self) -> bool {
        self.depth & WIDE != 0
    }
    fn set_wide(&mut self, wide: bool) {
        if wide {
            self.depth |= WIDE
        } else {
            self.depth &= !WIDE
        }
    }
}

/// A node in which a block ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) node: u32,
    pub(super) block: u32,
    /// The next block that ends in the same node (older ones later).
    pub(super) next_in_node: u32,
    /// The next node in which the same block ends.
    pub(super) next_in_block: u32,
    pub(super) tokens: u32,
}

/// A block, as a chain reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewBlock {
    pub(super) hash: BlockHash,
    /// Cumulative tokens to credit at its end.
    pub(super) tokens: u32,
    /// A block of token ids rather than of text.
    pub(super) ids: bool,
}

/// All blocks, their owners and their groups.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) tree: Tree<Block>,
    owners: Arena<Owner>,
    pub(super) groups: Groups,
}

impl Blocks {
    pub(super) fn owner(&self, at: u32) -> &Owner {
        self.owners.get(at)
    }

    /// The owners of a block.
    pub(super) fn owners_of(&self, block: u32) -> impl Iterator<Item = &Owner> + '_ {
        let mut at = self.tree.get(block).owners;
        std::iter::from_fn(move || {
            (at != NIL).then(|| {
                let owner = self.owners.get(at);
                at = owner.next_in_block;
                owner
            })
        })
    }

    /// The blocks that end in a node whose list starts at `owns`, last one first.
    pub(super) fn owned(&self, owns: u32) -> impl Iterator<Item = &Owner> + '_ {
        let mut at = owns;
        std::iter::from_fn(move || {
            (at != NIL).then(|| {
                let owner = self.owners.get(at);
                at = owner.next_in_node;
                owner
            })
        })
    }

    /// Notes that a block ends in `node`, whose list starts at `owns`. `parent`: the block before, or
    /// [`NIL`]. Returns the block and the list's new start; `None` where there is no room, or where
    /// the hash is taken by another chain.
    pub(super) fn own(
        &mut self,
        node: u32,
        owns: u32,
        parent: u32,
        new: NewBlock,
    ) -> Option<(u32, u32)> {
        let block = match self.tree.find_child(parent, new.hash.0) {
            Some(block) => block,
            None => self.insert(parent, new)?,
        };
        if self.owned(owns).any(|owner| owner.block == block) {
            return Some((block, owns));
        }
        let next_in_block = self.tree.get(block).owners;
        let owner = Owner {
            node,
            block,
            next_in_node: owns,
            next_in_block,
            tokens: new.tokens,
        };
        let Some(at) = self.owners.insert(owner) else {
            self.remove_if_unowned(block);
            return None;
        };
        let held = self.tree.get_mut(block);
        held.owners = at;
        if next_in_block == NIL || new.tokens < held.tokens {
            held.tokens = new.tokens;
        }
        let group = held.group;
        self.groups.mark(group);
        Some((block, at))
    }

    fn insert(&mut self, parent: u32, new: NewBlock) -> Option<u32> {
        let depth = if parent == NIL {
            0
        } else {
            self.tree.get(parent).depth() + 1
        };
        if depth > DEPTH_MASK {
            return None;
        }
        let block = self.tree.insert(Block {
            hash: new.hash,
            links: Links::below(parent),
            depth: if new.ids { depth | IDS } else { depth },
            group: NIL,
            owners: NIL,
            tokens: new.tokens,
        })?;
        self.groups.add(&mut self.tree, block);
        Some(block)
    }

    /// The node whose list starts at `owns` is gone: so are the blocks that nobody else owns.
    pub(super) fn disown(&mut self, owns: u32) {
        let mut at = owns;
        while at != NIL {
            let owner = *self.owners.get(at);
            self.unlink_owner(at, &owner);
            self.owners.release(at);
            self.remove_if_unowned(owner.block);
            at = owner.next_in_node;
        }
    }

    fn unlink_owner(&mut self, at: u32, owner: &Owner) {
        let first = self.tree.get(owner.block).owners;
        if first == at {
            self.tree.get_mut(owner.block).owners = owner.next_in_block;
        } else {
            let mut before = first;
            while self.owners.get(before).next_in_block != at {
                before = self.owners.get(before).next_in_block;
            }
            self.owners.get_mut(before).next_in_block = owner.next_in_block;
        }
        let least = self.owners_of(owner.block).map(|owner| owner.tokens).min();
        let block = self.tree.get_mut(owner.block);
        if let Some(least) = least {
            block.tokens = least;
        }
        let group = block.group;
        self.groups.mark(group);
    }

    fn remove_if_unowned(&mut self, block: u32) {
        if self.tree.get(block).owners == NIL {
            debug_assert_eq!(self.tree.get(block).links.first_child, NIL);
            self.groups.remove(&mut self.tree, block);
            self.tree.remove(block);
        }
    }

    /// The holders of a block have changed.
    pub(super) fn mark(&mut self, block: u32) {
        let group = self.tree.get(block).group;
        self.groups.mark(group);
    }

    /// Bytes in use, free slots left out.
    pub(super) fn used_bytes(&self) -> usize {
        self.tree.len() * size_of::<Block>()
            + self.owners.live() * size_of::<Owner>()
            + self.groups.used_bytes()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tree.memory_bytes() + self.owners.memory_bytes() + self.groups.memory_bytes()
    }
}
