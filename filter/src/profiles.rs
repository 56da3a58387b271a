//! Prompt profiles, compiled once per VM and profile hash.

use std::rc::Rc;

use prefix_picker_core::prompt::{CompiledProfile, Profile};
use prefix_picker_core::sync::PoolHead;
use prefix_picker_core::sync::cursor::{Reader, Writer};

use crate::host::Host;
use crate::reason::Reason;

/// Compiled profiles kept; over it, the one unused for longest goes.
const COMPILED_MAX: usize = 16;

/// Key of a pool's profile: its hash (8 bytes, little-endian), then its JSON.
#[must_use]
pub fn key(pool: &str) -> String {
    format!("pp/profile/{pool}")
}

/// A profile as it is kept in shared data.
#[must_use]
pub fn encode(hash: u64, json: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u64(hash);
    w.raw(json);
    w.into_bytes()
}

/// The hash of the profile in shared data, if there is one.
#[must_use]
pub fn hash_of(bytes: &[u8]) -> Option<u64> {
    Reader::new(bytes).u64().ok()
}

/// A profile, ready for use.
#[derive(Debug)]
pub struct Known {
    /// Renders requests.
    pub compiled: CompiledProfile,
    /// What of it goes into block hashes: [`Profile::seed_hash`].
    pub seed_hash: u64,
}

/// Compiled profiles, newest used last. What cannot be compiled is remembered too.
#[derive(Debug, Default)]
pub struct Profiles {
    compiled: Vec<(u64, Option<Rc<Known>>)>,
}

impl Profiles {
    /// The pool's compiled profile, or why there is none.
    pub fn get(&mut self, host: &impl Host, pool: &PoolHead) -> Result<Rc<Known>, Reason> {
        let hash = pool.profile_hash;
        let entry = match self.compiled.iter().position(|&(h, _)| h == hash) {
            Some(at) => self.compiled.remove(at),
            None => (hash, compile(host, pool)?),
        };
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.remove(0);
        }
        let found = entry.1.clone();
        self.compiled.push(entry);
        found.ok_or(Reason::ProfileBroken)
    }
}

/// `Ok(None)`: there, but of no use, now and ever.
fn compile(host: &impl Host, pool: &PoolHead) -> Result<Option<Rc<Known>>, Reason> {
    let bytes = host.shared(&key(&pool.name)).bytes;
    let mut r = Reader::new(&bytes);
    if r.u64().ok() != Some(pool.profile_hash) {
        return Err(Reason::ProfileMissing);
    }
    let profile: Profile = match serde_json::from_slice(r.rest()) {
        Ok(profile) => profile,
        Err(error) => {
            log::warn!(
                "pool {}: the prompt profile cannot be read: {error}",
                pool.name
            );
            return Ok(None);
        }
    };
    match CompiledProfile::compile(&profile) {
        Ok(compiled) => Ok(Some(Rc::new(Known {
            compiled,
            seed_hash: profile.seed_hash(),
        }))),
        Err(error) => {
            log::warn!("pool {}: {error}", pool.name);
            Ok(None)
        }
    }
}
