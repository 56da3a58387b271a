//! Who was sent what a moment ago: claims that no event bears out yet.
//!
//! The table knows a prefix once the engine has computed and announced it. Until then its siblings
//! would be strewn over all replicas, each computing the same. So whoever places a request notes it,
//! where all workers see it at once: a fixed number of buckets, a claim's bucket given by its key, a
//! fixed number of places in each, the one that ends first giving way.
//!
//! ```text
//! bucket = version u8 (1), then claims; little-endian:
//!          key u64, place u64, since u64, until u64 (milliseconds since 1970),
//!          span u16, count u8, marks count x u16
//! ```
//!
//! The key is a block hash or [`digest`] of a name; the place is [`place`] of an endpoint, which
//! outlives epochs and their replica numbers. [`anchors`] says which of a prompt's blocks are noted,
//! and what the marks are.
//!
//! Invariant: a claim is a hint. One that is lost costs a prefix computed twice, one that is wrong
//! costs a request sent where its prefix is not; so buckets may be overwritten, torn up or lost.
//!
//! The clock is the wall clock, since it must be the same for all workers. One that is set back
//! makes claims of its former future, which do not count.

mod anchors;
mod sent;

use sha2::{Digest, Sha256};

use crate::sync::SyncError;
use crate::sync::cursor::{Reader, Writer};

pub use anchors::{ANCHORS_MAX, Anchor, MARKS_MAX, Marks, anchors};

const VERSION: u8 = 1;
/// A claim from further in the future than this, in milliseconds, was made by a clock that has been
/// set back since.
const SKEW_MS: u64 = 1_000;

/// Something was sent somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What.
    pub key: u64,
    /// Where.
    pub place: u64,
    /// What follows, if it is a prompt's block.
    pub marks: Marks,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// When that stops to mean anything.
    pub until_ms: u64,
}

impl Claim {
    /// Does it count?
    #[must_use]
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.until_ms > now_ms && self.since_ms <= now_ms.saturating_add(SKEW_MS)
    }

    /// Says it the same?
    fn equals(&self, other: &Self) -> bool {
        (self.key, self.place, self.marks) == (other.key, other.place, other.marks)
    }

    fn encode(&self, w: &mut Writer) {
        for word in [self.key, self.place, self.since_ms, self.until_ms] {
            w.u64(word);
        }
        w.u16(self.marks.span);
        w.u8(self.marks.len);
        for &mark in self.marks.marks.iter().take(self.marks.len.into()) {
            w.u16(mark);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, SyncError> {
        let (key, place, since_ms, until_ms) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let (span, len) = (r.u16()?, r.u8()?);
        let mut marks = Marks {
            span,
            len,
            ..Marks::default()
        };
        let places = marks.marks.get_mut(..len.into());
        for mark in places.ok_or(SyncError::Truncated)? {
            *mark = r.u16()?;
        }
        Ok(Self {
            key,
            place,
            marks,
            since_ms,
            until_ms,
        })
    }
}

/// What became of a claim that was put into a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is new: whoever put it answers for it.
    Made,
    /// It was there, and lasts longer now.
    Renewed,
    /// It was there, and lasts long enough: nothing to write.
    Kept,
}

/// A bucket's claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    claims: Vec<Claim>,
}

impl Bucket {
    /// Reads a bucket, as far as it can be read.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let Some((&VERSION, rest)) = bytes.split_first() else {
            return Self::default();
        };
        let mut r = Reader::new(rest);
        let next = core::iter::from_fn(|| Claim::decode(&mut r).ok());
        Self {
            claims: next.collect(),
        }
    }

    /// The bucket's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        for claim in &self.claims {
            claim.encode(&mut w);
        }
        w.into_bytes()
    }

    /// The claims that count.
    pub fn live(&self, now_ms: u64) -> impl Iterator<Item = &Claim> {
        self.claims
            .iter()
            .filter(move |claim| claim.is_live(now_ms))
    }

    /// The claims on a key that count.
    pub fn on(&self, key: u64, now_ms: u64) -> impl Iterator<Item = &Claim> {
        self.live(now_ms).filter(move |claim| claim.key == key)
    }

    /// Puts a claim into a bucket of `size` claims. One that is there keeps its beginning, and is made
    /// to last longer once a quarter of the time is over.
    pub fn put(&mut self, claim: Claim, size: usize) -> Put {
        let (now_ms, until_ms) = (claim.since_ms, claim.until_ms);
        let ttl_ms = until_ms.saturating_sub(now_ms);
        if let Some(there) = self.claims.iter_mut().find(|there| there.equals(&claim)) {
            if !there.is_live(now_ms) {
                *there = claim;
                return Put::Made;
            }
            if there.until_ms.saturating_sub(now_ms) >= ttl_ms - ttl_ms / 4 {
                return Put::Kept;
            }
            there.until_ms = until_ms;
            return Put::Renewed;
        }
        // A bucket of a version with more places.
        self.claims.truncate(size.max(1));
        if self.claims.len() < size {
            self.claims.push(claim);
            return Put::Made;
        }
        let ends = |there: &&mut Claim| {
            if there.is_live(now_ms) {
                there.until_ms
            } else {
                0
            }
        };
        if let Some(first) = self.claims.iter_mut().min_by_key(ends) {
            *first = claim;
        }
        Put::Made
    }

    /// Makes a claim end sooner; false: it does anyway, or is not there.
    pub fn shorten(&mut self, claim: &Claim, until_ms: u64) -> bool {
        let there = self.claims.iter_mut().find(|there| there.equals(claim));
        let Some(there) = there.filter(|there| there.until_ms > until_ms) else {
            return false;
        };
        there.until_ms = until_ms;
        true
    }

    /// Takes a claim back; false: it is not there.
    pub fn take(&mut self, claim: &Claim) -> bool {
        let before = self.claims.len();
        self.claims.retain(|there| !there.equals(claim));
        self.claims.len() < before
    }
}

/// A replica as a claim's place, by its name ([`crate::sync::replica_name`]): the same in all epochs.
#[must_use]
pub fn place(replica: &str) -> u64 {
    digest("place", replica.as_bytes())
}

/// 64 bits of a name that a client may have chosen: nobody can find two names that share them on
/// purpose for less than the trouble of 2^32 tries, and all they would gain is a hint.
#[must_use]
pub fn digest(what: &str, name: &[u8]) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(b"prefix-picker ");
    hasher.update(what.as_bytes());
    hasher.update([0]);
    hasher.update(name);
    let digest: [u8; 32] = hasher.finalize().into();
    let (words, _) = digest.as_chunks::<8>();
    words.first().map_or(0, |&word| u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests;
