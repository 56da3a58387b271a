//! The head: what a gateway must know besides the pages to pick an endpoint.
//!
//! Small (about 70 bytes a replica), sent whole whenever it changes, kept in shared data as it came.

use std::borrow::Cow;

use super::cursor::{Reader, Writer};
use super::{LoraHead, SyncError};
use crate::blocks::PoolKey;
use crate::ids::{Epoch, ReplicaIndex};
use crate::pick::{RAMPED, Rates};

const MAGIC: [u8; 4] = *b"PPHD";
/// In place of a rank: none.
const NO_RANK: u16 = u16::MAX;

/// The highest data-parallel rank that can be told.
pub const DP_RANK_MAX: u16 = NO_RANK - 1;

/// All pools and replicas of one control plane, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The table's life. Replica numbers mean nothing outside it.
    pub epoch: Epoch,
    /// The page layout; pages of another generation are misses.
    pub generation: u32,
    /// Number of pages of this generation, at least 1.
    pub page_count: u32,
    /// The table's newest sequence number when this head was made.
    pub seq: u64,
    /// Grows with every change of anything in the head.
    pub version: u64,
    /// The pools, in the control plane's order.
    pub pools: Vec<PoolHead>,
    /// The replicas of all pools.
    pub replicas: Vec<ReplicaHead>,
}

/// One pool: the replicas of one base model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolHead {
    /// The pool's name in the control plane's configuration.
    pub name: String,
    /// Key of the pool's hash domain, derived from the fleet secret, which itself never leaves the
    /// control plane.
    pub key: PoolKey,
    /// Hash of the prompt profile, see [`crate::prompt::Profile`].
    pub profile_hash: u64,
    /// Model names that requests use for this pool.
    pub models: Vec<String>,
    /// Envoy clusters that route to this pool.
    pub clusters: Vec<String>,
    /// The engines' block size in tokens, 0 while unknown.
    pub block_size: u32,
    /// Mean prompt bytes per token, in thousandths, 0 while unknown.
    pub bytes_per_token_milli: u32,
    /// Blocks of token-id prompts are in the table.
    pub token_ids: bool,
    /// LoRA adapters that engines of this pool have loaded (since 1.1).
    pub loras: Vec<LoraHead>,
    /// A store of blocks that are there already is a report, so that gateways may ask for some.
    pub full_reports: bool,
}

/// A replica's name: its endpoint or, of several ranks behind one endpoint, `endpoint#rank`.
#[must_use]
pub fn replica_name(endpoint: &str, dp_rank: Option<u16>) -> Cow<'_, str> {
    match dp_rank {
        Some(rank) => Cow::Owned(format!("{endpoint}#{rank}")),
        None => Cow::Borrowed(endpoint),
    }
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaHead {
    /// Its number within the epoch.
    pub index: ReplicaIndex,
    /// Its pool: position in [`Head::pools`].
    pub pool: u16,
    /// `ip:port` as Envoy's cluster knows it.
    pub endpoint: String,
    /// Its data-parallel rank, where one endpoint has several (since 1.3).
    pub dp_rank: Option<u16>,
    /// May it get requests, and can its pages be believed?
    pub state: ReplicaState,
    /// Requests running on the engine at the last scrape.
    pub running: u32,
    /// Requests waiting on the engine at the last scrape.
    pub waiting: u32,
    /// Used share of the KV cache at the last scrape, in thousandths.
    pub kv_usage_permille: u16,
    /// How fast it is, and how new (since 1.2).
    pub pace: Pace,
}

/// What a control plane has learned of a replica's speed, and how long it has been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Prompt tokens computed per second; 0 where unknown.
    pub prefill_tokens_per_s: u32,
    /// Time between two tokens of an answer on an otherwise idle engine, in microseconds; 0 where
    /// unknown.
    pub step_us: u32,
    /// How far it has come since it was added or came back: 0 new, [`RAMPED`] not new (any more).
    pub ramp_permille: u16,
}

impl Default for Pace {
    /// Of unknown speed, and not new: what heads before 1.2 say of all replicas.
    fn default() -> Self {
        Self {
            prefill_tokens_per_s: 0,
            step_us: 0,
            ramp_permille: RAMPED,
        }
    }
}

impl Pace {
    /// Rates to estimate with; [`Rates::START`] for what is unknown.
    #[must_use]
    pub fn rates(&self) -> Rates {
        let known = |rate: u32, start: u32| if rate == 0 { start } else { rate };
        Rates {
            prefill_tokens_per_s: known(
                self.prefill_tokens_per_s,
                Rates::START.prefill_tokens_per_s,
            ),
            step_us: known(self.step_us, Rates::START.step_us),
            ..Rates::START
        }
    }

    fn encode(&self, w: &mut Writer) {
        w.u32(self.prefill_tokens_per_s);
        w.u32(self.step_us);
        w.u16(self.ramp_permille);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, SyncError> {
        Ok(Self {
            prefill_tokens_per_s: r.u32()?,
            step_us: r.u32()?,
            ramp_permille: r.u16()?.min(RAMPED),
        })
    }
}

/// What a replica may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// Healthy, its blocks are known.
    Ready,
    /// Healthy, but its blocks are not (or not yet) known: picked by load alone.
    Warming,
    /// Gets no new requests.
    Draining,
    /// Not healthy: gets no requests.
    Down,
}

impl ReplicaState {
    /// May this replica be named for a new request?
    #[must_use]
    pub fn is_pickable(self) -> bool {
        matches!(self, Self::Ready | Self::Warming)
    }

    fn code(self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::Warming => 1,
            Self::Draining => 2,
            Self::Down => 3,
        }
    }

    /// A state this build does not know is one it must not send requests to.
    fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Ready,
            1 => Self::Warming,
            2 => Self::Draining,
            _ => Self::Down,
        }
    }
}

impl Head {
    /// The head's bytes. Fails where a string or list is longer than 65,535.
    pub fn encode(&self) -> Result<Vec<u8>, SyncError> {
        let mut w = Writer::default();
        w.preamble(MAGIC);
        w.u64(self.epoch.0);
        w.u32(self.generation);
        w.u32(self.page_count);
        w.u64(self.seq);
        w.u64(self.version);
        w.list(&self.pools, |w, p| p.encode(w))?;
        w.list(&self.replicas, |w, r| r.encode(w))?;
        for pool in &self.pools {
            w.list(&pool.loras, |w, l| l.encode(w))?;
        }
        for replica in &self.replicas {
            replica.pace.encode(&mut w);
        }
        for replica in &self.replicas {
            w.u16(replica.dp_rank.unwrap_or(NO_RANK));
        }
        Ok(w.into_bytes())
    }

    /// Reads a head. Bytes behind what this build knows belong to a later minor version and are
    /// ignored; what an earlier one lacks is empty.
    pub fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = Reader::new(bytes);
        let minor = r.preamble(MAGIC)?;
        let mut head = Self {
            epoch: Epoch(r.u64()?),
            generation: r.u32()?,
            page_count: r.u32()?,
            seq: r.u64()?,
            version: r.u64()?,
            pools: r.list(PoolHead::decode)?,
            replicas: r.list(ReplicaHead::decode)?,
        };
        if minor >= 1 {
            for pool in &mut head.pools {
                pool.loras = r.list(LoraHead::decode)?;
            }
        }
        if minor >= 2 {
            for replica in &mut head.replicas {
                replica.pace = Pace::decode(&mut r)?;
            }
        }
        if minor >= 3 {
            for replica in &mut head.replicas {
                replica.dp_rank = Some(r.u16()?).filter(|&rank| rank != NO_RANK);
            }
        }
        let pools = head.pools.len();
        if head.replicas.iter().any(|r| usize::from(r.pool) >= pools) {
            return Err(SyncError::Invalid(
                "a replica names a pool that is not there",
            ));
        }
        if head.page_count == 0 {
            return Err(SyncError::Invalid("no pages"));
        }
        Ok(head)
    }

    /// The version of an encoded head, without decoding the rest.
    pub fn version_of(bytes: &[u8]) -> Result<(Epoch, u64), SyncError> {
        let mut r = Reader::new(bytes);
        r.take(8)?;
        let epoch = Epoch(r.u64()?);
        r.take(16)?;
        Ok((epoch, r.u64()?))
    }
}

impl PoolHead {
    /// The LoRA adapter of that name, if one of the pool's engines has it.
    #[must_use]
    pub fn lora(&self, name: &str) -> Option<&LoraHead> {
        self.loras.iter().find(|lora| lora.name == name)
    }

    fn encode(&self, w: &mut Writer) -> Result<(), SyncError> {
        w.string(&self.name)?;
        w.raw(&self.key.0);
        w.u64(self.profile_hash);
        w.u32(self.block_size);
        w.u32(self.bytes_per_token_milli);
        w.u8(u8::from(self.token_ids) | u8::from(self.full_reports) << 1);
        w.list(&self.models, |w, m| w.string(m))?;
        w.list(&self.clusters, |w, c| w.string(c))
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, SyncError> {
        let name = r.string()?;
        let key = PoolKey(r.array()?);
        let profile_hash = r.u64()?;
        let (block_size, bytes_per_token_milli) = (r.u32()?, r.u32()?);
        let flags = r.u8()?;
        Ok(Self {
            name,
            key,
            profile_hash,
            block_size,
            bytes_per_token_milli,
            token_ids: flags & 1 != 0,
            full_reports: flags & 2 != 0,
            models: r.list(Reader::string)?,
            clusters: r.list(Reader::string)?,
            loras: Vec::new(),
        })
    }
}

impl ReplicaHead {
    /// What tells it from all others, see [`replica_name`].
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        replica_name(&self.endpoint, self.dp_rank)
    }

    fn encode(&self, w: &mut Writer) -> Result<(), SyncError> {
        w.u16(self.index.0);
        w.u16(self.pool);
        w.u8(self.state.code());
        w.u32(self.running);
        w.u32(self.waiting);
        w.u16(self.kv_usage_permille);
        w.string(&self.endpoint)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, SyncError> {
        Ok(Self {
            index: ReplicaIndex(r.u16()?),
            pool: r.u16()?,
            state: ReplicaState::of_code(r.u8()?),
            running: r.u32()?,
            waiting: r.u32()?,
            kv_usage_permille: r.u16()?,
            endpoint: r.string()?,
            dp_rank: None,
            pace: Pace::default(),
        })
    }
}
