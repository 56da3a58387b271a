//! What is known against endpoints: a small table, and nothing in it that has no grounds.
//!
//! ```text
//! table = version u8 (1), then records; little-endian:
//!         name length u8, name, unreached u8, errors u8, failed u64, cause u8, level u8,
//!         since u64, until u64, probe_until u64, restored u64, strain u32, strained u64
//! ```
//! Times are milliseconds since 1970, 0: never. The clock is the wall clock, since it must be the same
//! for all workers; what one that is set back has left in its former future does not count.

use prefix_picker_core::sync::cursor::{Reader, Writer};

use super::record::{Access, Change, PROBE_MS, Record, Signal};

const VERSION: u8 = 1;
/// Endpoints in the table at most.
pub const RECORDS_MAX: usize = 256;
/// Longer names of endpoints are not noted.
const NAME_MAX: usize = 128;

/// All that is known. Endpoints that are not in it are well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    records: Vec<Record>,
}

impl Table {
    /// Reads a table, as far as it can be read.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let Some((&VERSION, rest)) = bytes.split_first() else {
            return Self::default();
        };
        let mut r = Reader::new(rest);
        let next = std::iter::from_fn(|| Record::decode(&mut r).ok());
        Self {
            records: next.take(RECORDS_MAX).collect(),
        }
    }

    /// The table's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        for record in &self.records {
            record.encode(&mut w);
        }
        w.into_bytes()
    }

    /// Nothing is known against anybody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn record(&self, endpoint: &str, now_ms: u64) -> Option<&Record> {
        let found = self.records.iter().find(|r| r.name == endpoint);
        found.filter(|record| !record.is_over(now_ms))
    }

    /// Whether an endpoint can be sent requests now.
    #[must_use]
    pub fn access(&self, endpoint: &str, now_ms: u64) -> Access {
        let record = self.record(endpoint, now_ms);
        record.map_or(Access::Open, |record| record.access(now_ms))
    }

    /// What its refusals and failures are worth, in requests that wait there.
    #[must_use]
    pub fn strain(&self, endpoint: &str, now_ms: u64) -> u32 {
        let record = self.record(endpoint, now_ms);
        record.map_or(0, |record| {
            record.strain(now_ms).saturating_add(500) / 1_000
        })
    }

    /// Endpoints that are ejected, or were and are being tried.
    #[must_use]
    pub fn ejected(&self, now_ms: u64) -> usize {
        let ejected = |r: &&Record| r.is_ejected() && !r.is_over(now_ms);
        self.records.iter().filter(ejected).count()
    }

    /// Takes note of what became of a request that was sent to an endpoint at `sent_ms`.
    pub fn apply(&mut self, endpoint: &str, signal: Signal, sent_ms: u64, now_ms: u64) -> Change {
        self.records.retain(|record| !record.is_over(now_ms));
        let well = matches!(signal, Signal::Served | Signal::Refused);
        let known = self.records.iter_mut().find(|r| r.name == endpoint);
        if let Some(record) = known {
            return record.apply(signal, sent_ms, now_ms);
        }
        if well || endpoint.is_empty() || endpoint.len() > NAME_MAX || !self.make_room(now_ms) {
            return Change::Nothing;
        }
        let mut record = Record::new(endpoint);
        let change = record.apply(signal, sent_ms, now_ms);
        self.records.push(record);
        change
    }

    /// True: a probe may be sent, and now is.
    pub fn claim_probe(&mut self, endpoint: &str, now_ms: u64) -> bool {
        let record = self.records.iter_mut().find(|r| r.name == endpoint);
        let Some(record) = record.filter(|r| !r.is_over(now_ms)) else {
            return true;
        };
        match record.access(now_ms) {
            Access::Open => true,
            Access::Closed => false,
            Access::Probe => {
                record.probe_until_ms = now_ms.saturating_add(PROBE_MS);
                true
            }
        }
    }

    /// In a full table an endpoint that is not ejected gives way, the one least strained first.
    fn make_room(&mut self, now_ms: u64) -> bool {
        if self.records.len() < RECORDS_MAX {
            return true;
        }
        let least = self.records.iter().enumerate();
        let least = least.filter(|(_, r)| !r.is_ejected());
        let least = least.min_by_key(|(_, r)| (r.unreached, r.errors, r.strain(now_ms)));
        let Some((at, _)) = least else { return false };
        self.records.swap_remove(at);
        true
    }
}

#[cfg(test)]
mod tests;
