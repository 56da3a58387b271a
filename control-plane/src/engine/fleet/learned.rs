//! What engines say of themselves: version, longest prompt, adapters; and what a restart remembers of that.

use std::collections::{BTreeMap, BTreeSet};

use prefix_picker_core::ids::ReplicaIndex;

use super::{Fleet, Replica};
use crate::engine::adapters;
use crate::engine::memory::Remembered;

impl Fleet {
    /// What a replica's engine lists, or `None`: it did not answer. True: gateways should hear of it;
    /// and the adapters whose blocks are no longer true.
    pub(in crate::engine) fn set_adapters(
        &mut self,
        replica: ReplicaIndex,
        listed: Option<BTreeMap<String, String>>,
    ) -> (bool, Vec<String>) {
        let Some(found) = self.get(replica) else {
            return (false, Vec::new());
        };
        found.asked = true;
        let Some(listed) = listed else {
            return (false, Vec::new());
        };
        let pool = usize::from(found.pool);
        let seen = found.adapters.see(listed);
        if !seen.stale.is_empty() {
            tracing::info!(replica = %found.name, adapters = seen.stale.join(", "), "adapters changed or gone: their blocks are dropped");
        }
        if seen.changed {
            self.tell_adapters(pool);
        }
        (seen.changed, seen.stale)
    }

    /// Adapters that requests use at a replica. True: gateways should hear of it.
    pub(in crate::engine) fn adapters_in_use(
        &mut self,
        replica: ReplicaIndex,
        names: &BTreeSet<String>,
    ) -> bool {
        let seen = self.get(replica).and_then(|found| {
            let seen = found.adapters.see_in_use(names);
            seen.then_some(usize::from(found.pool))
        });
        if let Some(pool) = seen {
            self.tell_adapters(pool);
        }
        seen.is_some()
    }

    /// A replica's engine may have other adapters now. True: gateways should hear of it.
    pub(in crate::engine) fn doubt_adapters(&mut self, replica: ReplicaIndex) -> bool {
        let doubted = self.get(replica).and_then(|found| {
            let doubted = found.adapters.doubt();
            doubted.then_some(usize::from(found.pool))
        });
        if let Some(pool) = doubted {
            self.tell_adapters(pool);
        }
        doubted.is_some()
    }

    /// Puts a pool's adapters into the head.
    pub(super) fn tell_adapters(&mut self, pool: usize) {
        let everywhere = self.adapters_on_demand.get(pool).copied().unwrap_or(false);
        let of_pool = self.all().filter(|(_, r)| usize::from(r.pool) == pool);
        let replicas = of_pool.map(|(_, replica)| (replica.number, &replica.adapters));
        let (loras, left_out) = adapters::of_pool(replicas, everywhere);
        if let Some(head) = self.head.pools.get_mut(pool) {
            if left_out > 0 {
                tracing::warn!(pool = %head.name, left_out, "too many adapters: requests for some are not matched");
            }
            head.loras = loras;
        }
    }

    /// Names of the healthy replicas whose models have not been asked for.
    pub(in crate::engine) fn unasked(&self) -> Vec<String> {
        let unasked = |replica: &&Replica| replica.healthy == Some(true) && !replica.asked;
        let names = self.replicas.iter().flatten().filter(unasked);
        names.map(|replica| replica.name.clone()).collect()
    }

    /// Notes a replica's version. True: it is another one.
    pub(in crate::engine) fn set_version(&mut self, replica: ReplicaIndex, version: &str) -> bool {
        let Some(found) = self.get(replica) else {
            return false;
        };
        if found.version.as_deref() == Some(version) {
            return false;
        }
        tracing::info!(replica = %found.name, version, before = found.version.as_deref().unwrap_or("unknown"), "an engine's version");
        found.version = Some(version.to_owned());
        true
    }

    /// The versions that a pool's replicas last told.
    pub(in crate::engine) fn versions(&self, pool: usize) -> Vec<String> {
        let replicas = self.replicas.iter().flatten();
        replicas
            .filter(|replica| usize::from(replica.pool) == pool)
            .filter_map(|replica| replica.version.clone())
            .collect()
    }

    /// Notes the longest prompt that a replica takes. Returns its pool and the least of the pool's.
    pub(in crate::engine) fn set_max_model_len(
        &mut self,
        replica: ReplicaIndex,
        tokens: u32,
    ) -> Option<(usize, u32)> {
        let found = self.get(replica)?;
        found.max_model_len = Some(tokens);
        let pool = found.pool;
        let all = self.replicas.iter().flatten();
        let of_pool = all.filter(|replica| replica.pool == pool);
        let least = of_pool.filter_map(|replica| replica.max_model_len).min()?;
        Some((usize::from(pool), least))
    }

    pub(in crate::engine) fn remember(
        &mut self,
        replica: ReplicaIndex,
        remembered: Option<&Remembered>,
        has_blocks: bool,
    ) {
        let Some(found) = self.get(replica) else {
            return;
        };
        match remembered {
            Some(remembered) => {
                found.version.clone_from(&remembered.version);
                found.adapters.remember(Some(remembered.adapters.clone()));
            }
            None if has_blocks => found.adapters.remember(None),
            None => {}
        }
    }

    pub(in crate::engine) fn remembered(&self, replica: ReplicaIndex) -> Remembered {
        let found = self.replicas.get(usize::from(replica.0));
        let found = found.and_then(Option::as_ref);
        found.map_or_else(Remembered::default, |found| Remembered {
            version: found.version.clone(),
            adapters: found.adapters.paths().clone(),
        })
    }
}
