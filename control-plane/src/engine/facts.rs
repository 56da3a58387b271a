//! What engines say of themselves, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::prompt::Profile;
use tokio::sync::watch;

use super::{Engine, Pool, has_text, lock, records, rules};

impl Engine {
    /// The LoRA adapters that a replica's engine lists, with their paths; `None`: it did not answer.
    /// Returns how many engine blocks were dropped, their adapters having changed or gone.
    pub fn set_adapters(
        &self,
        replica: ReplicaIndex,
        listed: Option<BTreeMap<String, String>>,
    ) -> usize {
        let (changed, stale) = lock(&self.fleet).set_adapters(replica, listed);
        let mut gone = 0;
        if !stale.is_empty()
            && let Some(pool) = self.pool_of(replica)
        {
            let mut index = lock(&pool.index);
            for name in &stale {
                gone += index.drop_adapter(replica, name);
            }
            drop(index);
            self.dirty.notify_one();
        }
        if changed {
            self.announce();
        }
        gone
    }

    /// LoRA adapters that requests use at a replica, as its metrics tell: they are there, whether or not
    /// the engine lists its models to us.
    pub fn adapters_in_use(&self, replica: ReplicaIndex, names: &BTreeSet<String>) {
        self.change(|fleet| fleet.adapters_in_use(replica, names));
    }

    /// A replica's engine has begun anew: its adapters are not counted on until it lists them again.
    pub fn doubt_adapters(&self, replica: ReplicaIndex) {
        self.change(|fleet| fleet.doubt_adapters(replica));
    }

    /// Forgets what the replicas of a pool hold for an adapter: its weights have changed in a way
    /// that cannot be seen. Returns how many engine blocks that were; `None`: there is no such pool.
    pub fn forget_adapter(&self, pool: &str, name: &str) -> Option<usize> {
        let at = self.pools.iter().position(|known| known.name == pool)?;
        let replicas = lock(&self.fleet).of_pool(at);
        let pool = self.pools.get(at)?;
        let gone = {
            let mut index = lock(&pool.index);
            replicas
                .into_iter()
                .map(|replica| index.drop_adapter(replica, name))
                .sum()
        };
        self.dirty.notify_one();
        Some(gone)
    }

    /// Names of the healthy replicas that have not been asked for their models.
    #[must_use]
    pub fn unasked_replicas(&self) -> Vec<String> {
        lock(&self.fleet).unasked()
    }

    /// A replica's version. Where most engines of its pool now follow other rules than its prompts
    /// are rendered by, the pool's profile is replaced.
    pub fn set_version(&self, replica: ReplicaIndex, version: &str) {
        let change = lock(&self.profile_change);
        let (pool, versions) = {
            let mut fleet = lock(&self.fleet);
            if !fleet.set_version(replica, version) {
                return;
            }
            let Some(pool) = fleet.pool_of(replica) else {
                return;
            };
            (pool, fleet.versions(pool))
        };
        let Some(of) = self.pools.get(pool).filter(|of| !of.pinned) else {
            return;
        };
        of.complain_if_mixed(&versions);
        let Some(rules) = rules::majority(versions.iter().map(String::as_str)) else {
            return;
        };
        let profile = lock(&of.profile).clone();
        if profile.rules != rules {
            tracing::warn!(pool = %of.name, version, "the engines' new version renders prompts in another way: the pool's index begins anew");
            self.replace_profile(&change, pool, Profile { rules, ..profile });
        }
    }

    /// Replaces a pool's profile. Every block's hash is another one from then on, so that its index
    /// begins anew and its replicas are followed from the beginning; other pools notice nothing.
    /// Gateways match nothing in between: old hashes never equal new ones.
    pub fn set_profile(&self, pool: usize, profile: Profile) {
        self.replace_profile(&lock(&self.profile_change), pool, profile);
    }

    fn replace_profile(&self, _change: &MutexGuard<'_, ()>, pool: usize, profile: Profile) {
        let Some(of) = self.pools.get(pool) else {
            return;
        };
        let (hash, seed_hash, text) = (profile.hash(), profile.seed_hash(), has_text(&profile));
        *lock(&of.profile) = profile;
        // Before the head names it.
        *lock(&self.profiles) = records(&self.pools);
        lock(&of.index).begin_anew(seed_hash, text);
        lock(&self.fleet).begin_anew(pool, hash);
        of.lives.send_modify(|lives| *lives = lives.wrapping_add(1));
        self.dirty.notify_one();
        self.announce();
    }

    /// The longest prompt that a replica's engine takes, in tokens. A pool's profile has the least of
    /// its replicas'. It changes no text, so that the pool's index stays and gateways go on matching.
    pub fn set_max_model_len(&self, replica: ReplicaIndex, tokens: u32) {
        let _change = lock(&self.profile_change);
        let found = lock(&self.fleet).set_max_model_len(replica, tokens);
        let Some((pool, least)) = found else {
            return;
        };
        let Some(of) = self.pools.get(pool) else {
            return;
        };
        let hash = {
            let mut profile = lock(&of.profile);
            if profile.max_model_len == least {
                return;
            }
            profile.max_model_len = least;
            profile.hash()
        };
        // Before the head names it.
        *lock(&self.profiles) = records(&self.pools);
        lock(&self.fleet).set_profile(pool, hash);
        self.announce();
    }

    /// Changes when a replica must be followed from the beginning.
    #[must_use]
    pub fn lives(&self, replica: ReplicaIndex) -> Option<watch::Receiver<u64>> {
        Some(self.pool_of(replica)?.lives.subscribe())
    }
}

impl Pool {
    /// Times that the profile was replaced.
    #[must_use]
    pub fn profile_changes(&self) -> u64 {
        *self.lives.borrow()
    }

    fn complain_if_mixed(&self, versions: &[String]) {
        let of = |version: &String| prefix_picker_core::prompt::Rules::of_version(version);
        let mut all = versions.iter().map(of);
        let first = all.next();
        if all.any(|rules| Some(&rules) != first.as_ref()) {
            tracing::warn!(
                pool = %self.name, versions = versions.join(", "),
                "engines of one pool render prompts in different ways: predictions for the fewer may be wrong"
            );
        }
    }
}
