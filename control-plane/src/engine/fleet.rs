//! The replicas' states and loads, and the head made of them.

use std::collections::BTreeSet;

use prefix_picker_core::blocks::PoolKey;
use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::pick::Rates;
use prefix_picker_core::sync::{Head, Pace, PoolHead, ReplicaHead, ReplicaState};
use prefix_picker_core::table::TableStore;

use super::adapters::Adapters;
use super::ramp::{self, Ramp};
use crate::block_hash::Algorithm;
use crate::config::{PoolConfig, ReplicaConfig};

mod learned;
mod members;
mod seen;

use members::Numbers;
pub(super) use members::{Join, NUMBERS};
pub use members::{JoinError, Member, Standing};
use seen::Seen;
pub use seen::{Details, Trouble};

/// Change of a pool's bytes per token below which gateways are not told, in percent.
const TOLD_CHANGE_PERCENT: u32 = 2;
/// The same of a replica's rates: they are estimates, and each change is a head.
const TOLD_RATE_CHANGE_PERCENT: u32 = 10;

/// A state's name in metrics and answers.
#[must_use]
pub fn state_word(state: ReplicaState) -> &'static str {
    match state {
        ReplicaState::Ready => "ready",
        ReplicaState::Warming => "warming",
        ReplicaState::Draining => "draining",
        ReplicaState::Down => "down",
    }
}

/// An engine's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests running.
    pub running: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// Used share of the KV cache in thousandths.
    pub kv_usage_permille: u16,
}

/// The outcome of a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scraped {
    /// The engine's health, if the scrape decides it.
    pub healthy: Option<bool>,
    /// Its load, if it said so.
    pub load: Option<Load>,
    /// Its block size, if it said so.
    pub block_size: Option<u32>,
    /// How it hashes blocks, if it said so.
    pub hash_algorithm: Option<Algorithm>,
    /// How fast it is, as far as learned.
    pub rates: Option<Rates>,
}

struct Replica {
    name: String,
    /// Its name in files, see [`Join::key`].
    key: String,
    /// What gateways call it in this epoch.
    number: ReplicaIndex,
    pool: u16,
    endpoint: String,
    dp_rank: Option<u16>,
    healthy: Option<bool>,
    synced: bool,
    /// An operator has taken it out of service.
    draining: bool,
    standing: Standing,
    load: Load,
    /// As gateways are told; 0 where unknown.
    prefill_tokens_per_s: u32,
    step_us: u32,
    ramp: Ramp,
    adapters: Adapters,
    /// Its models have been asked for, with or without an answer.
    asked: bool,
    version: Option<String>,
    /// Longest prompt that it takes, in tokens.
    max_model_len: Option<u32>,
    hash_algorithm: Option<Algorithm>,
    seen: Seen,
}

impl Replica {
    fn new(join: &Join<'_>, number: ReplicaIndex) -> Self {
        let (pool, config): (usize, &ReplicaConfig) = (join.pool, join.replica);
        Self {
            name: config.name.clone(),
            key: join.key.to_owned(),
            number,
            pool: u16::try_from(pool).unwrap_or(u16::MAX),
            endpoint: config.endpoint.to_string(),
            dp_rank: config.data_parallel_rank,
            healthy: None,
            synced: false,
            draining: false,
            standing: Standing::Serving,
            load: Load::default(),
            prefill_tokens_per_s: 0,
            step_us: 0,
            ramp: Ramp::Done,
            adapters: Adapters::default(),
            asked: false,
            version: None,
            max_model_len: None,
            hash_algorithm: None,
            seen: Seen::default(),
        }
    }

    /// Not seen healthy is down: requests to it might fail.
    fn state(&self) -> ReplicaState {
        let draining = self.draining || self.standing == Standing::Leaving;
        match (draining, self.healthy, self.synced) {
            (true, ..) => ReplicaState::Draining,
            _ if self.standing == Standing::NotReady => ReplicaState::Down,
            (_, None | Some(false), _) => ReplicaState::Down,
            (_, _, true) => ReplicaState::Ready,
            (_, _, false) => ReplicaState::Warming,
        }
    }
}

/// Tells another rate, if it is another one.
fn tell_rate(told: &mut u32, now: u32) -> bool {
    let apart = u64::from(told.abs_diff(now)) * 100;
    let changed = apart > u64::from(*told) * u64::from(TOLD_RATE_CHANGE_PERCENT);
    if changed {
        *told = now;
    }
    changed
}

pub(super) fn pool_head(
    pool: &PoolConfig,
    key: PoolKey,
    profile_hash: u64,
    token_ids: bool,
) -> PoolHead {
    PoolHead {
        name: pool.name.clone(),
        key,
        profile_hash,
        models: pool.models.clone(),
        clusters: pool.clusters.clone(),
        block_size: 0,
        bytes_per_token_milli: 0,
        token_ids,
        loras: Vec::new(),
        full_reports: pool.full_reports,
    }
}

/// All replicas, and the head that gateways get.
///
/// A replica has two numbers. Its *slot* is its place here, in the index and in all tasks: it stays for
/// as long as the replica does, and the next one may have it. Its *number* is what gateways know it by:
/// it goes to nobody else for as long as the epoch lasts ([`members::Numbers`]).
pub(super) struct Fleet {
    /// By slot.
    replicas: Vec<Option<Replica>>,
    numbers: Numbers,
    /// Pools whose replicas are discovered and not listed yet.
    undiscovered: BTreeSet<usize>,
    /// Block sizes by pool as scraped, which go before those of events.
    scraped_block_sizes: Vec<u32>,
    /// Pools whose replicas load on demand any adapter that one of them has.
    adapters_on_demand: Vec<bool>,
    head: Head,
    encoded: Vec<u8>,
    loads_changed: bool,
    /// Time of the last [`Self::ramp`], in milliseconds.
    now_ms: u64,
}

impl Fleet {
    pub(super) fn new(
        pools: Vec<PoolHead>,
        adapters_on_demand: Vec<bool>,
        table: &TableStore,
        version: u64,
    ) -> Self {
        let head = Head {
            epoch: table.epoch(),
            generation: table.generation(),
            page_count: table.page_count(),
            seq: table.seq(),
            version,
            replicas: Vec::new(),
            pools,
        };
        let mut fleet = Self {
            scraped_block_sizes: vec![0; head.pools.len()],
            adapters_on_demand,
            replicas: Vec::new(),
            numbers: Numbers::new(NUMBERS),
            undiscovered: BTreeSet::new(),
            head,
            encoded: Vec::new(),
            loads_changed: false,
            now_ms: 0,
        };
        fleet.rebuild(table.generation(), table.page_count(), table.seq());
        fleet
    }

    fn get(&mut self, replica: ReplicaIndex) -> Option<&mut Replica> {
        self.replicas.get_mut(usize::from(replica.0))?.as_mut()
    }

    /// All that there are, with their slots.
    fn all(&self) -> impl Iterator<Item = (ReplicaIndex, &Replica)> + Clone {
        let slots = (0u16..).map(ReplicaIndex).zip(&self.replicas);
        slots.filter_map(|(slot, replica)| Some((slot, replica.as_ref()?)))
    }

    pub(super) fn pool_of(&self, replica: ReplicaIndex) -> Option<usize> {
        let found = self.replicas.get(usize::from(replica.0))?.as_ref()?;
        Some(usize::from(found.pool))
    }

    pub(super) fn set_synced(&mut self, replica: ReplicaIndex, synced: bool) -> bool {
        self.get(replica)
            .is_some_and(|replica| std::mem::replace(&mut replica.synced, synced) != synced)
    }

    pub(super) fn set_draining(&mut self, replica: ReplicaIndex, draining: bool) -> bool {
        self.get(replica)
            .is_some_and(|replica| std::mem::replace(&mut replica.draining, draining) != draining)
    }

    /// The replicas of a pool.
    pub(super) fn of_pool(&self, pool: usize) -> Vec<ReplicaIndex> {
        let of_pool = self.all().filter(|(_, r)| usize::from(r.pool) == pool);
        of_pool.map(|(slot, _)| slot).collect()
    }

    /// True: gateways should hear of it at once.
    pub(super) fn scraped(&mut self, replica: ReplicaIndex, scraped: Scraped) -> bool {
        let Some(found) = self.get(replica) else {
            return false;
        };
        let mut urgent = false;
        if let Some(healthy) = scraped.healthy {
            urgent = found.healthy.replace(healthy) != Some(healthy);
            if urgent {
                tracing::info!(replica = %found.name, healthy, "health of a replica changed");
            }
        }
        if let Some(algorithm) = scraped.hash_algorithm
            && found.hash_algorithm.replace(algorithm) != Some(algorithm)
        {
            tracing::info!(replica = %found.name, algorithm = algorithm.name(), "how an engine hashes blocks");
        }
        // It may come back without them.
        let lost_adapters = scraped.healthy == Some(false) && found.adapters.doubt();
        let load_changed = scraped
            .load
            .is_some_and(|load| std::mem::replace(&mut found.load, load) != load);
        let rates_changed = scraped.rates.is_some_and(|rates| {
            let told = [
                (&mut found.prefill_tokens_per_s, rates.prefill_tokens_per_s),
                (&mut found.step_us, rates.step_us),
            ];
            told.into_iter()
                .fold(false, |any, (told, now)| tell_rate(told, now) || any)
        });
        let pool = usize::from(found.pool);
        self.loads_changed |= load_changed || rates_changed;
        if let (Some(size), Some(known)) =
            (scraped.block_size, self.scraped_block_sizes.get_mut(pool))
            && *known != size
        {
            *known = size;
            urgent = true;
        }
        if lost_adapters {
            self.tell_adapters(pool);
        }
        urgent || lost_adapters
    }

    /// Moves on how new the replicas are, by a clock in milliseconds. True: gateways should hear of it.
    pub(super) fn ramp(&mut self, now_ms: u64) -> bool {
        let told = |fleet: &Self| -> Vec<u16> {
            let replicas = fleet.all();
            replicas
                .map(|(_, r)| r.ramp.permille(fleet.now_ms))
                .collect()
        };
        let before = told(self);
        self.now_ms = now_ms;
        for pool in (0u16..).take(self.head.pools.len()) {
            let all = self.replicas.iter_mut().flatten();
            let of_pool = all.filter(|r| r.pool == pool);
            let ramps = of_pool.map(|r| {
                let pickable = r.state().is_pickable();
                (&mut r.ramp, pickable)
            });
            ramp::step(ramps, now_ms);
        }
        before != told(self)
    }

    /// Have loads changed since the last call?
    pub(super) fn loads_changed(&mut self) -> bool {
        std::mem::take(&mut self.loads_changed)
    }

    /// What the pool's stores say.
    pub(super) fn measured(
        &mut self,
        pool: usize,
        bytes_per_token_milli: u32,
        block_size: u32,
        token_ids: bool,
    ) {
        let scraped = self.scraped_block_sizes.get(pool).copied().unwrap_or(0);
        let Some(head) = self.head.pools.get_mut(pool) else {
            return;
        };
        let told = u64::from(head.bytes_per_token_milli);
        let apart = told.abs_diff(u64::from(bytes_per_token_milli));
        if apart * 100 > told * u64::from(TOLD_CHANGE_PERCENT) {
            head.bytes_per_token_milli = bytes_per_token_milli;
        }
        head.block_size = if scraped > 0 { scraped } else { block_size };
        head.token_ids = token_ids;
    }

    /// Makes the head anew. True, and a new version, if it differs from the one gateways know.
    pub(super) fn rebuild(&mut self, generation: u32, page_count: u32, seq: u64) -> bool {
        let replicas = self
            .all()
            .map(|(_, replica)| ReplicaHead {
                index: replica.number,
                pool: replica.pool,
                endpoint: replica.endpoint.clone(),
                dp_rank: replica.dp_rank,
                state: replica.state(),
                running: replica.load.running,
                waiting: replica.load.waiting,
                kv_usage_permille: replica.load.kv_usage_permille,
                pace: Pace {
                    prefill_tokens_per_s: replica.prefill_tokens_per_s,
                    step_us: replica.step_us,
                    ramp_permille: replica.ramp.permille(self.now_ms),
                },
            })
            .collect();
        self.head.replicas = replicas;
        (self.head.generation, self.head.page_count) = (generation, page_count);
        // A newer sequence number alone makes no new head: it is set only after the comparison.
        if !self.encoded.is_empty() && self.head.encode().is_ok_and(|bytes| bytes == self.encoded) {
            return false;
        }
        self.head.seq = seq;
        self.head.version += 1;
        match self.head.encode() {
            Ok(bytes) => self.encoded = bytes,
            Err(error) => tracing::error!(%error, "head cannot be encoded"),
        }
        true
    }

    /// A pool's profile is this one now.
    pub(super) fn set_profile(&mut self, pool: usize, profile_hash: u64) {
        if let Some(head) = self.head.pools.get_mut(pool) {
            head.profile_hash = profile_hash;
        }
    }

    /// A pool's prompts are rendered by another profile from now on. What was known of its replicas
    /// is not, until they are followed anew.
    pub(super) fn begin_anew(&mut self, pool: usize, profile_hash: u64) {
        self.set_profile(pool, profile_hash);
        for replica in self.replicas.iter_mut().flatten() {
            if usize::from(replica.pool) == pool {
                replica.synced = false;
            }
        }
    }

    /// These were not there in an earlier life that knew others of their pools.
    pub(super) fn added(&mut self, replicas: &[ReplicaIndex]) {
        for replica in replicas {
            if let Some(found) = self.get(*replica) {
                found.ramp = Ramp::Away(None);
            }
        }
    }

    pub(super) fn encoded(&self) -> (Vec<u8>, u64) {
        (self.encoded.clone(), self.head.version)
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    pub(super) fn unsettled(&self) -> Vec<String> {
        let unsettled = |replica: &&Replica| {
            replica.healthy != Some(false) && !(replica.healthy == Some(true) && replica.synced)
        };
        let replicas = self.replicas.iter().flatten();
        replicas
            .filter(unsettled)
            .map(|replica| replica.name.clone())
            .chain(self.undiscovered())
            .collect()
    }
}
