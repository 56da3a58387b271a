//! A slot's value in shared data.

use prefix_picker_core::sync::SyncError;
use prefix_picker_core::sync::cursor::{Reader, Writer};

use super::Work;

/// A slot's value.
pub(super) struct Published {
    pub(super) owner: u64,
    pub(super) beat: u64,
    pub(super) epoch: u64,
    pub(super) work: Vec<(u16, Work)>,
}

impl Published {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.owner);
        w.u64(self.beat);
        w.u64(self.epoch);
        for &(replica, work) in &self.work {
            w.u16(replica);
            w.u32(work.requests);
            w.u64(work.tokens);
            w.u64(work.context);
        }
        w.into_bytes()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = Reader::new(bytes);
        let (owner, beat, epoch) = (r.u64()?, r.u64()?, r.u64()?);
        let mut work = Vec::new();
        while !r.rest().is_empty() {
            work.push((
                r.u16()?,
                Work {
                    requests: r.u32()?,
                    tokens: r.u64()?,
                    context: r.u64()?,
                },
            ));
        }
        Ok(Self {
            owner,
            beat,
            epoch,
            work,
        })
    }
}
