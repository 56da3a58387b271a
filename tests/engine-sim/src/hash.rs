//! vLLM's own block hash: SHA-256 over the pickle (protocol 5) of `(parent digest, token ids, extra keys)`.
//!
//! CPython's pickler is deterministic for this shape; the opcodes are written by hand here. Checked against
//! vectors made by vLLM's classes and against hashes a real engine sent.

use sha2::{Digest, Sha256};

use crate::config::WireVersion;

/// A block's digest: stands for the block's tokens and all before it.
pub(crate) type BlockDigest = [u8; 32];

/// An extra key of a block, as it enters the hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExtraKey {
    /// A bare string (vLLM before 0.31).
    Bare(String),
    /// A tuple of strings (vLLM from 0.31 on): tag, then values.
    Tagged(Vec<String>),
}

/// Hashes the blocks of one namespace (LoRA, salt).
#[derive(Debug, Clone)]
pub(crate) struct Hasher {
    none_hash: BlockDigest,
    lora: Option<ExtraKey>,
    salt: Option<ExtraKey>,
}

/// The digest that stands before every first block. Before vLLM 0.29 it was random per process: here it
/// then depends on `instance`. A `PYTHONHASHSEED` takes the place of both.
pub(crate) fn none_hash(wire: WireVersion, seed: Option<&str>, instance: u64) -> BlockDigest {
    if let Some(seed) = seed {
        digest(&pickle(|p| p.string(seed)))
    } else if wire.fixed_none_hash() {
        digest(&pickle(|p| p.string("vllm-none-hash")))
    } else {
        Sha256::digest(instance.to_le_bytes()).into()
    }
}

impl Hasher {
    /// `lora` is the adapter's name and path.
    pub(crate) fn new(
        wire: WireVersion,
        none_hash: BlockDigest,
        lora: Option<(&str, &str)>,
        salt: Option<&str>,
    ) -> Self {
        let key = |tag: &str, values: &[&str]| {
            if wire.tagged_keys() {
                ExtraKey::Tagged(
                    std::iter::once(tag)
                        .chain(values.iter().copied())
                        .map(String::from)
                        .collect(),
                )
            } else {
                ExtraKey::Bare(values.first().copied().unwrap_or_default().to_owned())
            }
        };
        Self {
            none_hash,
            lora: lora.map(|(name, path)| key("lora", &[name, path])),
            salt: salt.map(|salt| key("cache_salt", &[salt])),
        }
    }

    /// Digest of the block of `tokens` that follows `parent` (`None`: the first block).
    pub(crate) fn block(&self, parent: Option<&BlockDigest>, tokens: &[u32]) -> BlockDigest {
        let salt = self.salt.as_ref().filter(|_| parent.is_none());
        let extra: Vec<&ExtraKey> = self.lora.iter().chain(salt).collect();
        digest(&serialise(
            parent.unwrap_or(&self.none_hash),
            tokens,
            &extra,
        ))
    }
}

fn digest(bytes: &[u8]) -> BlockDigest {
    Sha256::digest(bytes).into()
}

fn serialise(parent: &BlockDigest, tokens: &[u32], extra: &[&ExtraKey]) -> Vec<u8> {
    pickle(|p| {
        p.out.extend_from_slice(&[b'C', 32]);
        p.out.extend_from_slice(parent);
        p.memoize();
        p.tuple(tokens, |p, token| p.int(*token));
        if extra.is_empty() {
            p.out.push(b'N');
        } else {
            p.tuple(extra, |p, key| match key {
                ExtraKey::Bare(value) => p.string(value),
                ExtraKey::Tagged(values) => p.tuple(values, |p, value| p.string(value)),
            });
        }
        p.out.push(0x87); // TUPLE3
        p.memoize();
    })
}

#[derive(Default)]
struct Pickler {
    out: Vec<u8>,
}

/// PROTO 5, one FRAME, the body, STOP. (CPython starts another frame at 64 KiB: block sizes above about
/// 13,000 tokens, which nobody has.)
fn pickle(body: impl FnOnce(&mut Pickler)) -> Vec<u8> {
    let mut pickler = Pickler::default();
    body(&mut pickler);
    pickler.out.push(b'.');
    let mut out = Vec::with_capacity(pickler.out.len() + 11);
    out.extend_from_slice(&[0x80, 5, 0x95]);
    out.extend_from_slice(&(pickler.out.len() as u64).to_le_bytes());
    out.extend_from_slice(&pickler.out);
    out
}

impl Pickler {
    fn memoize(&mut self) {
        self.out.push(0x94);
    }

    fn int(&mut self, value: u32) {
        if let Ok(byte) = u8::try_from(value) {
            self.out.extend_from_slice(&[b'K', byte]);
        } else if let Ok(short) = u16::try_from(value) {
            self.out.push(b'M');
            self.out.extend_from_slice(&short.to_le_bytes());
        } else if value <= i32::MAX as u32 {
            self.out.push(b'J');
            self.out.extend_from_slice(&value.to_le_bytes());
        } else {
            // LONG1 with the sign byte
            self.out.extend_from_slice(&[0x8a, 5]);
            self.out
                .extend_from_slice(&u64::from(value).to_le_bytes()[..5]);
        }
    }

    fn string(&mut self, value: &str) {
        if let Ok(len) = u8::try_from(value.len()) {
            self.out.extend_from_slice(&[0x8c, len]);
        } else {
            self.out.push(b'X');
            self.out
                .extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        self.out.extend_from_slice(value.as_bytes());
        self.memoize();
    }

    fn tuple<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        if items.len() > 3 {
            self.out.push(b'(');
        }
        for i in items {
            item(self, i);
        }
        match items.len() {
            0 => {
                self.out.push(b')');
                return;
            }
            1 => self.out.push(0x85),
            2 => self.out.push(0x86),
            3 => self.out.push(0x87),
            _ => self.out.push(b't'),
        }
        self.memoize();
    }
}

/// What goes over the wire as an integer: the digest's last 8 bytes, big endian.
pub(crate) fn as_u64(digest: &BlockDigest) -> u64 {
    let mut last = [0u8; 8];
    last.copy_from_slice(&digest[24..]);
    u64::from_be_bytes(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tests/vectors/block-hash: made from vLLM's own classes (see the README there).
    #[test]
    fn equals_vllm() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../vectors/block-hash/vectors.json")).unwrap();
        let mut checked = 0;
        for v in vectors.as_array().unwrap() {
            let name = v["name"].as_str().unwrap();
            let (wire, lora, salt): (&str, _, Option<&str>) = match name.split(' ').next().unwrap()
            {
                "1" | "9" => ("0.32", None, None),
                "4" => ("0.32", Some(("sql", "/adapters/sql")), None),
                "4b" => ("0.30", Some(("sql", "/adapters/sql")), None),
                // CBOR, xxhash, multimodal and lookahead are not simulated
                _ => continue,
            };
            let wire = wire.parse().unwrap();
            let none = none_hash(wire, None, 0);
            assert_eq!(hex(&none), v["none_hash"], "{name}");
            let tokens: Vec<u32> = v["tokens"]
                .as_array()
                .unwrap()
                .iter()
                .map(|t| t.as_u64().unwrap() as u32)
                .collect();
            let hasher = Hasher::new(wire, none, lora, salt);
            let mut parent = None;
            for (i, block) in tokens
                .chunks_exact(v["block_size"].as_u64().unwrap() as usize)
                .enumerate()
            {
                let digest = hasher.block(parent.as_ref(), block);
                assert_eq!(hex(&digest), v["hashes"][i], "{name} block {i}");
                assert_eq!(as_u64(&digest), v["u64"][i], "{name} block {i}");
                parent = Some(digest);
            }
            checked += 1;
        }
        assert_eq!(checked, 4);
    }

    #[test]
    fn old_roots_differ_per_process() {
        let old = "0.28".parse().unwrap();
        assert_ne!(none_hash(old, None, 1), none_hash(old, None, 2));
        let new = WireVersion::default();
        assert_eq!(none_hash(new, None, 1), none_hash(new, None, 2));
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }
}
