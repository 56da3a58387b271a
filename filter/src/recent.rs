//! What was sent where a moment ago, in Envoy's shared data: all workers see it at once.
//!
//! A [`Board`] is a fixed set of keys `<name>/<n>`, each a bucket of claims (see
//! [`prefix_picker_core::recent`]). All keys are made when the first VM starts, since a version means
//! nothing on a key that was never set. Two workers that write one bucket at a time: one has to read
//! again, and gives up after that, for what it would have noted is only a hint.

use prefix_picker_core::recent::{Anchor, Bucket, Claim, Put};

use crate::host::Host;

/// Host calls that one request may spend on a board while it is placed.
pub const CALLS_MAX: usize = 20;

/// The claims that are noted when a prompt is placed: 24,576 of them, 2 MB at most.
pub const SENT: Board = Board::new("pp/sent", 10, 24);

/// A set of keys in shared data.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    name: &'static str,
    /// There are `1 << bits` buckets.
    bits: u32,
    /// Claims in each at most.
    size: usize,
}

/// A bucket as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Read {
    index: u64,
    version: u32,
    bucket: Bucket,
}

/// What was looked at, and the buckets where claims on it are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    wanted: Vec<Anchor>,
    reads: Vec<Read>,
    now_ms: u64,
    calls: usize,
}

impl Look {
    /// The claims that counted when they were looked at, and what each is about.
    pub fn claims(&self) -> impl Iterator<Item = (&Anchor, &Claim)> {
        self.wanted.iter().flat_map(move |anchor| {
            let buckets = self.reads.iter().map(|read| &read.bucket);
            let claims = buckets.flat_map(move |bucket| bucket.on(anchor.key, self.now_ms));
            claims.map(move |claim| (anchor, claim))
        })
    }

    /// When that was, in milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }
}

/// Claims that a request made for a place, and answers for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    ttl_ms: u64,
    wanted: Vec<Anchor>,
    all: Vec<Claim>,
    /// Those that nobody had claimed for the place.
    made: Vec<Claim>,
}

impl Claimed {
    /// Those that nobody had claimed for the place before.
    #[must_use]
    pub fn made(&self) -> &[Claim] {
        &self.made
    }
}

impl Board {
    /// `1 << bits` buckets of `size` claims.
    #[must_use]
    pub const fn new(name: &'static str, bits: u32, size: usize) -> Self {
        Self { name, bits, size }
    }

    fn index(&self, key: u64) -> u64 {
        // Keys are chosen for being small or ending in zeros: spread them.
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - self.bits)
    }

    fn shared_key(&self, index: u64) -> String {
        format!("{}/{index}", self.name)
    }

    /// Makes the keys that are not there: all of them in a process's first VM, none in others.
    pub fn prepare(&self, host: &impl Host) {
        let last = (1 << self.bits) - 1;
        if host.shared(&self.shared_key(last)).cas != 0 {
            return;
        }
        for index in 0..=last {
            let key = self.shared_key(index);
            if host.shared(&key).cas == 0 {
                let _ = host.set_shared(&key, &Bucket::default().encode(), 0);
            }
        }
    }

    fn read(&self, host: &impl Host, index: u64) -> Read {
        let shared = host.shared(&self.shared_key(index));
        Read {
            index,
            version: shared.cas,
            bucket: Bucket::decode(&shared.bytes),
        }
    }

    fn write(&self, host: &impl Host, read: &Read) -> bool {
        let bytes = read.bucket.encode();
        let key = self.shared_key(read.index);
        host.set_shared(&key, &bytes, read.version).is_ok()
    }

    /// Reads what is claimed of these.
    #[must_use]
    pub fn look(&self, host: &impl Host, wanted: Vec<Anchor>) -> Look {
        let mut reads: Vec<Read> = Vec::with_capacity(wanted.len());
        for anchor in &wanted {
            let index = self.index(anchor.key);
            if !reads.iter().any(|read| read.index == index) {
                reads.push(self.read(host, index));
            }
        }
        Look {
            calls: reads.len(),
            wanted,
            reads,
            now_ms: host.unix_time_ms(),
        }
    }

    /// Claims for a place what was looked at, for `ttl_ms` from now.
    pub fn claim(&self, host: &impl Host, look: Look, place: u64, ttl_ms: u64) -> Claimed {
        let claim = |anchor: &Anchor| Claim {
            key: anchor.key,
            place,
            marks: anchor.marks,
            since_ms: look.now_ms,
            until_ms: look.now_ms.saturating_add(ttl_ms),
        };
        let claims: Vec<Claim> = look.wanted.iter().map(claim).collect();
        let mut calls = look.calls;
        let mut made = Vec::new();
        for read in look.reads {
            let its = claims.iter().filter(|c| self.index(c.key) == read.index);
            let its: Vec<Claim> = its.copied().collect();
            made.extend(self.put(host, read, &its, &mut calls));
        }
        Claimed {
            ttl_ms,
            wanted: look.wanted,
            all: claims,
            made,
        }
    }

    /// Puts claims into their bucket; those that are new there.
    fn put(
        &self,
        host: &impl Host,
        mut read: Read,
        claims: &[Claim],
        calls: &mut usize,
    ) -> Vec<Claim> {
        loop {
            let bucket = &mut read.bucket;
            let puts = claims.iter().map(|&c| (c, bucket.put(c, self.size)));
            let puts: Vec<(Claim, Put)> = puts.collect();
            if puts.iter().all(|&(_, put)| put == Put::Kept) || *calls >= CALLS_MAX {
                return Vec::new();
            }
            *calls += 1;
            if self.write(host, &read) {
                let new = puts.into_iter().filter(|&(_, put)| put == Put::Made);
                return new.map(|(claim, _)| claim).collect();
            }
            if *calls + 2 > CALLS_MAX {
                return Vec::new();
            }
            *calls += 1;
            read = self.read(host, read.index);
        }
    }

    /// Another gateway made a claim.
    pub fn hear(&self, host: &impl Host, claim: Claim) {
        let read = self.read(host, self.index(claim.key));
        let _ = self.put(host, read, &[claim], &mut 0);
    }

    /// Takes back what a request made: it came to nothing there.
    pub fn release(&self, host: &impl Host, claimed: &Claimed) {
        self.take(host, &claimed.made);
    }

    /// Takes claims back, whoever made them.
    pub fn take(&self, host: &impl Host, claims: &[Claim]) {
        self.change(host, claims, |bucket, claim| bucket.take(claim));
    }

    /// What was claimed is true by now, and will be told elsewhere: nobody's claims on it are needed for
    /// longer than `ms`.
    pub fn settle(&self, host: &impl Host, claimed: &Claimed, ms: u64) {
        let until_ms = host.unix_time_ms().saturating_add(ms);
        self.change(host, &claimed.all, |bucket, claim| {
            bucket.shorten(claim, until_ms)
        });
    }

    fn change(
        &self,
        host: &impl Host,
        claims: &[Claim],
        change: impl Fn(&mut Bucket, &Claim) -> bool,
    ) {
        for claim in claims {
            for _ in 0..2 {
                let mut read = self.read(host, self.index(claim.key));
                if !change(&mut read.bucket, claim) || self.write(host, &read) {
                    break;
                }
            }
        }
    }

    /// The request turned out to be served elsewhere.
    #[must_use]
    pub fn moved(&self, host: &impl Host, claimed: Claimed, place: u64) -> Claimed {
        self.release(host, &claimed);
        let look = self.look(host, claimed.wanted);
        self.claim(host, look, place, claimed.ttl_ms)
    }
}

#[cfg(test)]
mod tests;
