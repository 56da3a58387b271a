//! What decisions would have brought: the figures of `prefix-picker report`.
//!
//! Gateways tell of requests that were looked up and answered with status 200
//! ([`prefix_picker_core::sync::decisions`]); here they are summed by pool and minute ([`ring`]), apart for
//! those in shadow and those enforced, and each goes through the chosen replica's virtual cache
//! ([`virtual_cache`]). Three kinds of figures come of it, and none is to be taken for another:
//!
//! - *measured*: what engines said they found cached, where requests went;
//! - *predicted against today's caches*: by the table, where they went and where we would have sent them.
//!   Those caches were filled by Envoy's choices if we are in shadow;
//! - *counterfactual*: what a cache of each replica's real capacity would have held, had it got the
//!   requests that we chose it for, and only those.
//!
//! All of it is in memory and bounded: a week of minutes, 2 MB a pool at most, and
//! [`virtual_cache::ENTRIES_MAX`] entries, about 1 MB, a replica, or fewer where there are more than 64 of
//! them. A restart begins anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::decisions::{Decision, Decisions};

use crate::clock::ms_since;
use crate::starts::{self, Starts};

pub mod answer;
pub mod ring;
pub mod virtual_cache;

use answer::{Answer, PoolAnswer, ReplicaAnswer};
use ring::{Ring, Sums};
use virtual_cache::VirtualCache;

/// Entries of all virtual caches together at most: about 50 MB.
const ENTRIES_OF_ALL: usize = 1 << 19;

/// See the module.
#[derive(Debug)]
pub struct Report {
    book: Mutex<Book>,
    start: tokio::time::Instant,
}

impl Report {
    /// For pools by name.
    #[must_use]
    pub fn new(pools: impl Iterator<Item = String>) -> Self {
        Self {
            book: Mutex::new(Book::new(pools)),
            start: tokio::time::Instant::now(),
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Book, u64) -> R) -> R {
        let now_s = ms_since(self.start) / 1_000;
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut book, now_s)
    }

    /// A replica comes.
    pub fn add(&self, slot: ReplicaIndex, says: ReplicaSays) {
        self.with(|book, _| book.add(slot, says));
    }

    /// A replica goes, and its virtual cache with it. What its requests were counts on.
    pub fn remove(&self, slot: ReplicaIndex) {
        self.with(|book, _| book.remove(slot));
    }

    /// Takes what a gateway tells.
    pub fn take(&self, decisions: &Decisions) {
        self.with(|book, now_s| book.take(decisions, now_s));
    }

    /// How many tokens a replica's cache has room for, as its engine says.
    pub fn set_capacity(&self, replica: ReplicaIndex, tokens: u64) {
        self.with(|book, _| book.set_capacity(replica, tokens));
    }

    /// How prompts of the last hour began, by pool.
    #[must_use]
    pub fn starts(&self) -> Vec<(String, starts::Sums)> {
        self.with(|book, now_s| {
            let of = book.pools.iter().zip(&book.starts);
            of.map(|((name, _), starts)| (name.clone(), starts.sums(now_s)))
                .collect()
        })
    }

    /// The figures of the last so many seconds.
    #[must_use]
    pub fn answer(&self, since_s: u64) -> Answer {
        self.with(|book, now_s| book.answer(since_s, now_s))
    }
}

/// What is to be known of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaSays {
    /// Its pool's position.
    pub pool: usize,
    /// Its name in the configuration.
    pub label: String,
    /// Its name among gateways, of which [`place`] is made.
    pub name: String,
}

/// The figures, with time as a parameter: seconds since the beginning.
#[derive(Debug)]
struct Book {
    pools: Vec<(String, Ring)>,
    /// By pool as well.
    starts: Vec<Starts>,
    /// By slot.
    replicas: BTreeMap<u16, Replica>,
    places: HashMap<u64, u16>,
    lost: u64,
    unknown: u64,
}

#[derive(Debug)]
struct Replica {
    pool: usize,
    label: String,
    place: u64,
    capacity: Option<u64>,
    cache: VirtualCache,
}

impl Book {
    fn new(pools: impl Iterator<Item = String>) -> Self {
        let pools: Vec<_> = pools.map(|name| (name, Ring::default())).collect();
        Self {
            starts: pools.iter().map(|_| Starts::default()).collect(),
            pools,
            places: HashMap::new(),
            replicas: BTreeMap::new(),
            lost: 0,
            unknown: 0,
        }
    }

    fn add(&mut self, slot: ReplicaIndex, says: ReplicaSays) {
        self.remove(slot);
        let place = place(&says.name);
        let replica = Replica {
            pool: says.pool,
            label: says.label,
            place,
            capacity: None,
            cache: VirtualCache::new(0),
        };
        self.places.insert(place, slot.0);
        self.replicas.insert(slot.0, replica);
        self.share_entries();
    }

    fn remove(&mut self, slot: ReplicaIndex) {
        if let Some(gone) = self.replicas.remove(&slot.0) {
            self.places.remove(&gone.place);
            self.share_entries();
        }
    }

    fn share_entries(&mut self) {
        let each = ENTRIES_OF_ALL / self.replicas.len().max(1);
        for replica in self.replicas.values_mut() {
            replica.cache.set_entries_max(each);
        }
    }

    fn take(&mut self, decisions: &Decisions, now_s: u64) {
        self.lost += u64::from(decisions.lost);
        for decision in &decisions.records {
            if self.count(decision, now_s).is_none() {
                self.unknown += 1;
            }
        }
    }

    /// `None`: it chose a replica that is not ours.
    fn count(&mut self, decision: &Decision, now_s: u64) -> Option<()> {
        let replica = self.places.get(&decision.chosen)?;
        let replica = self.replicas.get_mut(replica)?;
        let (_, ring) = self.pools.get_mut(replica.pool)?;
        let hit = replica
            .capacity
            .map(|capacity| replica.cache.request(&decision.marks, capacity));
        ring.add(now_s, decision, hit);
        if let Some(starts) = self.starts.get_mut(replica.pool) {
            let Decision { first, second, .. } = *decision;
            starts.request(first, second, decision.prompt_tokens, now_s);
        }
        Some(())
    }

    fn set_capacity(&mut self, replica: ReplicaIndex, tokens: u64) {
        if let Some(replica) = self.replicas.get_mut(&replica.0) {
            replica.capacity = Some(tokens);
        }
    }

    fn answer(&self, since_s: u64, now_s: u64) -> Answer {
        let pools = self.pools.iter().enumerate().map(|(at, (name, ring))| {
            let Sums { shadow, enforced } = ring.since(now_s.saturating_sub(since_s));
            let replicas = self.replicas.values().filter(|replica| replica.pool == at);
            PoolAnswer {
                pool: name.clone(),
                shadow: shadow.into(),
                enforced: enforced.into(),
                virtual_caches: replicas.map(Replica::answer).collect(),
            }
        });
        Answer {
            schema: answer::SCHEMA,
            since_s,
            covered_s: since_s.min(now_s).min(ring::KEPT_S),
            lost: self.lost,
            unknown_replica: self.unknown,
            pools: pools.collect(),
        }
    }
}

impl Replica {
    fn answer(&self) -> ReplicaAnswer {
        ReplicaAnswer {
            replica: self.label.clone(),
            capacity_tokens: self.capacity,
            held_tokens: self.capacity.map(|_| self.cache.held_tokens()),
            cut_short: self.cache.is_cut_short(),
        }
    }
}

#[cfg(test)]
mod tests;
