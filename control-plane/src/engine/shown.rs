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

    /// A replica's live events pass by: the connection stands and does not bring them. Or they come again.
    pub fn passed_by(&self, replica: ReplicaIndex, passed_by: bool) {
        lock(&self.fleet).set_passed_by(replica, passed_by);
    }

    /// All that was known of a replica was dropped, since its events said so or were lost.
    pub fn was_reset(&self, replica: ReplicaIndex) {
        lock(&self.fleet).was_reset(replica);
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
