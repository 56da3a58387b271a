//! Identifiers that cross the process boundary. Newtypes, so that none is taken for another.

use core::fmt;

/// Our chained hash of a prompt's prefix up to and including one block.
///
/// It stands for the whole prefix, not for the block's bytes alone, and has nothing to do with the
/// engine's own block hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockHash(pub u64);

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockHash({:016x})", self.0)
    }
}

/// A replica's dense number. It means something within one [`Epoch`] only, in which it is never
/// given to another replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ReplicaIndex(pub u16);

/// One life of a control plane's table. Pages, heads and replica numbers of different epochs never
/// mix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);
