//! A forest in numbered slots: items know their parent and their siblings, and a child is found by
//! its key.
//!
//! Most items have one child, so children are searched along the list; only those of an item with
//! many are also in a table. Roots are always in the table.

use super::arena::{Arena, NIL};
use hashbrown::HashTable;

/// Marks a slot that is free.
const FREED: u32 = NIL - 1;

/// More children than this are found through the table.
const NARROW_MAX: usize = 8;

/// Where an item hangs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// [`NIL`] at a root.
    pub(super) parent: u32,
    pub(super) first_child: u32,
    pub(super) next: u32,
    prev: u32,
}

impl Links {
    pub(super) const fn below(parent: u32) -> Self {
        Self {
            parent,
            first_child: NIL,
            next: NIL,
            prev: NIL,
        }
    }
}

/// What the forest needs to know of an item.
pub(super) trait Item {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
    /// Tells an item from its siblings; random enough to serve as a table hash.
    fn key(&self) -> u64;
    /// Whether this item's children are in the table.
    fn is_wide(&self) -> bool;
    fn set_wide(&mut self, wide: bool);
}

/// The forest.
#[derive(Debug)]
pub(super) struct Tree<T> {
    arena: Arena<T>,
    wide: HashTable<u32>,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self {
            arena: Arena::default(),
            wide: HashTable::new(),
        }
    }
}

impl<T: Item> Tree<T> {
    pub(super) fn get(&self, index: u32) -> &T {
        self.arena.get(index)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut T {
        self.arena.get_mut(index)
    }

    /// Whether the slot holds an item. Any number is allowed.
    pub(super) fn is_live(&self, index: u32) -> bool {
        index < self.arena.slots() && self.get(index).links().parent != FREED
    }

    /// Numbers of all items.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.arena.slots()).filter(|index| self.is_live(*index))
    }

    pub(super) fn len(&self) -> usize {
        self.arena.live()
    }

    /// Slots ever used, free ones included.
    pub(super) const fn slots(&self) -> u32 {
        self.arena.slots()
    }

    pub(super) fn find_root(&self, key: u64) -> Option<u32> {
        self.find_in_table(NIL, key)
    }

    pub(super) fn find_child(&self, parent: u32, key: u64) -> Option<u32> {
        if parent == NIL || self.get(parent).is_wide() {
            return self.find_in_table(parent, key);
        }
        self.children(parent)
            .find(|child| self.get(*child).key() == key)
    }

    fn find_in_table(&self, parent: u32, key: u64) -> Option<u32> {
        self.wide
            .find(key, |index| {
                let item = self.get(*index);
                item.key() == key && item.links().parent == parent
            })
            .copied()
    }

    /// Children, newest first.
    pub(super) fn children(&self, parent: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.get(parent).links().first_child;
        std::iter::from_fn(move || {
            let child = at;
            (child != NIL).then(|| {
                at = self.get(child).links().next;
                child
            })
        })
    }

    /// Adds an item whose parent is the one in its links. `None`: the forest is full.
    pub(super) fn insert(&mut self, item: T) -> Option<u32> {
        let (parent, key) = (item.links().parent, item.key());
        let index = self.arena.insert(item)?;
        if parent == NIL {
            self.insert_in_table(index, key);
            return Some(index);
        }
        if !self.get(parent).is_wide() && self.children(parent).nth(NARROW_MAX - 1).is_some() {
            let children: Vec<u32> = self.children(parent).collect();
            for child in children {
                let key = self.get(child).key();
                self.insert_in_table(child, key);
            }
            self.get_mut(parent).set_wide(true);
        }
        if self.get(parent).is_wide() {
            self.insert_in_table(index, key);
        }
        let first = std::mem::replace(&mut self.get_mut(parent).links_mut().first_child, index);
        self.get_mut(index).links_mut().next = first;
        if first != NIL {
            self.get_mut(first).links_mut().prev = index;
        }
        Some(index)
    }

    fn insert_in_table(&mut self, index: u32, key: u64) {
        let arena = &self.arena;
        self.wide
            .insert_unique(key, index, |index| arena.get(*index).key());
    }

    /// Removes an item without children.
    pub(super) fn remove(&mut self, index: u32) {
        let item = self.get(index);
        let (links, key) = (*item.links(), item.key());
        debug_assert_eq!(links.first_child, NIL);
        if links.parent == NIL || self.get(links.parent).is_wide() {
            if let Ok(entry) = self.wide.find_entry(key, |found| *found == index) {
                entry.remove();
            }
            if self.wide.capacity() > 64 && self.wide.len() < self.wide.capacity() / 8 {
                let arena = &self.arena;
                self.wide
                    .shrink_to(self.wide.len() * 2, |index| arena.get(*index).key());
            }
        }
        if links.prev != NIL {
            self.get_mut(links.prev).links_mut().next = links.next;
        } else if links.parent != NIL {
            let parent = self.get_mut(links.parent);
            parent.links_mut().first_child = links.next;
            if links.next == NIL {
                parent.set_wide(false);
            }
        }
        if links.next != NIL {
            self.get_mut(links.next).links_mut().prev = links.prev;
        }
        self.get_mut(index).links_mut().parent = FREED;
        self.arena.release(index);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.arena.memory_bytes() + self.wide.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    struct Leaf {
        links: Links,
        key: u64,
        wide: bool,
    }

    impl Item for Leaf {
        fn links(&self) -> &Links {
            &self.links
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.links
        }
        fn key(&self) -> u64 {
            self.key
        }
        fn is_wide(&self) -> bool {
            self.wide
        }
        fn set_wide(&mut self, wide: bool) {
            self.wide = wide;
        }
    }

    proptest! {
        #[test]
        fn children_equal_a_set(steps in prop::collection::vec((0_u64..2, 0_u64..30, any::<bool>()), 1..400)) {
            let mut tree = Tree::default();
            let roots = [0, 1].map(|key| tree.insert(Leaf { links: Links::below(NIL), key, wide: false }).unwrap());
            let mut model = BTreeSet::new();
            for (root, key, add) in steps {
                let parent = roots[usize::try_from(root).unwrap()];
                let found = tree.find_child(parent, key);
                prop_assert_eq!(found.is_some(), model.contains(&(root, key)));
                match (found, add) {
                    (None, true) => {
                        tree.insert(Leaf { links: Links::below(parent), key, wide: false }).unwrap();
                        model.insert((root, key));
                    }
                    (Some(child), false) => {
                        tree.remove(child);
                        model.remove(&(root, key));
                    }
                    _ => {}
                }
                let listed: BTreeSet<u64> = tree.children(parent).map(|child| tree.get(child).key).collect();
                let wanted: BTreeSet<u64> = model.iter().filter(|(r, _)| *r == root).map(|(_, key)| *key).collect();
                prop_assert_eq!(listed, wanted);
                prop_assert_eq!(tree.find_root(root), Some(parent));
            }
        }
    }
}
