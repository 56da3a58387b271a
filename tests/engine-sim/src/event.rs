//! KV cache events and their msgpack form in each vLLM version.

use crate::config::WireVersion;
use crate::hash::{BlockDigest, as_u64};

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KvEvent {
    Stored(Stored),
    Removed(BlockDigest),
    Cleared,
}

/// A run of blocks that became findable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored {
    pub(crate) digests: Vec<BlockDigest>,
    /// The block before the first; `None` at the chain's start.
    pub(crate) parent: Option<BlockDigest>,
    /// Tokens of all the blocks.
    pub(crate) tokens: Vec<u32>,
    pub(crate) block_size: u32,
    /// 1-based id (load order) and name.
    pub(crate) lora: Option<(u32, String)>,
    pub(crate) salt: Option<String>,
    pub(crate) session: Option<String>,
}

/// How events are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) wire: WireVersion,
    pub(crate) bytes_hashes: bool,
    /// Data-parallel rank.
    pub(crate) rank: u16,
}

const MEDIUM: &str = "GPU";
const KIND: &str = "full_attention";

impl Form {
    /// `[ts, [event...], rank]`. `time` in unix seconds.
    pub(crate) fn encode(self, time: f64, events: &[KvEvent]) -> Vec<u8> {
        let mut out = Packer(Vec::with_capacity(256));
        out.array(3);
        out.f64(time);
        out.array(events.len());
        for event in events {
            match event {
                KvEvent::Stored(stored) => self.stored(&mut out, stored),
                KvEvent::Removed(digest) => self.removed(&mut out, digest),
                KvEvent::Cleared => self.start(&mut out, "AllBlocksCleared", 0),
            }
        }
        out.uint(self.rank.into());
        out.0
    }

    fn maps(self) -> bool {
        self.wire.events_are_maps()
    }

    /// Head of an event of `fields` fields, besides the tag.
    fn start(self, out: &mut Packer, tag: &str, fields: usize) {
        // msgspec chooses the header's width by the class: from 0.33 on BlockStored has 16 fields.
        if self.maps() && tag == "BlockStored" && self.wire >= WireVersion(0, 33, 0) {
            out.wide_map(fields + 1);
            out.str("type");
        } else if self.maps() {
            out.map(fields + 1);
            out.str("type");
        } else {
            out.array(fields + 1);
        }
        out.str(tag);
    }

    fn name(self, out: &mut Packer, name: &str) {
        if self.maps() {
            out.str(name);
        }
    }

    fn hash(self, out: &mut Packer, digest: &BlockDigest) {
        if self.bytes_hashes {
            out.bin(digest);
        } else {
            out.uint(as_u64(digest));
        }
    }

    fn stored(self, out: &mut Packer, e: &Stored) {
        let wire = self.wire;
        // Maps leave out fields that are null by default; arrays have them all.
        let session = e.session.as_ref().filter(|_| wire.has_session());
        let window = wire.has_kind() && !self.maps();
        let optional = [
            wire.has_medium(),
            wire.has_lora_name(),
            wire.has_extra_keys(),
            wire.has_group(),
            wire.has_kind(),
            window,
            session.is_some(),
        ];
        self.start(
            out,
            "BlockStored",
            5 + optional.iter().filter(|sent| **sent).count(),
        );
        self.name(out, "block_hashes");
        out.array(e.digests.len());
        e.digests.iter().for_each(|d| self.hash(out, d));
        self.name(out, "parent_block_hash");
        match &e.parent {
            Some(parent) => self.hash(out, parent),
            None => out.nil(),
        }
        self.name(out, "token_ids");
        out.array(e.tokens.len());
        e.tokens.iter().for_each(|t| out.uint(u64::from(*t)));
        self.name(out, "block_size");
        out.uint(u64::from(e.block_size));
        self.name(out, "lora_id");
        match &e.lora {
            Some((id, _)) => out.uint(u64::from(*id)),
            None => out.nil(),
        }
        if wire.has_medium() {
            self.name(out, "medium");
            out.str(MEDIUM);
        }
        if wire.has_lora_name() {
            self.name(out, "lora_name");
            out.opt_str(e.lora.as_ref().map(|(_, name)| name.as_str()));
        }
        if wire.has_extra_keys() {
            self.name(out, "extra_keys");
            extra_keys(out, e);
        }
        if wire.has_group() {
            self.name(out, "group_idx");
            out.uint(0);
        }
        if wire.has_kind() {
            self.name(out, "kv_cache_spec_kind");
            out.str(KIND);
        }
        if window {
            out.nil(); // kv_cache_spec_sliding_window
        }
        if let Some(session) = session {
            self.name(out, "session_id");
            out.str(session);
        }
    }

    fn removed(self, out: &mut Packer, digest: &BlockDigest) {
        let wire = self.wire;
        self.start(
            out,
            "BlockRemoved",
            1 + usize::from(wire.has_medium()) + usize::from(wire.has_group()),
        );
        self.name(out, "block_hashes");
        out.array(1);
        self.hash(out, digest);
        if wire.has_medium() {
            self.name(out, "medium");
            out.str(MEDIUM);
        }
        if wire.has_group() {
            self.name(out, "group_idx");
            out.uint(0);
        }
    }
}

/// One entry a block: LoRA name, then (first block of a chain only) the salt; untagged in every version.
fn extra_keys(out: &mut Packer, e: &Stored) {
    out.array(e.digests.len());
    for i in 0..e.digests.len() {
        let lora = e.lora.as_ref().map(|(_, name)| name);
        let salt = e.salt.as_ref().filter(|_| i == 0 && e.parent.is_none());
        let keys: Vec<&String> = lora.into_iter().chain(salt).collect();
        if keys.is_empty() {
            out.nil();
        } else {
            out.array(keys.len());
            keys.iter().for_each(|k| out.str(k));
        }
    }
}

/// msgpack into a vector. `rmp` fails only where its writer does, which a vector does not.
struct Packer(Vec<u8>);

fn length(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Packer {
    fn array(&mut self, n: usize) {
        let _ = rmp::encode::write_array_len(&mut self.0, length(n));
    }
    fn map(&mut self, n: usize) {
        let _ = rmp::encode::write_map_len(&mut self.0, length(n));
    }
    fn wide_map(&mut self, n: usize) {
        self.0.push(0xde);
        self.0
            .extend_from_slice(&u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes());
    }
    fn str(&mut self, s: &str) {
        let _ = rmp::encode::write_str(&mut self.0, s);
    }
    fn opt_str(&mut self, s: Option<&str>) {
        match s {
            Some(s) => self.str(s),
            None => self.nil(),
        }
    }
    fn bin(&mut self, b: &[u8]) {
        let _ = rmp::encode::write_bin(&mut self.0, b);
    }
    fn uint(&mut self, n: u64) {
        let _ = rmp::encode::write_uint(&mut self.0, n);
    }
    fn nil(&mut self) {
        let _ = rmp::encode::write_nil(&mut self.0);
    }
    fn f64(&mut self, n: f64) {
        let _ = rmp::encode::write_f64(&mut self.0, n);
    }
}

#[cfg(test)]
mod tests;
