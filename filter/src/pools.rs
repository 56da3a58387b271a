//! What requests need to know besides pages: the head in shared data, decoded once per change.
//!
//! `pp/head` holds an envelope (which of the two key sets has the table, and its shape) and the
//! control plane's head as it came. The envelope is what makes a switch to another table one write:
//! a request reads it once and never mixes two tables.

use std::rc::Rc;

use hashbrown::HashMap;
use prefix_picker_core::ids::{Epoch, ReplicaIndex};
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::cursor::{Reader, Writer};
use prefix_picker_core::sync::{Head, LoraHead, PoolHead, ReplicaHead, SyncError};
use prefix_picker_core::table::TableShape;

use crate::host::Host;

/// The head's key.
pub const KEY: &str = "pp/head";
const MAGIC: [u8; 4] = *b"PPEV";
/// Bumped when the envelope changes; another VM version's envelope is as good as none.
const VERSION: u16 = 1;

/// One of the two sets of page keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// `pp/page/a/...`
    A,
    /// `pp/page/b/...`
    B,
}

impl Slot {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Position in arrays by slot.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    /// Key of a page.
    #[must_use]
    pub fn page_key(self, index: u32) -> String {
        let slot = match self {
            Self::A => 'a',
            Self::B => 'b',
        };
        format!("pp/page/{slot}/{index}")
    }
}

/// A complete table in shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Where its pages are.
    pub slot: Slot,
    /// What its pages must say to be believed.
    pub shape: TableShape,
}

/// `pp/head`, decoded.
#[derive(Debug)]
pub struct View {
    /// Pools and replicas.
    pub head: Head,
    /// The table, once one is complete.
    pub table: Option<Table>,
    by_name: HashMap<String, ReplicaIndex>,
    by_place: HashMap<u64, ReplicaIndex>,
}

/// What a request wants of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// The base model: every replica serves it.
    Base,
    /// An adapter: only replicas that have it loaded.
    Adapter(&'a LoraHead),
    /// Its model was not read: only replicas that have every adapter of the pool.
    Unknown,
}

/// The envelope's bytes.
#[must_use]
pub fn encode(table: Option<&Table>, head: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.raw(&MAGIC);
    w.u16(VERSION);
    w.u8(match table.map(|t| t.slot) {
        None => 0,
        Some(Slot::A) => 1,
        Some(Slot::B) => 2,
    });
    w.u64(table.map_or(0, |t| t.shape.epoch.0));
    w.u32(table.map_or(0, |t| t.shape.generation));
    w.u32(table.map_or(0, |t| t.shape.page_count));
    w.raw(head);
    w.into_bytes()
}

/// Takes an envelope apart: the table and the encoded head.
pub fn decode(bytes: &[u8]) -> Result<(Option<Table>, &[u8]), SyncError> {
    let mut r = Reader::new(bytes);
    if r.array::<4>()? != MAGIC || r.u16()? != VERSION {
        return Err(SyncError::BadMagic);
    }
    let slot = match r.u8()? {
        1 => Some(Slot::A),
        2 => Some(Slot::B),
        _ => None,
    };
    let shape = TableShape {
        epoch: Epoch(r.u64()?),
        generation: r.u32()?,
        page_count: r.u32()?,
    };
    Ok((slot.map(|slot| Table { slot, shape }), r.rest()))
}

impl View {
    /// Decodes `pp/head`.
    pub fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let (table, head) = decode(bytes)?;
        let head = Head::decode(head)?;
        // Replica numbers of one epoch mean nothing in pages of another.
        let table = table.filter(|t| t.shape.epoch == head.epoch);
        let replicas = head.replicas.iter();
        let by_name = replicas.map(|r| (r.name().into_owned(), r.index));
        let by_name: HashMap<String, ReplicaIndex> = by_name.collect();
        let by_place = by_name.iter().map(|(name, &r)| (place(name), r)).collect();
        Ok(Self {
            head,
            table,
            by_name,
            by_place,
        })
    }

    /// The pools that the routed cluster can reach.
    fn on_cluster<'a>(&'a self, cluster: Option<&'a str>) -> impl Iterator<Item = usize> + 'a {
        let pools = self.head.pools.iter().enumerate();
        pools.filter_map(move |(at, p)| {
            let open = p.clusters.is_empty();
            let named = cluster.is_some_and(|c| p.clusters.iter().any(|pc| pc == c));
            (open || named).then_some(at)
        })
    }

    /// The pool of a model on the routed cluster, by position in the head, and what of it serves
    /// the model. A base model's name goes before an adapter's, as in the engines.
    #[must_use]
    pub fn pool_of(&self, cluster: Option<&str>, model: &str) -> Option<(usize, Wanted<'_>)> {
        let base = self.on_cluster(cluster).find(|&at| {
            self.pool(at)
                .is_some_and(|p| p.models.iter().any(|m| m == model))
        });
        if let Some(at) = base {
            return Some((at, Wanted::Base));
        }
        let adapter = self.on_cluster(cluster).find_map(|at| {
            let lora = self.pool(at)?.lora(model)?;
            Some((at, Wanted::Adapter(lora)))
        });
        // One that names no models serves any: standalone.
        let any = |&at: &usize| self.pool(at).is_some_and(|p| p.models.is_empty());
        adapter.or_else(|| Some((self.on_cluster(cluster).find(any)?, Wanted::Base)))
    }

    /// Does a pool that the routed cluster can reach have adapters?
    #[must_use]
    pub fn has_adapters(&self, cluster: Option<&str>) -> bool {
        self.on_cluster(cluster)
            .any(|at| self.pool(at).is_some_and(|p| !p.loras.is_empty()))
    }

    /// The only pool that the routed cluster can reach, if it is only one.
    #[must_use]
    pub fn only_pool(&self, cluster: Option<&str>) -> Option<usize> {
        let mut pools = self.on_cluster(cluster);
        pools.next().filter(|_| pools.next().is_none())
    }

    /// A pool by position.
    #[must_use]
    pub fn pool(&self, at: usize) -> Option<&PoolHead> {
        self.head.pools.get(at)
    }

    /// The replicas of a pool, by its position.
    pub fn replicas(&self, pool: usize) -> impl Iterator<Item = &ReplicaHead> {
        self.head
            .replicas
            .iter()
            .filter(move |r| usize::from(r.pool) == pool)
    }

    /// Can this replica serve what is wanted of its pool? An engine answers 404 for an adapter that
    /// it has not loaded.
    #[must_use]
    pub fn can_serve(&self, replica: &ReplicaHead, wanted: Wanted<'_>) -> bool {
        match wanted {
            Wanted::Base => true,
            Wanted::Adapter(lora) => lora.is_on(replica.index),
            Wanted::Unknown => self
                .pool(usize::from(replica.pool))
                .is_some_and(|p| p.loras.iter().all(|lora| lora.is_on(replica.index))),
        }
    }

    /// The replica of that number.
    #[must_use]
    pub fn replica(&self, index: ReplicaIndex) -> Option<&ReplicaHead> {
        self.head.replicas.iter().find(|r| r.index == index)
    }

    /// The replica at a claim's place.
    #[must_use]
    pub fn replica_of_place(&self, place: u64) -> Option<ReplicaIndex> {
        self.by_place.get(&place).copied()
    }

    /// The replica of that name: its endpoint, and its rank where it has one.
    #[must_use]
    pub fn replica_called(&self, name: &str) -> Option<ReplicaIndex> {
        self.by_name.get(name).copied()
    }
}

/// This VM's decoded copy of `pp/head`.
#[derive(Debug, Default)]
pub struct HeadCache {
    cas: u32,
    view: Option<Rc<View>>,
}

impl HeadCache {
    /// The head as it is now. One read of shared data; decoded only if it changed.
    pub fn read(&mut self, host: &impl Host) -> Option<Rc<View>> {
        let now = host.shared(KEY);
        if now.cas != self.cas {
            self.cas = now.cas;
            match View::decode(&now.bytes) {
                Ok(view) => self.view = Some(Rc::new(view)),
                Err(_) if now.bytes.is_empty() => self.view = None,
                Err(error) => {
                    self.view = None;
                    log::warn!("the head in shared data cannot be read: {error}");
                }
            }
        }
        self.view.clone()
    }

    /// The head as of the last read.
    #[must_use]
    pub fn last(&self) -> Option<&Rc<View>> {
        self.view.as_ref()
    }
}
