//! What engines said of themselves, on disk: `facts.json`.
//!
//! A control plane that starts before its engines then knows by which version's rules the snapshot
//! was made, and which of its adapters have changed since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prefix_picker_core::ids::ReplicaIndex;
use serde::{Deserialize, Serialize};

use super::{Engine, lock};
use crate::config::Config;
use crate::disk;

/// Most bytes that are read.
const BYTES_MAX: u64 = 64 << 20;

/// By replica name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    replicas: BTreeMap<String, Remembered>,
}

/// Of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// The last version it told.
    #[serde(default)]
    pub(super) version: Option<String>,
    /// Name and path of each adapter of which blocks may be known.
    #[serde(default)]
    pub(super) adapters: BTreeMap<String, String>,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("facts.json")
}

impl Memory {
    /// Reads it. One that is not there or cannot be read is empty: less is believed then.
    #[must_use]
    pub fn read(dir: &Path) -> Self {
        let path = path(dir);
        let fits = std::fs::metadata(&path).is_ok_and(|file| file.len() <= BYTES_MAX);
        let bytes = if fits {
            std::fs::read(&path).unwrap_or_default()
        } else {
            Vec::new()
        };
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// The version that a replica told last.
    #[must_use]
    pub fn version(&self, replica: &str) -> Option<&str> {
        self.replicas.get(replica)?.version.as_deref()
    }

    fn write(&self, dir: &Path) -> std::io::Result<()> {
        disk::replace(&path(dir), &serde_json::to_vec(self)?)
    }
}

impl Engine {
    /// Takes what an earlier life knew of the engines. Before any snapshot's events go on.
    pub fn remember(&self, memory: &Memory, config: &Config) {
        for (number, (_, replica)) in (0u16..).zip(config.replicas()) {
            let number = ReplicaIndex(number);
            let has_blocks = self.replica_blocks(number) > 0;
            let remembered = memory.replicas.get(&replica.name);
            lock(&self.fleet).remember(number, remembered, has_blocks);
        }
        let known = |name: &str| memory.replicas.contains_key(name);
        let old_pool = |pool: usize| {
            let replicas = config.pools.get(pool).map(|pool| &pool.replicas);
            replicas.is_some_and(|replicas| replicas.iter().any(|r| known(&r.name)))
        };
        let added: Vec<ReplicaIndex> = (0u16..)
            .map(ReplicaIndex)
            .zip(config.replicas())
            .filter(|(_, (pool, replica))| !known(&replica.name) && old_pool(*pool))
            .map(|(number, _)| number)
            .collect();
        lock(&self.fleet).added(&added);
    }
}

/// Writes what is known now. To be called before the snapshots: the path that is remembered of an
/// adapter is then never newer than the blocks of it in them.
///
/// # Errors
/// Those of the system.
pub(super) fn write(engine: &Engine, config: &Config) -> std::io::Result<()> {
    let replicas = {
        let fleet = lock(&engine.fleet);
        (0u16..)
            .zip(config.replicas())
            .map(|(number, (_, replica))| {
                (replica.name.clone(), fleet.remembered(ReplicaIndex(number)))
            })
            .collect()
    };
    Memory { replicas }.write(&config.data_dir)
}
