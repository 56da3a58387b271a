//! One replica's engine blocks: engine hash -> node, and how many copies are in which tier.
//!
//! 12 bytes an entry. Copies beyond what an entry can count are in a map of their own: engines do not
//! deduplicate, but many copies of one block are rare.

use hashbrown::hash_table::Entry as TableEntry;
use hashbrown::{HashMap, HashTable};

/// Which memory a copy is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tier {
    Gpu,
    Lower,
}

/// Copies of one block at one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Copies {
    pub(super) gpu: u16,
    pub(super) lower: u16,
}

impl Copies {
    /// One more. At the limit the count stays: it then reaches zero too early, never too late.
    pub(super) fn add(&mut self, tier: Tier) {
        let count = self.of_mut(tier);
        *count = count.saturating_add(1);
    }

    /// One less; `false`: there was none.
    pub(super) fn take(&mut self, tier: Tier) -> bool {
        let count = self.of_mut(tier);
        let had = *count > 0;
        *count = count.saturating_sub(1);
        had
    }

    pub(super) const fn of(self, tier: Tier) -> u16 {
        match tier {
            Tier::Gpu => self.gpu,
            Tier::Lower => self.lower,
        }
    }

    fn of_mut(&mut self, tier: Tier) -> &mut u16 {
        match tier {
            Tier::Gpu => &mut self.gpu,
            Tier::Lower => &mut self.lower,
        }
    }

    pub(super) const fn is_none(self) -> bool {
        self.gpu == 0 && self.lower == 0
    }
}

/// Node in the low 28 bits, then two bits of copies per tier; 3 means: see the map.
#[derive(Clone, Copy, Debug)]
struct Entry {
    low: u32,
    high: u32,
    packed: u32,
}

const NODE_BITS: u32 = 28;
const NODE_MASK: u32 = (1 << NODE_BITS) - 1;
const MANY: u16 = 3;

impl Entry {
    #[allow(clippy::cast_possible_truncation)] // halves of a hash
    const fn new(hash: u64) -> Self {
        Self {
            low: hash as u32,
            high: (hash >> 32) as u32,
            packed: 0,
        }
    }

    fn hash(&self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }

    const fn node(&self) -> u32 {
        self.packed & NODE_MASK
    }
}

fn spread(hash: u64) -> u64 {
    // Engine hashes are random in vLLM, but not in every engine.
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// What [`Held::add`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Added {
    /// The hash was not there; it is now.
    New,
    /// The hash was there, for this node. Nothing has changed.
    Known(u32),
}

/// The blocks of one replica whose content is known.
#[derive(Debug, Default)]
pub(super) struct Held {
    entries: HashTable<Entry>,
    many: HashMap<u64, Copies>,
}

impl Held {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, hash: u64) -> Option<(u32, Copies)> {
        let entry = self
            .entries
            .find(spread(hash), |entry| entry.hash() == hash)?;
        Some((entry.node(), self.copies(entry)))
    }

    /// The node of a hash.
    pub(super) fn node(&self, hash: u64) -> Option<u32> {
        self.entries
            .find(spread(hash), |entry| entry.hash() == hash)
            .map(Entry::node)
    }

    fn copies(&self, entry: &Entry) -> Copies {
        let counts = entry.packed >> NODE_BITS;
        let few = Copies {
            gpu: (counts & 3) as u16,
            lower: (counts >> 2) as u16,
        };
        if few.gpu == MANY || few.lower == MANY {
            return self.many.get(&entry.hash()).copied().unwrap_or(few);
        }
        few
    }

    /// Sets a hash's node and copies; no copies: forgets the hash.
    pub(super) fn set(&mut self, hash: u64, node: u32, copies: Copies) {
        if copies.is_none() {
            self.remove(hash);
            return;
        }
        let few = Copies {
            gpu: copies.gpu.min(MANY),
            lower: copies.lower.min(MANY),
        };
        let packed = node & NODE_MASK | u32::from(few.gpu | few.lower << 2) << NODE_BITS;
        let many = few.gpu == MANY || few.lower == MANY;
        let was_many = match self
            .entries
            .find_mut(spread(hash), |entry| entry.hash() == hash)
        {
            Some(entry) => {
                let counts = entry.packed >> NODE_BITS;
                entry.packed = packed;
                counts & 3 == u32::from(MANY) || counts >> 2 == u32::from(MANY)
            }
            None => {
                self.insert(Entry {
                    packed,
                    ..Entry::new(hash)
                });
                false
            }
        };
        if many {
            self.many.insert(hash, copies);
        } else if was_many {
            self.many.remove(&hash);
        }
    }

    /// One more copy of a block: the most frequent of all changes, and one walk through the table.
    pub(super) fn add(&mut self, hash: u64, node: u32, tier: Tier) -> Added {
        let one = if tier == Tier::Gpu {
            1 << NODE_BITS
        } else {
            4 << NODE_BITS
        };
        let (is_it, rehash) = (
            |entry: &Entry| entry.hash() == hash,
            |entry: &Entry| spread(entry.hash()),
        );
        match self.entries.entry(spread(hash), is_it, rehash) {
            TableEntry::Vacant(place) => {
                place.insert(Entry {
                    packed: node & NODE_MASK | one,
                    ..Entry::new(hash)
                });
                Added::New
            }
            TableEntry::Occupied(place) => Added::Known(place.get().node()),
        }
    }

    fn insert(&mut self, entry: Entry) {
        self.entries
            .insert_unique(spread(entry.hash()), entry, |entry| spread(entry.hash()));
    }

    pub(super) fn remove(&mut self, hash: u64) {
        if let Ok(entry) = self
            .entries
            .find_entry(spread(hash), |entry| entry.hash() == hash)
        {
            entry.remove();
            if !self.many.is_empty() {
                self.many.remove(&hash);
            }
        }
        self.shrink();
    }

    /// Every hash with its node and copies, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32, Copies)> + '_ {
        self.entries
            .iter()
            .map(|entry| (entry.hash(), entry.node(), self.copies(entry)))
    }

    /// Keeps the entries whose node `keep` says to keep.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        let many = &mut self.many;
        self.entries.retain(|entry| {
            let keep = keep(entry.node());
            if !keep && !many.is_empty() {
                many.remove(&entry.hash());
            }
            keep
        });
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.entries.capacity() > 64 && self.entries.len() < self.entries.capacity() / 8 {
            self.entries
                .shrink_to(self.entries.len() * 2, |entry| spread(entry.hash()));
        }
        if self.many.capacity() > 64 && self.many.len() < self.many.capacity() / 8 {
            self.many.shrink_to(self.many.len() * 2);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.allocation_size() + self.many.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn entries_equal_a_map(steps in prop::collection::vec((0_u64..20, 0_u32..9, 0_u16..6, 0_u16..6), 1..200)) {
            let mut held = Held::default();
            let mut model = BTreeMap::new();
            for (hash, node, gpu, lower) in steps {
                let hash = hash.wrapping_mul(0xdead_beef_0123_4567);
                let copies = Copies { gpu, lower };
                held.set(hash, node, copies);
                if copies.is_none() { model.remove(&hash); } else { model.insert(hash, (node, copies)); }
                prop_assert_eq!(held.get(hash), model.get(&hash).copied());
            }
            let found: BTreeMap<_, _> = held.iter().map(|(hash, node, copies)| (hash, (node, copies))).collect();
            prop_assert_eq!(found, model);
        }
    }
}
