//! The replicas' states and loads, and the head made of them.

use prefix_picker_core::blocks::PoolKey;
use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::sync::{Head, PoolHead, ReplicaHead, ReplicaState};
use prefix_picker_core::table::TableStore;

use crate::config::{PoolConfig, ReplicaConfig};

/// Change of a pool's bytes per token below which gateways are not told, in percent.
const TOLD_CHANGE_PERCENT: u32 = 2;

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
}

pub(super) struct Replica {
    name: String,
    pool: u16,
    endpoint: String,
    healthy: Option<bool>,
    synced: bool,
    draining: bool,
    load: Load,
}

impl Replica {
    pub(super) fn new(pool: usize, config: &ReplicaConfig) -> Self {
        Self {
            name: config.name.clone(),
            pool: u16::try_from(pool).unwrap_or(u16::MAX),
            endpoint: config.endpoint.to_string(),
            healthy: None,
            synced: false,
            draining: false,
            load: Load::default(),
        }
    }

    /// Not seen healthy is down: requests to it might fail.
    fn state(&self) -> ReplicaState {
        match (self.draining, self.healthy, self.synced) {
            (true, ..) => ReplicaState::Draining,
            (_, None | Some(false), _) => ReplicaState::Down,
            (_, _, true) => ReplicaState::Ready,
            (_, _, false) => ReplicaState::Warming,
        }
    }
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
    }
}

/// All replicas, and the head that gateways get.
pub(super) struct Fleet {
    replicas: Vec<Replica>,
    /// Block sizes by pool as scraped, which go before those of events.
    scraped_block_sizes: Vec<u32>,
    head: Head,
    encoded: Vec<u8>,
    loads_changed: bool,
}

impl Fleet {
    pub(super) fn new(
        pools: Vec<PoolHead>,
        replicas: Vec<Replica>,
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
            replicas,
            head,
            encoded: Vec::new(),
            loads_changed: false,
        };
        fleet.rebuild(table.generation(), table.page_count(), table.seq());
        fleet
    }

    fn get(&mut self, replica: ReplicaIndex) -> Option<&mut Replica> {
        self.replicas.get_mut(usize::from(replica.0))
    }

    pub(super) fn pool_of(&self, replica: ReplicaIndex) -> Option<usize> {
        self.replicas
            .get(usize::from(replica.0))
            .map(|replica| usize::from(replica.pool))
    }

    pub(super) fn set_synced(&mut self, replica: ReplicaIndex, synced: bool) -> bool {
        self.get(replica)
            .is_some_and(|replica| std::mem::replace(&mut replica.synced, synced) != synced)
    }

    pub(super) fn set_draining(&mut self, replica: ReplicaIndex, draining: bool) -> bool {
        self.get(replica)
            .is_some_and(|replica| std::mem::replace(&mut replica.draining, draining) != draining)
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
        let load_changed = scraped
            .load
            .is_some_and(|load| std::mem::replace(&mut found.load, load) != load);
        let pool = usize::from(found.pool);
        self.loads_changed |= load_changed;
        if let (Some(size), Some(known)) =
            (scraped.block_size, self.scraped_block_sizes.get_mut(pool))
            && *known != size
        {
            *known = size;
            urgent = true;
        }
        urgent
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
        let number = |at: usize| ReplicaIndex(u16::try_from(at).unwrap_or(u16::MAX));
        self.head.replicas = self
            .replicas
            .iter()
            .enumerate()
            .map(|(at, replica)| ReplicaHead {
                index: number(at),
                pool: replica.pool,
                endpoint: replica.endpoint.clone(),
                state: replica.state(),
                running: replica.load.running,
                waiting: replica.load.waiting,
                kv_usage_permille: replica.load.kv_usage_permille,
            })
            .collect();
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
        self.replicas
            .iter()
            .filter(unsettled)
            .map(|replica| replica.name.clone())
            .collect()
    }
}
