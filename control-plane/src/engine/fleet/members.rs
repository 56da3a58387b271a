//! Replicas that come and go, and their numbers.

use std::collections::BTreeMap;

use prefix_picker_core::ids::{Epoch, ReplicaIndex};
use prefix_picker_core::sync::{ReplicaHead, replica_name};

use super::{Fleet, Ramp, Replica};
use crate::block_hash::Algorithm;
use crate::config::{REPLICAS_MAX, ReplicaConfig};

/// Numbers of one epoch: as many as the wire has.
pub(in crate::engine) const NUMBERS: u32 = 1 << 16;

/// What whoever lists a replica says of it, besides what it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It may get requests.
    #[default]
    Serving,
    /// It is said to be unable to serve, and may come back: its events are followed all the same.
    NotReady,
    /// It is on its way out: no new requests.
    Leaving,
}

impl Standing {
    /// For logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::NotReady => "not_ready",
            Self::Leaving => "leaving",
        }
    }
}

/// A replica that is to come.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Join<'a> {
    /// Its pool's position.
    pub(in crate::engine) pool: usize,
    /// Where it is.
    pub(in crate::engine) replica: &'a ReplicaConfig,
    /// What it is called in snapshots: for one that is configured its name; for one that was discovered
    /// something that no other one of that name ever has.
    pub(in crate::engine) key: &'a str,
}

/// Why a replica cannot come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// There is one of this name.
    #[error("there is a replica {0:?} already; names are unique in all pools")]
    Name(String),
    /// Its endpoint is another one's.
    #[error("{endpoint} is the endpoint of replica {of:?} already")]
    Endpoint {
        /// The endpoint, with its rank.
        endpoint: String,
        /// Whose it is.
        of: String,
    },
    /// There are too many.
    #[error("there are {REPLICAS_MAX} replicas, the most that gateways are told of")]
    TooMany,
    /// Every number of this epoch was given.
    #[error("no number is left in this epoch")]
    Numbers,
    /// There is no such pool.
    #[error("there is no such pool")]
    Pool,
}

/// One replica, as it is listed.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its slot: what everything inside the control plane knows it by.
    pub slot: ReplicaIndex,
    /// Its name.
    pub name: String,
    /// What it is called in files.
    pub key: String,
    /// Its pool's position.
    pub pool: usize,
    /// As gateways are told.
    pub head: ReplicaHead,
    /// The version it last told.
    pub version: Option<String>,
    /// How it hashes blocks, as it told.
    pub hash_algorithm: Option<Algorithm>,
}

/// The numbers of one epoch, each given once.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u32,
    limit: u32,
}

impl Numbers {
    pub(super) fn new(limit: u32) -> Self {
        Self { next: 0, limit }
    }

    fn take(&mut self) -> Option<ReplicaIndex> {
        if self.next >= self.limit {
            return None;
        }
        let number = u16::try_from(self.next).ok()?;
        self.next += 1;
        Some(ReplicaIndex(number))
    }
}

impl Fleet {
    /// A replica more. `new`: others of its pool have been there, so that it gets a ramped share.
    pub(in crate::engine) fn join(
        &mut self,
        join: &Join<'_>,
        new: bool,
    ) -> Result<ReplicaIndex, JoinError> {
        self.check(join)?;
        let free = self.replicas.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.replicas.len());
        let slot = u16::try_from(slot).map_err(|_| JoinError::TooMany)?;
        let number = self.numbers.take().ok_or(JoinError::Numbers)?;
        let mut replica = Replica::new(join, number);
        if new {
            replica.ramp = Ramp::Away(None);
        }
        match self.replicas.get_mut(usize::from(slot)) {
            Some(free) => *free = Some(replica),
            None => self.replicas.push(Some(replica)),
        }
        Ok(ReplicaIndex(slot))
    }

    fn check(&self, join: &Join<'_>) -> Result<(), JoinError> {
        let endpoint = join.replica.endpoint.to_string();
        let rank = join.replica.data_parallel_rank;
        if join.pool >= self.head.pools.len() {
            return Err(JoinError::Pool);
        }
        for (_, other) in self.all() {
            if other.name == join.replica.name {
                return Err(JoinError::Name(other.name.clone()));
            }
            // Only ranks of one engine share an endpoint.
            let one_engine = usize::from(other.pool) == join.pool
                && rank.is_some()
                && other.dp_rank.is_some()
                && rank != other.dp_rank;
            if other.endpoint == endpoint && !one_engine {
                return Err(JoinError::Endpoint {
                    endpoint: replica_name(&endpoint, rank).into_owned(),
                    of: other.name.clone(),
                });
            }
        }
        if self.all().count() >= REPLICAS_MAX {
            return Err(JoinError::TooMany);
        }
        Ok(())
    }

    /// A replica is gone. False: it was not there.
    pub(in crate::engine) fn leave(&mut self, slot: ReplicaIndex) -> bool {
        let found = self.replicas.get_mut(usize::from(slot.0));
        let Some(gone) = found.and_then(Option::take) else {
            return false;
        };
        while self.replicas.pop_if(|replica| replica.is_none()).is_some() {}
        self.tell_adapters(usize::from(gone.pool));
        true
    }

    /// Sets what is said of a replica. True: it was otherwise.
    pub(in crate::engine) fn set_standing(
        &mut self,
        slot: ReplicaIndex,
        standing: Standing,
    ) -> bool {
        self.get(slot)
            .is_some_and(|found| std::mem::replace(&mut found.standing, standing) != standing)
    }

    /// A pool's list of replicas is still to come, or has come.
    pub(in crate::engine) fn expect_list(&mut self, pool: usize, expected: bool) {
        if expected {
            self.undiscovered.insert(pool);
        } else {
            self.undiscovered.remove(&pool);
        }
    }

    /// Pools whose list is still to come, for people.
    pub(super) fn undiscovered(&self) -> impl Iterator<Item = String> {
        let pools = self.undiscovered.iter();
        pools.filter_map(|pool| {
            Some(format!(
                "pool {} (discovery)",
                self.head.pools.get(*pool)?.name
            ))
        })
    }

    /// The number of each slot.
    pub(in crate::engine) fn numbers(&self) -> Vec<Option<ReplicaIndex>> {
        let number = |replica: &Option<Replica>| replica.as_ref().map(|r| r.number);
        self.replicas.iter().map(number).collect()
    }

    /// The numbers that slots get in a new epoch: without those of replicas that are gone.
    pub(in crate::engine) fn compacted(&self) -> Vec<Option<ReplicaIndex>> {
        let mut numbers = Numbers::new(self.numbers.limit);
        let number = |replica: &Option<Replica>| replica.as_ref().and_then(|_| numbers.take());
        self.replicas.iter().map(number).collect()
    }

    /// Begins a new epoch, with these numbers of its slots.
    pub(in crate::engine) fn begin_epoch(
        &mut self,
        epoch: Epoch,
        numbers: &[Option<ReplicaIndex>],
    ) {
        self.head.epoch = epoch;
        self.numbers.next = 0;
        for (replica, number) in self.replicas.iter_mut().zip(numbers) {
            if let (Some(replica), Some(number)) = (replica, number) {
                replica.number = *number;
                self.numbers.next = self.numbers.next.max(u32::from(number.0) + 1);
            }
        }
        for pool in 0..self.head.pools.len() {
            self.tell_adapters(pool);
        }
    }

    /// For tests: an epoch has so many numbers only.
    #[cfg(test)]
    pub(in crate::engine) fn limit_numbers(&mut self, limit: u32) {
        self.numbers.limit = limit;
    }

    /// All replicas, by slot.
    pub(in crate::engine) fn members(&self) -> Vec<Member> {
        let heads: BTreeMap<ReplicaIndex, &ReplicaHead> =
            self.head.replicas.iter().map(|r| (r.index, r)).collect();
        let member = |(slot, replica): (ReplicaIndex, &Replica)| {
            Some(Member {
                slot,
                name: replica.name.clone(),
                key: replica.key.clone(),
                pool: usize::from(replica.pool),
                version: replica.version.clone(),
                hash_algorithm: replica.hash_algorithm,
                head: (*heads.get(&replica.number)?).clone(),
            })
        };
        self.all().filter_map(member).collect()
    }

    /// The slot of a replica, by its name.
    pub(in crate::engine) fn slot_of(&self, name: &str) -> Option<ReplicaIndex> {
        self.all()
            .find(|(_, replica)| replica.name == name)
            .map(|(slot, _)| slot)
    }

    /// Keys of all replicas with their slots, of one pool if that is asked for.
    pub(in crate::engine) fn keys(&self, pool: Option<usize>) -> Vec<(ReplicaIndex, String)> {
        self.all()
            .filter(|(_, replica)| pool.is_none_or(|pool| usize::from(replica.pool) == pool))
            .map(|(slot, replica)| (slot, replica.key.clone()))
            .collect()
    }
}
