//! What engines said of themselves, on disk: `facts.json`.
//!
//! A control plane that starts before its engines then knows by which version's rules the snapshot
//! was made, and which of its adapters have changed since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Engine, lock};
use crate::config::Config;
use crate::disk;

/// Most bytes that are read.
const BYTES_MAX: u64 = 64 << 20;

/// By the replicas' keys, which are the names of those that are configured.
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
        let bytes = disk::read_up_to(&path(dir), BYTES_MAX);
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// The version that a replica told last, by its key.
    #[must_use]
    pub fn version(&self, key: &str) -> Option<&str> {
        self.replicas.get(key)?.version.as_deref()
    }

    fn write(&self, dir: &Path) -> std::io::Result<()> {
        disk::replace(&path(dir), &serde_json::to_vec(self)?)
    }
}

impl Engine {
    /// Takes what an earlier life knew of the engines. Before any snapshot's events go on.
    pub fn remember(&self, memory: &Memory) {
        for pool in 0..self.pools.len() {
            let keys = lock(&self.fleet).keys(Some(pool));
            let mut added = Vec::new();
            for (slot, key) in &keys {
                let has_blocks = self.replica_blocks(*slot) > 0;
                let remembered = memory.replicas.get(key);
                lock(&self.fleet).remember(*slot, remembered, has_blocks);
                if remembered.is_none() {
                    added.push(*slot);
                }
            }
            if added.len() < keys.len() {
                lock(&self.fleet).added(&added);
            }
        }
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
        let keys = fleet.keys(None).into_iter();
        keys.map(|(slot, key)| (key, fleet.remembered(slot)))
            .collect()
    };
    Memory { replicas }.write(&config.data_dir)
}
