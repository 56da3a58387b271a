//! Endpoints that fail, and for how long they are left alone.
//!
//! Envoy's `override_host` policy sends a request where it is told, whatever becomes of the requests
//! there. So what becomes of them is learned from the responses: an endpoint that gives no answer twice
//! in a row, or nothing but server errors, is ejected for a while, longer each time, and comes back once
//! a single request as a probe was served. Refusals for overload (503) eject nobody, but count as
//! requests that wait there until they fade away: an engine that fails fast would look idle otherwise,
//! and attract everything. Client errors never count.
//!
//! All workers share one table in shared data ([`KEY`]), empty while all is well: one read a pick.
//! Where every candidate is ejected they are all used: the table is a hint, and never a reason to serve
//! nobody.

pub mod outcome;
pub mod record;
pub mod table;

use hashbrown::HashMap;

use crate::host::Host;
use crate::metrics::Metrics;
use outcome::{Outcome, Seen};
use record::{Access, Change, Signal};
use table::Table;

/// Key of the table.
pub const KEY: &str = "pp/health";
/// Tries to write against other workers.
const WRITE_TRIES: u32 = 4;

/// One VM's view of the table.
#[derive(Debug, Default)]
pub struct Health {
    cas: u32,
    table: Table,
    /// Answers that endpoints are giving to this VM's requests just now.
    answering: HashMap<String, u32>,
}

impl Health {
    /// Makes the key if it is not there: a version means nothing on a key that was never set.
    pub fn prepare(host: &impl Host) {
        if host.shared(KEY).cas == 0 {
            let _ = host.set_shared(KEY, &Table::default().encode(), 0);
        }
    }

    /// Reads the table again if it changed.
    pub fn refresh(&mut self, host: &impl Host) {
        let now = host.shared(KEY);
        if now.cas != self.cas {
            self.cas = now.cas;
            self.table = Table::decode(&now.bytes);
        }
    }

    /// Whether an endpoint can be sent requests, as of the last [`Health::refresh`].
    #[must_use]
    pub fn access(&self, host: &impl Host, endpoint: &str) -> Access {
        if self.table.is_empty() {
            return Access::Open;
        }
        self.table.access(endpoint, host.unix_time_ms())
    }

    /// Requests that wait at an endpoint, by what it refused and failed lately.
    #[must_use]
    pub fn strain(&self, host: &impl Host, endpoint: &str) -> u32 {
        if self.table.is_empty() {
            return 0;
        }
        self.table.strain(endpoint, host.unix_time_ms())
    }

    /// An endpoint is about to be named first. False: it is ejected, and another request is its probe.
    pub fn may_send(&mut self, host: &impl Host, endpoint: &str) -> bool {
        match self.access(host, endpoint) {
            Access::Open => true,
            Access::Closed => false,
            Access::Probe => {
                let now = host.unix_time_ms();
                self.change(host, |table| table.claim_probe(endpoint, now))
                    .unwrap_or(false)
            }
        }
    }

    /// Changes the table in shared data, unless `work` leaves it as it is. `None`: others were faster
    /// each time.
    fn change<R>(&mut self, host: &impl Host, mut work: impl FnMut(&mut Table) -> R) -> Option<R> {
        for _ in 0..WRITE_TRIES {
            self.refresh(host);
            let mut table = self.table.clone();
            let result = work(&mut table);
            if table == self.table {
                return Some(result);
            }
            if host.set_shared(KEY, &table.encode(), self.cas).is_ok() {
                self.refresh(host);
                return Some(result);
            }
        }
        None
    }

    /// An answer begins.
    pub fn begins(&mut self, endpoint: &str) {
        *self.answering.entry_ref(endpoint).or_default() += 1;
    }

    /// An answer that began is over.
    pub fn ends(&mut self, endpoint: &str) {
        if let Some(count) = self.answering.get_mut(endpoint) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.answering.remove(endpoint);
            }
        }
    }

    /// Takes note of what became of a request that was sent at `sent_ms`.
    pub fn learn(
        &mut self,
        host: &impl Host,
        metrics: &Metrics,
        outcomes: &[Outcome],
        sent_ms: u64,
    ) {
        for outcome in outcomes {
            let signal = match outcome.seen {
                Seen::Signal(signal) => signal,
                // An engine that is answering others is there: it had too much to do.
                Seen::Replaced if self.answering.contains_key(outcome.endpoint.as_str()) => {
                    Signal::Busy
                }
                Seen::Replaced => Signal::Unreached,
            };
            metrics.upstream(host, signal);
            self.note(host, metrics, &outcome.endpoint, signal, sent_ms);
        }
    }

    fn note(
        &mut self,
        host: &impl Host,
        metrics: &Metrics,
        endpoint: &str,
        signal: Signal,
        sent_ms: u64,
    ) {
        let now = host.unix_time_ms();
        let change = self.change(host, |table| table.apply(endpoint, signal, sent_ms, now));
        match change {
            Some(Change::Ejected) => {
                host.add(metrics.ejections, 1);
                log::warn!("{endpoint} is left alone for a while: {signal:?}");
            }
            Some(Change::Restored) => {
                host.add(metrics.restorations, 1);
                log::info!("{endpoint} is back");
            }
            Some(Change::Noted | Change::Nothing) | None => return,
        }
        let ejected = self.table.ejected(now);
        host.record(metrics.ejected, u64::try_from(ejected).unwrap_or(0));
    }

    /// Endpoints that are ejected, for the gauge; called on every tick.
    pub fn tick(&mut self, host: &impl Host, metrics: &Metrics) {
        let before = self.cas;
        self.refresh(host);
        if self.cas != before {
            let ejected = self.table.ejected(host.unix_time_ms());
            host.record(metrics.ejected, u64::try_from(ejected).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests;
