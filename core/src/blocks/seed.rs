//! Where a chain starts: SHA-256 over everything that must keep two chains apart.

use sha2::{Digest, Sha256};

use super::HASH_DOMAIN_VERSION;

/// A pool's secret for hashing, derived from the fleet's secret.
///
/// Gateways get this and never the fleet's secret; the keys of other pools do not follow from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PoolKey(pub [u8; 32]);

impl PoolKey {
    /// The key of pool `pool` under `fleet_secret` (any length).
    pub fn derive(fleet_secret: &[u8], pool: &str) -> Self {
        let mut hasher = Sha256::new();
        put_bytes(&mut hasher, b"prefix-picker pool key");
        put_bytes(&mut hasher, fleet_secret);
        put_bytes(&mut hasher, pool.as_bytes());
        Self(hasher.finalize().into())
    }
}

impl core::fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("PoolKey(..)")
    }
}

/// What a chain's items are. Families never match each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Family {
    /// Bytes of the prompt exactly as the engine sees it.
    Text,
    /// Token ids as the client sent them.
    TokenIds,
    /// Bytes that stand for a prompt whose exact text we cannot render; matched only against what
    /// we predicted ourselves.
    Predicted,
}

impl Family {
    fn tag(self) -> u8 {
        match self {
            Self::Text => 1,
            Self::TokenIds => 2,
            Self::Predicted => 3,
        }
    }
}

/// What two prompts must share for their equal text to mean equal KV blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Namespace<'a> {
    /// What is hashed.
    pub family: Family,
    /// The prompt profile's `seed_hash`: an old and a new template live side by side during a roll-out.
    pub profile_hash: u64,
    /// LoRA adapter, if the request names one.
    pub lora: Option<&'a str>,
    /// The request's `cache_salt`, if any.
    pub salt: Option<&'a str>,
}

/// Start of a chain: the accumulator before its first block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seed(pub u64);

/// The seed of the chains in `namespace` of the pool with key `key`.
pub fn seed(key: &PoolKey, namespace: &Namespace<'_>) -> Seed {
    let mut hasher = Sha256::new();
    put_bytes(&mut hasher, b"prefix-picker seed");
    hasher.update(HASH_DOMAIN_VERSION.to_le_bytes());
    hasher.update(key.0);
    hasher.update([namespace.family.tag()]);
    hasher.update(namespace.profile_hash.to_le_bytes());
    put_optional(&mut hasher, namespace.lora);
    put_optional(&mut hasher, namespace.salt);
    let digest: [u8; 32] = hasher.finalize().into();
    Seed(
        digest
            .iter()
            .take(8)
            .rev()
            .fold(0, |n, byte| (n << 8) | u64::from(*byte)),
    )
}

fn put_optional(hasher: &mut Sha256, value: Option<&str>) {
    match value {
        None => hasher.update([0]),
        Some(text) => {
            hasher.update([1]);
            put_bytes(hasher, text.as_bytes());
        }
    }
}

/// Length first, so that no two lists of values give the same input.
fn put_bytes(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}
