//! A LoRA adapter in the head: its name, and which replicas have it loaded.
//!
//! An engine answers a request for an adapter that it has not loaded with 404, so that only these
//! replicas may be named for one.

use super::SyncError;
use super::cursor::{Reader, Writer};
use crate::ids::ReplicaIndex;

/// One adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoraHead {
    /// Its name: the `model` of requests for it, and part of their blocks' seed.
    pub name: String,
    /// The replicas that have it, ascending.
    pub replicas: Vec<ReplicaIndex>,
}

impl LoraHead {
    /// Does this replica have it?
    #[must_use]
    pub fn is_on(&self, replica: ReplicaIndex) -> bool {
        self.replicas
            .binary_search_by_key(&replica.0, |r| r.0)
            .is_ok()
    }

    /// The name, then the replicas as a bitset: the number that its first bit stands for, its bytes.
    pub(super) fn encode(&self, w: &mut Writer) -> Result<(), SyncError> {
        w.string(&self.name)?;
        let first = self.replicas.first().map_or(0, |r| r.0);
        let mut bits: Vec<u8> = Vec::new();
        for replica in &self.replicas {
            let Some(at) = replica.0.checked_sub(first).map(usize::from) else {
                return Err(SyncError::Invalid("replicas of an adapter out of order"));
            };
            if bits.len() <= at / 8 {
                bits.resize(at / 8 + 1, 0);
            }
            if let Some(byte) = bits.get_mut(at / 8) {
                *byte |= 1 << (at % 8);
            }
        }
        w.u16(first);
        w.list(&bits, |w, byte| {
            w.u8(*byte);
            Ok(())
        })
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, SyncError> {
        let name = r.string()?;
        let first = r.u16()?;
        let bits = r.list(Reader::u8)?;
        let set = bits.iter().enumerate().flat_map(|(at, byte)| {
            (0..8)
                .filter(move |bit| byte >> bit & 1 == 1)
                .map(move |bit| at * 8 + bit)
        });
        let replicas = set.map(|offset| {
            let number = u16::try_from(offset).ok()?.checked_add(first)?;
            Some(ReplicaIndex(number))
        });
        let replicas: Option<Vec<_>> = replicas.collect();
        Ok(Self {
            name,
            replicas: replicas.ok_or(SyncError::Invalid("a replica number too large"))?,
        })
    }
}
