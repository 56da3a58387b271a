//! Which replicas hold a node, and how: interned, so that a node costs four bytes whatever the fleet.

use hashbrown::HashTable;
use prefix_picker_core::ids::ReplicaIndex;

/// How one replica holds one node: bits.
pub(super) type State = u8;
/// The block itself is in GPU memory.
pub(super) const GPU: State = 1;
/// The block itself is in a lower tier.
pub(super) const LOWER: State = 2;
/// The whole prefix to the block's end is in GPU memory.
pub(super) const GPU_PREFIX: State = 4;
/// The whole prefix is there, each block in some tier.
pub(super) const ANY_PREFIX: State = 8;
/// Every group that keeps states has saved its state at the block's end. See [`super::checkpoints`].
pub(super) const CHECKPOINT: State = 16;
/// Both credits.
pub(super) const PREFIX: State = GPU_PREFIX | ANY_PREFIX;

/// Held by nobody.
pub(super) const EMPTY: u32 = 0;

const STATE_BITS: u32 = 5;
const CACHE_SLOTS: usize = 1 << 12;

/// A replica and its state, packed so that they sort by replica.
fn pack(replica: ReplicaIndex, state: State) -> u32 {
    (u32::from(replica.0) << STATE_BITS) | u32::from(state)
}

#[allow(clippy::cast_possible_truncation)] // what `pack` put there
fn unpack(member: u32) -> (ReplicaIndex, State) {
    (
        ReplicaIndex((member >> STATE_BITS) as u16),
        (member & ((1 << STATE_BITS) - 1)) as State,
    )
}

#[derive(Debug)]
struct Slot {
    members: Box<[u32]>,
    users: u32,
    /// Goes up whenever the slot is freed, so that remembered transitions are known to be stale.
    generation: u32,
}

/// A remembered transition.
#[derive(Clone, Copy, Debug, Default)]
struct Memo {
    member: u32,
    from: u32,
    from_generation: u32,
    to: u32,
    to_generation: u32,
}

/// All distinct holdings, counted by use.
#[derive(Debug)]
pub(super) struct Holdings {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_members: HashTable<u32>,
    memo: Vec<Memo>,
    member_bytes: usize,
}

fn hash_members(members: &[u32]) -> u64 {
    members.iter().fold(members.len() as u64, |hash, member| {
        (hash.rotate_left(5) ^ u64::from(*member)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

impl Default for Holdings {
    fn default() -> Self {
        let empty = Slot {
            members: Box::default(),
            users: 1,
            generation: 0,
        };
        Self {
            slots: vec![empty],
            free: Vec::new(),
            by_members: HashTable::new(),
            memo: vec![
                Memo {
                    from: u32::MAX,
                    ..Memo::default()
                };
                CACHE_SLOTS
            ],
            member_bytes: 0,
        }
    }
}

impl Holdings {
    /// The replicas of a holding, ascending.
    pub(super) fn members(
        &self,
        holding: u32,
    ) -> impl ExactSizeIterator<Item = (ReplicaIndex, State)> + '_ {
        self.slots[holding as usize]
            .members
            .iter()
            .map(|member| unpack(*member))
    }

    pub(super) fn sharers(&self, holding: u32) -> usize {
        self.slots[holding as usize].members.len()
    }

    /// How a replica holds; 0: not at all.
    pub(super) fn state(&self, holding: u32, replica: ReplicaIndex) -> State {
        let members = &self.slots[holding as usize].members;
        match members.binary_search_by_key(&replica, |member| unpack(*member).0) {
            Ok(at) => unpack(members[at]).1,
            Err(_) => 0,
        }
    }

    /// Trades one use of `from` for one of the holding in which `replica` has `state`.
    pub(super) fn transition(&mut self, from: u32, replica: ReplicaIndex, state: State) -> u32 {
        let member = pack(replica, state);
        let at = (hash_members(&[from, member]) >> 40) as usize % CACHE_SLOTS;
        let memo = self.memo[at];
        let known = memo.from == from
            && memo.member == member
            && memo.from_generation == self.slots[from as usize].generation
            && memo.to_generation == self.slots[memo.to as usize].generation;
        let to = if known {
            self.slots[memo.to as usize].users += 1;
            memo.to
        } else {
            let to = self.find(from, replica, state);
            self.memo[at] = Memo {
                member,
                from,
                from_generation: self.slots[from as usize].generation,
                to,
                to_generation: self.slots[to as usize].generation,
            };
            to
        };
        self.release(from);
        to
    }

    /// The holding, with one use more.
    fn find(&mut self, from: u32, replica: ReplicaIndex, state: State) -> u32 {
        let mut members = self.slots[from as usize].members.to_vec();
        match members.binary_search_by_key(&replica, |member| unpack(*member).0) {
            Ok(at) if state == 0 => {
                members.remove(at);
            }
            Ok(at) => members[at] = pack(replica, state),
            Err(_) if state == 0 => {}
            Err(at) => members.insert(at, pack(replica, state)),
        }
        self.intern(&members)
    }

    fn intern(&mut self, members: &[u32]) -> u32 {
        if members.is_empty() {
            self.slots[EMPTY as usize].users += 1;
            return EMPTY;
        }
        let hash = hash_members(members);
        if let Some(found) = self
            .by_members
            .find(hash, |slot| *self.slots[*slot as usize].members == *members)
        {
            self.slots[*found as usize].users += 1;
            return *found;
        }
        let members: Box<[u32]> = members.into();
        self.member_bytes += size_of_val(&*members);
        let slot = if let Some(slot) = self.free.pop() {
            let held = &mut self.slots[slot as usize];
            held.members = members;
            held.users = 1;
            slot
        } else {
            self.slots.push(Slot {
                members,
                users: 1,
                generation: 0,
            });
            u32::try_from(self.slots.len() - 1).unwrap_or(EMPTY)
        };
        let slots = &self.slots;
        self.by_members.insert_unique(hash, slot, |slot| {
            hash_members(&slots[*slot as usize].members)
        });
        slot
    }

    /// Gives back one use.
    pub(super) fn release(&mut self, holding: u32) {
        let slot = &mut self.slots[holding as usize];
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        let members = std::mem::take(&mut slot.members);
        slot.generation = slot.generation.wrapping_add(1);
        self.member_bytes -= size_of_val(&*members);
        if let Ok(entry) = self
            .by_members
            .find_entry(hash_members(&members), |slot| *slot == holding)
        {
            entry.remove();
        }
        self.free.push(holding);
        if self.by_members.is_empty() {
            self.shrink();
        }
    }

    /// Nothing is held any more: gives the memory back, but keeps generations above the old ones.
    fn shrink(&mut self) {
        let users = self.slots[EMPTY as usize].users;
        *self = Self::default();
        self.slots[EMPTY as usize].users = users;
    }

    /// Takes one use of the empty holding.
    pub(super) fn empty(&mut self) -> u32 {
        self.slots[EMPTY as usize].users += 1;
        EMPTY
    }

    /// Distinct holdings in use.
    pub(super) fn len(&self) -> usize {
        self.by_members.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<u32>()
            + self.by_members.allocation_size()
            + self.memo.capacity() * size_of::<Memo>()
            + self.member_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn holdings_equal_maps(steps in prop::collection::vec((0_usize..6, 0_u16..5, 0_u8..32), 1..300)) {
            let mut holdings = Holdings::default();
            let mut nodes: Vec<(u32, BTreeMap<u16, u8>)> = (0..6).map(|_| (holdings.empty(), BTreeMap::new())).collect();
            for (node, replica, state) in steps {
                let (holding, model) = &mut nodes[node];
                *holding = holdings.transition(*holding, ReplicaIndex(replica), state);
                if state == 0 { model.remove(&replica); } else { model.insert(replica, state); }
                for (holding, model) in &nodes {
                    let found: BTreeMap<u16, u8> = holdings.members(*holding).map(|(r, s)| (r.0, s)).collect();
                    prop_assert_eq!(&found, model);
                    prop_assert_eq!(holdings.state(*holding, ReplicaIndex(2)), model.get(&2).copied().unwrap_or(0));
                }
                let distinct: std::collections::BTreeSet<_> =
                    nodes.iter().map(|(_, model)| model).filter(|model| !model.is_empty()).collect();
                prop_assert_eq!(holdings.len(), distinct.len());
            }
        }
    }
}
