//! Which replicas an operator has taken out of service: on disk, so that a restart changes nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use prefix_picker_core::ids::ReplicaIndex;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::disk;
use crate::engine::Engine;

/// Names of replicas that an error tells.
const NAMES_TOLD_MAX: usize = 100;

/// `drained.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    replicas: BTreeSet<String>,
}

/// See the module.
#[derive(Debug)]
pub struct Drains {
    path: PathBuf,
    drained: Mutex<BTreeSet<String>>,
}

/// Why a replica was not taken out of service, or back in.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// No replica of that name.
    #[error("no replica {name:?}; known are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A restart would forget it, so it was not done.
    #[error("{} cannot be written: {source}", path.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Drains {
    /// Takes those replicas out of service that were when the process last ended. A file that cannot be
    /// read is reported and drains nobody.
    #[must_use]
    pub fn open(engine: &Engine, config: &Config) -> Self {
        let path = config.data_dir.join("drained.json");
        let drains = Self {
            drained: Mutex::new(read(&path)),
            path,
        };
        let drained = drains
            .drained
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for name in drained.iter() {
            match engine.slot_of(name) {
                Some(slot) => {
                    engine.drain(slot, true);
                    tracing::info!(replica = %name, "drained, as before the restart");
                }
                None => tracing::warn!(replica = %name, "drained, but not there (yet)"),
            }
        }
        drop(drained);
        drains
    }

    /// A replica has come: it is out of service if one of its name was when it was last there.
    pub fn joined(&self, engine: &Engine, slot: ReplicaIndex, name: &str) {
        let drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        if drained.contains(name) {
            engine.drain(slot, true);
            tracing::info!(replica = %name, "drained, as before the restart");
        }
    }

    /// A replica is gone for good: the next one of its name serves. A file that cannot be written is
    /// reported, and written with the next change.
    pub fn forget(&self, name: &str) {
        let mut drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        if drained.remove(name)
            && let Err(error) = write(&self.path, &drained)
        {
            tracing::error!(path = %self.path.display(), %error, "cannot be written");
        }
    }

    /// Takes a replica out of service, or back in, and keeps that on disk first. Returns its slot, and
    /// whether it was otherwise before.
    ///
    /// # Errors
    /// See [`DrainError`]; then nothing has changed.
    pub fn set(
        &self,
        engine: &Engine,
        name: &str,
        draining: bool,
    ) -> Result<(ReplicaIndex, bool), DrainError> {
        let replica = engine.slot_of(name).ok_or_else(|| DrainError::Unknown {
            name: name.to_owned(),
            known: known(engine),
        })?;
        // Held over the write: the file's order is that of the changes.
        let mut drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = drained.clone();
        let changed = if draining {
            wanted.insert(name.to_owned())
        } else {
            wanted.remove(name)
        };
        if changed {
            write(&self.path, &wanted).map_err(|source| DrainError::NotKept {
                path: self.path.clone(),
                source,
            })?;
            *drained = wanted;
        }
        engine.drain(replica, draining);
        Ok((replica, changed))
    }
}

fn known(engine: &Engine) -> String {
    let members = engine.members().into_iter();
    let names: Vec<String> = members.take(NAMES_TOLD_MAX).map(|m| m.name).collect();
    names.join(", ")
}

fn read(path: &Path) -> BTreeSet<String> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return BTreeSet::new(),
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "cannot be read: no replica is drained");
            return BTreeSet::new();
        }
    };
    match serde_json::from_slice::<File>(&bytes) {
        Ok(file) => file.replicas,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "cannot be read: no replica is drained");
            BTreeSet::new()
        }
    }
}

fn write(path: &Path, replicas: &BTreeSet<String>) -> std::io::Result<()> {
    let replicas = replicas.clone();
    disk::replace(path, &serde_json::to_vec(&File { replicas })?)?;
    disk::sync_folder(path.parent().unwrap_or(Path::new(".")))
}
