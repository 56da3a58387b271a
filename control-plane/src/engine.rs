//! What the control plane knows, and the table it makes of it.
//!
//! Subscribers bring events ([`Engine::apply`]), scrapers loads ([`Engine::scraped`]); the server
//! asks for answers ([`Engine::answer`]) and waits for news ([`Engine::news`]). Changes are gathered
//! in the pools' indices and written to the table by [`Engine::publish`], which [`publish_loop`]
//! calls a few milliseconds after the first of them, so that a burst is one change for gateways.
//!
//! Locks are held for one step each. Where one is taken inside another, it is in this order: who comes
//! and goes, who publishes, a pool's index, the fleet, the table.
//!
//! Absent here: sockets and files. Time is a parameter, but for how long [`publish_loop`] gathers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use prefix_picker_core::blocks::PoolKey;
use prefix_picker_core::ids::{BlockHash, Epoch, ReplicaIndex};
use prefix_picker_core::prompt::{Capability, Profile};
use prefix_picker_core::sync::ProfileRecord;
use prefix_picker_core::table::{LookupLimits, Matches, TableShape, TableStore, lookup};
use tokio::sync::{Notify, watch};

use crate::config::{Config, TokenIds};
use crate::events::KvEventBatch;
use crate::feedback::Feedback;
use crate::index::{ApplyStats, IndexConfig, PoolIndex, StreamPosition};
use crate::live::Live;
use crate::news::News;
use crate::report::Report;
use crate::subscriber::Position;
use crate::vocab::Vocab;

mod adapters;
mod answer;
mod facts;
mod fleet;
mod generated;
mod members;
pub mod memory;
mod pool;
mod publish;
mod ramp;
pub(crate) mod rules;
mod shown;
pub mod sink;
pub mod snapshot;

pub use answer::{answer, has_news};
use fleet::Fleet;
pub use fleet::{Details, JoinError, Load, Member, Scraped, Standing, Trouble, state_word};
pub use pool::Pool;
pub use publish::{TableSize, publish_loop};

/// A pool with its model's files read.
#[derive(Debug)]
pub struct PoolParts {
    /// How requests become text.
    pub profile: Profile,
    /// What token ids stand for.
    pub vocab: Vocab,
}

/// See the module's text.
pub struct Engine {
    pools: Vec<Pool>,
    profiles: Mutex<Vec<ProfileRecord>>,
    /// Held from the reading of a profile until the head names the changed one.
    profile_change: Mutex<()>,
    /// Held while a replica comes or goes.
    membership: Mutex<()>,
    /// Held while the indices' changes are written to the table.
    publishing: Mutex<()>,
    table: Mutex<TableStore>,
    page_bytes: usize,
    fleet: Mutex<Fleet>,
    dirty: Notify,
    open: AtomicBool,
    news: watch::Sender<u64>,
    feedback: Feedback,
    gateways: News,
    report: Report,
    live: Live,
}

/// Are blocks of prompt text of any use under this profile?
fn has_text(profile: &Profile) -> bool {
    let exact = |capability: &Capability| matches!(capability, Capability::Exact);
    exact(&profile.chat) || exact(&profile.completions)
}

/// The pools' profiles as gateways get them, each once.
fn records(pools: &[Pool]) -> Vec<ProfileRecord> {
    let mut records: Vec<ProfileRecord> = Vec::new();
    for pool in pools {
        let profile = lock(&pool.profile);
        let hash = profile.hash();
        if records.iter().all(|known| known.hash != hash) {
            let json = serde_json::to_vec(&*profile).unwrap_or_default();
            records.push(ProfileRecord { hash, json });
        }
    }
    records
}

/// A lock that outlives a panic elsewhere: what it guards is replaced as a whole or rebuilt.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// An engine that knows nothing of any replica yet. `parts` are the pools' in their order.
    ///
    /// `first_version` must be above all head versions of earlier lives; milliseconds since 1970 are.
    #[must_use]
    pub fn new(
        config: &Config,
        parts: Vec<PoolParts>,
        secret: &[u8],
        epoch: Epoch,
        first_version: u64,
    ) -> Self {
        let mut pools = Vec::new();
        let mut heads = Vec::new();
        for (pool, parts) in config.pools.iter().zip(parts) {
            let key = PoolKey::derive(secret, &pool.name);
            let profile_hash = parts.profile.hash();
            let seed_hash = parts.profile.seed_hash();
            let vocab = Arc::new(parts.vocab);
            let ids_on = pool.token_ids == TokenIds::On;
            let index = PoolIndex::new(IndexConfig {
                key,
                profile_hash: seed_hash,
                vocab: vocab.clone(),
                text: has_text(&parts.profile),
                token_ids: ids_on,
                full_reports: pool.full_reports,
                check_grown: false,
                untold_salts: pool.untold_salts,
                eagle_drops_block: pool.eagle_drops_block,
                memory_budget_bytes: pool.memory_budget_bytes,
            });
            pools.push(Pool {
                name: pool.name.clone(),
                index: Mutex::new(index),
                vocab,
                ids_on_report: pool.token_ids == TokenIds::Auto,
                ids_on: AtomicBool::new(ids_on),
                measured: Mutex::default(),
                profile: Mutex::new(parts.profile),
                compiled: Mutex::default(),
                pinned: pool.engine.vllm_version.is_some(),
                lives: watch::Sender::new(0),
                checker: OnceLock::new(),
            });
            heads.push(fleet::pool_head(pool, key, profile_hash, ids_on));
        }
        let table = TableStore::new(epoch, config.page_bytes);
        let on_demand = config.pools.iter().map(|pool| pool.adapters_on_demand);
        let fleet = Fleet::new(heads, on_demand.collect(), &table, first_version);
        let names = || config.pools.iter().map(|pool| pool.name.clone());
        let engine = Self {
            profiles: Mutex::new(records(&pools)),
            profile_change: Mutex::new(()),
            pools,
            membership: Mutex::new(()),
            publishing: Mutex::new(()),
            table: Mutex::new(table),
            page_bytes: config.page_bytes,
            fleet: Mutex::new(fleet),
            dirty: Notify::new(),
            open: AtomicBool::new(false),
            news: watch::Sender::new(0),
            feedback: Feedback::new(names()),
            gateways: News::new(epoch.0),
            report: Report::new(names()),
            live: Live::default(),
        };
        for (pool, replica) in config.replicas() {
            if let Err(error) = engine.add(pool, replica, &replica.name, false) {
                tracing::error!(replica = %replica.name, %error, "a replica is left out");
            }
        }
        engine
    }

    /// What gateways tell each other.
    #[must_use]
    pub fn gateways(&self) -> &News {
        &self.gateways
    }

    /// What decisions would have brought.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Whether predictions are right.
    #[must_use]
    pub fn feedback(&self) -> &Feedback {
        &self.feedback
    }

    /// Has a pool, by its position, any blocks?
    #[must_use]
    pub fn has_blocks(&self, pool: usize) -> bool {
        self.pools
            .get(pool)
            .is_some_and(|pool| pool.stats().nodes > 0)
    }

    /// All pools, in the configuration's order.
    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Who holds how much of a prompt with these block hashes, by the table as gateways get it.
    #[must_use]
    pub fn lookup(&self, hashes: &[BlockHash]) -> Matches {
        let table = lock(&self.table);
        let shape = TableShape {
            epoch: table.epoch(),
            generation: table.generation(),
            page_count: table.page_count(),
        };
        let mut page = |index: u32| Some(table.page(index));
        lookup(&shape, hashes, &mut page, LookupLimits::default())
    }

    fn pool_of(&self, replica: ReplicaIndex) -> Option<&Pool> {
        let pool = lock(&self.fleet).pool_of(replica)?;
        self.pools.get(pool)
    }

    /// Takes the next batch of a replica's events.
    pub fn apply(
        &self,
        replica: ReplicaIndex,
        position: Position,
        batch: &KvEventBatch,
    ) -> ApplyStats {
        let Some(pool) = self.pool_of(replica) else {
            return ApplyStats::default();
        };
        lock(&self.fleet).heard(replica);
        pool.measure(batch);
        let stats = {
            let mut index = lock(&pool.index);
            let stats = index.apply(replica, batch);
            index.set_position(replica, to_stream(position));
            stats
        };
        self.dirty.notify_one();
        stats
    }

    /// Forgets what a replica holds.
    pub fn drop_replica(&self, replica: ReplicaIndex) {
        if let Some(pool) = self.pool_of(replica) {
            lock(&pool.index).drop_replica(replica);
            self.dirty.notify_one();
        }
    }

    /// How far a replica's events have been applied.
    #[must_use]
    pub fn position(&self, replica: ReplicaIndex) -> Option<Position> {
        let pool = self.pool_of(replica)?;
        let position = lock(&pool.index).position(replica)?;
        Some(Position {
            seq: position.sequence,
            digest: u64::from_le_bytes(position.digest),
        })
    }

    /// What is known of a replica follows its engine, or no longer does.
    pub fn synced(&self, replica: ReplicaIndex, synced: bool) {
        self.change(|fleet| fleet.set_synced(replica, synced));
    }

    /// The outcome of a scrape. Loads reach gateways with the next [`Self::announce_loads`], a change
    /// of health at once.
    pub fn scraped(&self, replica: ReplicaIndex, scraped: Scraped) {
        if lock(&self.fleet).scraped(replica, scraped) {
            self.announce();
        }
    }

    /// Tells gateways of loads that have changed, and how new replicas are at `now_ms`, by any clock
    /// that does not jump.
    pub fn announce_loads(&self, now_ms: u64) {
        self.change(|fleet| {
            let ramped = fleet.ramp(now_ms);
            fleet.loads_changed() || ramped
        });
    }

    /// Takes a replica out of service, or back in. False: it was so already.
    pub fn drain(&self, replica: ReplicaIndex, draining: bool) -> bool {
        let changed = lock(&self.fleet).set_draining(replica, draining);
        if changed {
            self.announce();
        }
        changed
    }

    fn change(&self, change: impl FnOnce(&mut Fleet) -> bool) {
        let changed = change(&mut lock(&self.fleet));
        if changed {
            self.announce();
        }
    }

    /// Makes the head anew, and wakes those who wait if it differs.
    fn announce(&self) {
        let measured: Vec<_> = self
            .pools
            .iter()
            .map(|pool| (*lock(&pool.measured), pool.ids_on.load(Ordering::Acquire)))
            .collect();
        let changed = {
            let mut fleet = lock(&self.fleet);
            for (number, (measured, ids_on)) in measured.into_iter().enumerate() {
                fleet.measured(
                    number,
                    measured.bytes_per_token_milli(),
                    measured.block_size,
                    ids_on,
                );
            }
            // Inside, so that no older layout overtakes a newer one.
            let (generation, page_count, seq) = {
                let table = lock(&self.table);
                (table.generation(), table.page_count(), table.seq())
            };
            fleet.rebuild(generation, page_count, seq)
        };
        if changed {
            self.wake();
        }
    }

    fn wake(&self) {
        self.news
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Gateways get answers from now on.
    pub fn open(&self) {
        if !self.open.swap(true, Ordering::AcqRel) {
            self.announce();
            self.wake();
        }
    }

    /// Do gateways get answers?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Names of the replicas of which nothing final is known yet: neither followed nor down.
    #[must_use]
    pub fn unsettled_replicas(&self) -> Vec<String> {
        lock(&self.fleet).unsettled()
    }

    /// Counts up with every change that a gateway may want to hear of.
    #[must_use]
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Engine blocks that a replica holds, and its state.
    #[must_use]
    pub fn replica_blocks(&self, replica: ReplicaIndex) -> usize {
        self.pool_of(replica)
            .map_or(0, |pool| lock(&pool.index).held_blocks(replica))
    }

    /// The head as it is now.
    #[must_use]
    pub fn head(&self) -> prefix_picker_core::sync::Head {
        lock(&self.fleet).head().clone()
    }
}

fn to_stream(position: Position) -> StreamPosition {
    StreamPosition {
        sequence: position.seq,
        digest: position.digest.to_le_bytes(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
