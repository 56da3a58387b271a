//! Other gateways' work in flight, as the control plane last passed it on.
//!
//! `pp/remote` has it, by the replicas' places; one VM of the process writes it ([`crate::news`]), all
//! read it. What was not rewritten for [`SILENT_US`] by the reader's own clock does not count: a gateway
//! that is gone is told of within 3 s, and a control plane that is gone tells nothing more.

use hashbrown::HashMap;
use prefix_picker_core::sync::SyncError;
use prefix_picker_core::sync::cursor::{Reader, Writer};
use prefix_picker_core::sync::news::PlaceWork;

use super::Work;
use crate::host::Host;
use crate::pools::View;

/// Where it is.
const KEY: &str = "pp/remote";
/// After this long without news it does not count, in microseconds. It is rewritten once a second.
const SILENT_US: u64 = 2_000_000;

/// This VM's copy.
#[derive(Debug, Default)]
pub(super) struct Remote {
    version: u32,
    since_us: u64,
    gateways: u16,
    work: Vec<PlaceWork>,
    by_replica: HashMap<u16, Work>,
}

impl Remote {
    /// Looks for news.
    pub(super) fn refresh(&mut self, host: &impl Host, view: &View, now_us: u64) {
        let shared = host.shared(KEY);
        if shared.cas != self.version {
            self.version = shared.cas;
            self.since_us = now_us;
            (self.gateways, self.work) = decode(&shared.bytes).unwrap_or_default();
        }
        self.by_replica.clear();
        if now_us.saturating_sub(self.since_us) >= SILENT_US {
            self.gateways = 0;
            self.work.clear();
        }
        for work in &self.work {
            if let Some(replica) = view.replica_of_place(work.place) {
                let sum = self.by_replica.entry(replica.0).or_default();
                sum.add(Work {
                    requests: work.requests,
                    tokens: work.tokens,
                    context: work.context,
                });
            }
        }
    }

    pub(super) fn on(&self, replica: u16) -> Work {
        self.by_replica.get(&replica).copied().unwrap_or_default()
    }

    /// Gateways that are there beside this one.
    pub(super) fn gateways(&self) -> u16 {
        self.gateways
    }
}

/// Writes what was heard, for all VMs. Also where nothing changed: it is a sign of life.
pub fn publish(host: &impl Host, gateways: u16, work: &[PlaceWork]) {
    let mut w = Writer::default();
    w.u16(gateways);
    for work in work {
        work.encode(&mut w);
    }
    let _ = host.set_shared(KEY, &w.into_bytes(), 0);
}

fn decode(bytes: &[u8]) -> Result<(u16, Vec<PlaceWork>), SyncError> {
    let mut r = Reader::new(bytes);
    let gateways = r.u16()?;
    let mut all = Vec::new();
    while !r.rest().is_empty() {
        all.push(PlaceWork::decode(&mut r)?);
    }
    Ok((gateways, all))
}
