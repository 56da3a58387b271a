//! Numbered slots in fixed chunks: growth never copies what is there, and no slot is wasted on doubling.

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

const CHUNK: usize = 1 << 12;

/// Most slots of an arena: engine block entries keep node numbers in 28 bits.
pub(super) const MAX_SLOTS: u32 = (1 << 28) - 1;

/// Slots of `T`, reused once freed. The owner of the arena knows which slots are live.
#[derive(Debug)]
pub(super) struct Arena<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
    slots: u32,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
            slots: 0,
        }
    }
}

impl<T> Arena<T> {
    /// Puts a value into a free slot. `None`: the arena is full.
    pub(super) fn insert(&mut self, value: T) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            *self.get_mut(index) = value;
            return Some(index);
        }
        if self.slots >= MAX_SLOTS {
            return None;
        }
        let index = self.slots;
        if index as usize / CHUNK == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks[index as usize / CHUNK].push(value);
        self.slots += 1;
        Some(index)
    }

    /// Gives a slot back; an arena without live slots gives its memory back.
    pub(super) fn release(&mut self, index: u32) {
        self.free.push(index);
        if self.free.len() == self.slots as usize {
            *self = Self::default();
        } else if self.free.len().is_multiple_of(CHUNK)
            && self.free.capacity() > 4 * self.free.len()
        {
            self.free.shrink_to(2 * self.free.len());
        }
    }

    pub(super) fn get(&self, index: u32) -> &T {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    /// Slots ever used since the arena was last empty, free ones included.
    pub(super) const fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn live(&self) -> usize {
        self.slots as usize - self.free.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_and_an_empty_arena_holds_nothing() {
        let mut arena = Arena::default();
        let slots: Vec<u32> = (0..10_000_u32)
            .map(|value| arena.insert(value).unwrap())
            .collect();
        assert_eq!(*arena.get(slots[9_999]), 9_999);
        arena.release(slots[5]);
        assert_eq!(arena.insert(77), Some(slots[5]));
        assert_eq!(arena.live(), 10_000);
        for slot in slots {
            arena.release(slot);
        }
        assert_eq!((arena.live(), arena.memory_bytes()), (0, 0));
    }
}
