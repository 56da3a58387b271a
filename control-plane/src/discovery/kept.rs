//! The last lists on disk: `discovered.json` in `data_dir`.
//!
//! A restart begins with them, so that snapshots find their replicas again, and so that a control plane
//! that cannot ask anybody at its start still knows whom it served.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::found::Found;
use crate::config::Config;
use crate::disk;

/// Most bytes that are read.
const BYTES_MAX: u64 = 64 << 20;

/// By pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pools: BTreeMap<String, List>,
}

/// One pool's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct List {
    /// Whose list it is: see [`crate::config::DiscoveryConfig::origin`].
    origin: String,
    replicas: Vec<Found>,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("discovered.json")
}

impl Kept {
    /// Reads them. What is not there or cannot be read is empty.
    #[must_use]
    pub fn read(dir: &Path) -> Self {
        let path = path(dir);
        let bytes = disk::read_up_to(&path, BYTES_MAX);
        if bytes.is_empty() {
            return Self::default();
        }
        serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "not used");
            Self::default()
        })
    }

    /// A pool's last list, if its discovery is the same still.
    #[must_use]
    pub fn of(&self, config: &Config, pool: usize) -> &[Found] {
        let found = config.pools.get(pool).and_then(|pool| {
            let origin = pool.discovery.as_ref()?.origin();
            self.pools
                .get(&pool.name)
                .filter(|list| list.origin == origin)
        });
        found.map_or(&[], |list| &list.replicas)
    }

    /// Notes a pool's list. True: it was another one.
    pub fn set(&mut self, config: &Config, pool: usize, replicas: Vec<Found>) -> bool {
        let Some(pool) = config.pools.get(pool) else {
            return false;
        };
        let origin = pool
            .discovery
            .as_ref()
            .map(|d| d.origin())
            .unwrap_or_default();
        let list = List { origin, replicas };
        let before = self.pools.insert(pool.name.clone(), list.clone());
        before != Some(list)
    }

    /// Writes them.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(&self, dir: &Path) -> std::io::Result<()> {
        disk::replace(&path(dir), &serde_json::to_vec(self)?)
    }
}
