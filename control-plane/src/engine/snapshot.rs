//! The indices on disk.
//!
//! A hot prefix is never evicted and so never announced again: after a restart the engines' replay
//! rings may no longer tell of it. A snapshot keeps the blocks of each pool together with the last
//! batch applied of each replica; the subscriber goes on from there, or drops what it cannot prove.
//!
//! One file a pool, written beside and renamed, so that a crash leaves the last whole one.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use prefix_picker_core::ids::ReplicaIndex;

use super::{Engine, lock, memory};
use crate::config::Config;
use crate::disk;
use crate::index::SnapshotError;

fn path(dir: &Path, pool: &str) -> PathBuf {
    dir.join(format!("pool-{pool}.snapshot"))
}

/// Writes all pools' snapshots, and what engines said of themselves.
///
/// # Errors
/// The first that the system reports; earlier files stay whole.
pub fn write(engine: &Engine, config: &Config) -> std::io::Result<u64> {
    let keys: HashMap<ReplicaIndex, String> = lock(&engine.fleet).keys(None).into_iter().collect();
    memory::write(engine, config)?;
    let mut bytes = 0;
    for pool in engine.pools() {
        let target = path(&config.data_dir, &pool.name);
        // Into memory first, so that the index is not held while the disk works.
        let mut image = Vec::new();
        lock(&pool.index).write_snapshot(&mut image, |replica| keys.get(&replica).cloned())?;
        disk::replace(&target, &image)?;
        bytes += image.len() as u64;
    }
    // The renames themselves must reach the disk.
    disk::sync_folder(&config.data_dir)?;
    Ok(bytes)
}

/// Loads what snapshots there are. One that cannot be used is reported and left out.
pub fn load(engine: &Engine, config: &Config) {
    for (number, pool) in engine.pools().iter().enumerate() {
        let path = path(&config.data_dir, &pool.name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                tracing::warn!(pool = %pool.name, path = %path.display(), %error, "snapshot cannot be opened");
                continue;
            }
        };
        let keys = lock(&engine.fleet).keys(Some(number)).into_iter();
        let slots: HashMap<String, ReplicaIndex> = keys.map(|(slot, key)| (key, slot)).collect();
        let find = |key: &str| slots.get(key).copied();
        let loaded: Result<_, SnapshotError> =
            lock(&pool.index).read_snapshot(&mut BufReader::with_capacity(1 << 20, file), find);
        match loaded {
            Ok(loaded) => tracing::info!(
                pool = %pool.name, blocks = loaded.nodes, replicas = loaded.replicas, unknown_replicas = loaded.unknown_replicas,
                "snapshot loaded"
            ),
            Err(error) => {
                tracing::warn!(pool = %pool.name, path = %path.display(), %error, "snapshot not used")
            }
        }
    }
    engine.dirty.notify_one();
}
