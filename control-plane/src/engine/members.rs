//! Replicas that come and go while the control plane runs.
//!
//! A replica is gone from the index, the head and all figures when [`Engine::remove`] returns; its tasks
//! must have ended before, since the next one may get its slot.

use prefix_picker_core::ids::{BlockHash, Epoch, ReplicaIndex};
use prefix_picker_core::sync::replica_name;
use prefix_picker_core::table::{GroupSpec, TableStore, encode_group};

use super::fleet::Join;
use super::{Engine, JoinError, Member, Pool, Standing, lock};
use crate::config::ReplicaConfig;
use crate::index::PoolIndex;
use crate::report::ReplicaSays;

impl Engine {
    /// A replica comes: its slot. `key` names it in snapshots, see [`Member::key`]. `beside_others`: its
    /// pool has been there for a while, so that it gets a ramped share at first.
    ///
    /// Begins a new epoch where all numbers of this one were given, which takes as long as it takes to
    /// write the whole table.
    ///
    /// # Errors
    /// If another replica has its name or endpoint, or there are too many.
    pub fn add(
        &self,
        pool: usize,
        replica: &ReplicaConfig,
        key: &str,
        beside_others: bool,
    ) -> Result<ReplicaIndex, JoinError> {
        let _one_at_a_time = lock(&self.membership);
        let join = Join { pool, replica, key };
        let slot = match lock(&self.fleet).join(&join, beside_others) {
            Err(JoinError::Numbers) => None,
            slot => Some(slot?),
        };
        let slot = match slot {
            Some(slot) => slot,
            None => {
                self.begin_epoch();
                lock(&self.fleet).join(&join, beside_others)?
            }
        };
        self.feedback.add(slot, pool);
        let endpoint = replica.endpoint.to_string();
        self.report.add(
            slot,
            ReplicaSays {
                pool,
                label: replica.name.clone(),
                name: replica_name(&endpoint, replica.data_parallel_rank).into_owned(),
            },
        );
        self.announce();
        Ok(slot)
    }

    /// A replica goes, with all that is known of it. Its tasks must have ended.
    pub fn remove(&self, slot: ReplicaIndex) {
        let _one_at_a_time = lock(&self.membership);
        // While it still has its place: a table without it needs its number no more.
        self.drop_replica(slot);
        if !lock(&self.fleet).leave(slot) {
            return;
        }
        self.feedback.remove(slot);
        self.report.remove(slot);
        self.announce();
    }

    /// What is said of a replica by whoever lists it. True: it was otherwise.
    pub fn stand(&self, slot: ReplicaIndex, standing: Standing) -> bool {
        let changed = lock(&self.fleet).set_standing(slot, standing);
        if changed {
            self.announce();
        }
        changed
    }

    /// A pool's list of replicas is still to come, or has come.
    pub fn expect_list(&self, pool: usize, expected: bool) {
        lock(&self.fleet).expect_list(pool, expected);
    }

    /// All replicas as they are now, in the order of their slots.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        lock(&self.fleet).members()
    }

    /// The slot of a replica, by its name.
    #[must_use]
    pub fn slot_of(&self, name: &str) -> Option<ReplicaIndex> {
        lock(&self.fleet).slot_of(name)
    }

    /// Begins a new epoch: live replicas get the numbers from 0 on, and gateways a whole table anew,
    /// which they load beside the one they have. What is known of replicas stays.
    fn begin_epoch(&self) {
        let _nobody_publishes = lock(&self.publishing);
        let numbers = lock(&self.fleet).compacted();
        let mut next = {
            let table = lock(&self.table);
            let epoch = Epoch(table.epoch().0.wrapping_add(1).max(1));
            // As large as the last one, so that gateways load it once.
            TableStore::with_pages(epoch, self.page_bytes, table.page_count())
        };
        for pool in &self.pools {
            let mut index = lock(&pool.index);
            index.mark_all();
            for (anchor, body) in changed_groups(pool, &mut index, &numbers) {
                if let Some(body) = body {
                    next.upsert(anchor, body);
                }
            }
        }
        let epoch = next.epoch();
        {
            // Together, so that no answer has the head of one and the table of the other.
            let mut fleet = lock(&self.fleet);
            fleet.begin_epoch(epoch, &numbers);
            let layout = (next.generation(), next.page_count(), next.seq());
            *lock(&self.table) = next;
            fleet.rebuild(layout.0, layout.1, layout.2);
        }
        tracing::info!(
            epoch = epoch.0,
            replicas = numbers.iter().flatten().count(),
            "every replica number was given: a new epoch begins, and gateways load the table anew"
        );
        self.wake();
    }
}

/// What is to be written to the table of a pool's changes; `None`: the group goes. `numbers` are the
/// slots'.
pub(super) fn changed_groups(
    pool: &Pool,
    index: &mut PoolIndex,
    numbers: &[Option<ReplicaIndex>],
) -> Vec<(BlockHash, Option<Vec<u8>>)> {
    let mut groups = Vec::new();
    index.drain_dirty(|anchor, spec| {
        let body = spec.and_then(|mut spec| {
            renumber(&mut spec, numbers);
            match encode_group(&spec) {
                Ok(body) => Some(body),
                Err(error) => {
                    tracing::error!(pool = %pool.name, ?anchor, %error, "group left out of the table");
                    None
                }
            }
        });
        groups.push((anchor, body));
    });
    groups
}

/// Slots -> numbers.
fn renumber(spec: &mut GroupSpec, numbers: &[Option<ReplicaIndex>]) {
    for run in &mut spec.runs {
        run.holders.retain_mut(|holder| {
            let number = numbers
                .get(usize::from(holder.replica.0))
                .copied()
                .flatten();
            number.is_some_and(|number| {
                holder.replica = number;
                true
            })
        });
    }
}
