//! What is shown of the engine and no decision is made of: for [`crate::status`].

use prefix_picker_core::ids::{BlockHash, ReplicaIndex};

use super::fleet::{Details, Trouble};
use super::{Engine, lock};
use crate::live::{Counted, Live};

impl Engine {
    /// What happens now.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// An engine's cache counters have moved by so much.
    pub fn cache_counted(&self, replica: ReplicaIndex, queries: u64, hits: u64) {
        lock(&self.fleet).counted(replica, Counted { queries, hits });
    }

    /// What a replica's last health check met with; `None`: it was fine.
    pub fn health_met(&self, replica: ReplicaIndex, trouble: Option<Trouble>) {
        lock(&self.fleet).set_trouble(replica, trouble);
    }

    /// What a replica's engine serves, if that lacks one of its pool's models.
    pub fn lacks_models(&self, replica: ReplicaIndex, serves: Option<String>) {
        lock(&self.fleet).set_lacks(replica, serves);
    }

    /// More of a replica; `None`: it is not there (any more).
    #[must_use]
    pub fn details(&self, replica: ReplicaIndex) -> Option<Details> {
        lock(&self.fleet).details(replica)
    }

    /// How many replicas hold the block that prompts begin with.
    #[must_use]
    pub fn holders_of_first(&self, hash: u64) -> usize {
        self.lookup(&[BlockHash(hash)]).replicas.len()
    }
}
