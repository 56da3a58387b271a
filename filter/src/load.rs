//! Work in flight, per replica, over all VMs of this Envoy process.
//!
//! Each VM that serves requests claims a slot `pp/load/<n>` and is its only writer: absolute
//! totals, so that nothing drifts. Readers sum the slots. A slot whose beat has stood still for
//! [`SILENT_US`] by the reader's own clock is ignored: its VM is gone, and its streams with it. A
//! VM that was only stalled rewrites everything at its next beat.
//!
//! Totals are kept by endpoint and published by replica number: numbers change with the epoch,
//! streams outlive it.

use std::rc::Rc;

use hashbrown::HashMap;
use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::sync::SyncError;
use prefix_picker_core::sync::cursor::{Reader, Writer};

use crate::host::Host;
use crate::pools::View;

/// Slots that may be claimed: more VMs than any Envoy has workers.
const SLOTS_MAX: usize = 256;
/// Other VMs' slots are read again after this long, in microseconds.
const READ_EVERY_US: u64 = 3_000;
/// A slot is written at least this often while work is in flight, in microseconds.
const BEAT_EVERY_US: u64 = 1_000_000;
/// A slot that did not change for this long does not count, in microseconds.
const SILENT_US: u64 = 5_000_000;
/// A slot that did not change for this long may be claimed, in microseconds.
const CLAIM_AFTER_US: u64 = 30_000_000;

/// Work in flight on one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Requests.
    pub requests: u32,
    /// Uncached prompt tokens of requests whose prefill has not ended.
    pub tokens: u64,
}

impl Work {
    fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }

    fn sub(&mut self, other: Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.tokens = self.tokens.saturating_sub(other.tokens);
    }
}

/// One request's part of the load. Given back exactly once, by [`Loads::end`].
#[derive(Debug)]
pub struct Ticket {
    endpoint: Rc<str>,
    work: Work,
}

impl Ticket {
    /// Where the request counts now.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

#[derive(Debug, Default)]
struct Seen {
    owner: u64,
    beat: u64,
    since_us: u64,
}

/// One VM's accounts.
#[derive(Debug)]
pub struct Loads {
    id: u64,
    slot: Option<usize>,
    beat: u64,
    published_us: u64,
    own: HashMap<Rc<str>, Work>,
    others: HashMap<u16, Work>,
    others_epoch: u64,
    read_us: Option<u64>,
    seen: Vec<Seen>,
}

impl Loads {
    /// Empty accounts; `id` must differ from every other VM's.
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self {
            id,
            slot: None,
            beat: 0,
            published_us: 0,
            own: HashMap::new(),
            others: HashMap::new(),
            others_epoch: 0,
            read_us: None,
            seen: Vec::new(),
        }
    }

    /// A request goes to an endpoint.
    pub fn start(&mut self, host: &impl Host, view: &View, endpoint: &str, tokens: u64) -> Ticket {
        let endpoint: Rc<str> = match self.own.get_key_value(endpoint) {
            Some((known, _)) => Rc::clone(known),
            None => Rc::from(endpoint),
        };
        let work = Work {
            requests: 1,
            tokens,
        };
        self.own.entry(Rc::clone(&endpoint)).or_default().add(work);
        self.publish(host, Some(view));
        Ticket { endpoint, work }
    }

    /// Its prompt is computed.
    pub fn prefill_ended(&mut self, host: &impl Host, view: Option<&View>, ticket: &mut Ticket) {
        let tokens = std::mem::take(&mut ticket.work.tokens);
        if tokens != 0 {
            self.take(
                &ticket.endpoint,
                Work {
                    requests: 0,
                    tokens,
                },
            );
            self.publish(host, view);
        }
    }

    /// It turned out to be served elsewhere.
    pub fn moved(&mut self, host: &impl Host, view: Option<&View>, ticket: &mut Ticket, to: &str) {
        self.take(&ticket.endpoint, ticket.work);
        ticket.endpoint = Rc::from(to);
        self.own
            .entry(Rc::clone(&ticket.endpoint))
            .or_default()
            .add(ticket.work);
        self.publish(host, view);
    }

    /// It is over.
    pub fn end(&mut self, host: &impl Host, view: Option<&View>, ticket: Ticket) {
        self.take(&ticket.endpoint, ticket.work);
        self.publish(host, view);
    }

    fn take(&mut self, endpoint: &str, work: Work) {
        if let Some(own) = self.own.get_mut(endpoint) {
            own.sub(work);
            if *own == Work::default() {
                self.own.remove(endpoint);
            }
        }
    }

    /// Keeps the slot alive; called on every tick.
    pub fn beat(&mut self, host: &impl Host, view: Option<&View>, now_us: u64) {
        let due = now_us.saturating_sub(self.published_us) >= BEAT_EVERY_US;
        if due && !self.own.is_empty() {
            self.publish(host, view);
        }
    }

    /// Work in flight on a replica, ours and, as of a few milliseconds ago, the other VMs'.
    pub fn on(&self, replica: ReplicaIndex, endpoint: &str) -> Work {
        let mut work = self.own.get(endpoint).copied().unwrap_or_default();
        if let Some(&others) = self.others.get(&replica.0) {
            work.add(others);
        }
        work
    }

    /// Reads the other VMs' slots again if that is due.
    pub fn refresh(&mut self, host: &impl Host, view: &View) {
        let now_us = host.monotonic_us();
        let epoch = view.head.epoch.0;
        let recent = self
            .read_us
            .is_some_and(|at| now_us.saturating_sub(at) < READ_EVERY_US);
        if recent && self.others_epoch == epoch {
            return;
        }
        self.read_us = Some(now_us);
        self.others_epoch = epoch;
        self.others.clear();
        for n in 0..SLOTS_MAX {
            let slot = host.shared(&key(n));
            if slot.cas == 0 {
                break;
            }
            let Ok(slot) = Published::decode(&slot.bytes) else {
                continue;
            };
            let silent_us = self.note(n, &slot, now_us);
            if slot.owner == self.id || slot.epoch != epoch || silent_us >= SILENT_US {
                continue;
            }
            for (replica, work) in slot.work {
                self.others.entry(replica).or_default().add(work);
            }
        }
    }

    /// How long a slot has not changed, as far as this VM saw.
    fn note(&mut self, n: usize, slot: &Published, now_us: u64) -> u64 {
        while self.seen.len() <= n {
            self.seen.push(Seen::default());
        }
        let Some(seen) = self.seen.get_mut(n) else {
            return 0;
        };
        if (seen.owner, seen.beat) != (slot.owner, slot.beat) {
            *seen = Seen {
                owner: slot.owner,
                beat: slot.beat,
                since_us: now_us,
            };
        }
        now_us.saturating_sub(seen.since_us)
    }

    fn publish(&mut self, host: &impl Host, view: Option<&View>) {
        let Some(view) = view else { return };
        self.published_us = host.monotonic_us();
        self.beat += 1;
        let work = self.own.iter();
        let work = work.filter_map(|(endpoint, &w)| Some((view.replica_at(endpoint)?.0, w)));
        let mine = Published {
            owner: self.id,
            beat: self.beat,
            epoch: view.head.epoch.0,
            work: work.collect(),
        }
        .encode();
        // A slot can be lost to a racing claim or, after a long stall, to another VM: claim anew.
        for _ in 0..2 {
            let Some(n) = self.slot.or_else(|| self.claim(host)) else {
                return;
            };
            self.slot = Some(n);
            let now = host.shared(&key(n));
            let owner = Published::decode(&now.bytes).ok().map(|p| p.owner);
            if owner == Some(self.id) && host.set_shared(&key(n), &mine, now.cas).is_ok() {
                return;
            }
            self.slot = None;
        }
    }

    /// Takes the first slot that is nobody's.
    fn claim(&mut self, host: &impl Host) -> Option<usize> {
        let now_us = host.monotonic_us();
        let empty = Published {
            owner: self.id,
            beat: 0,
            epoch: 0,
            work: Vec::new(),
        }
        .encode();
        for n in 0..SLOTS_MAX {
            let key = key(n);
            let mut slot = host.shared(&key);
            if slot.cas == 0 {
                // CAS means nothing on a key that was never set: create it, then contend.
                let _ = host.set_shared(&key, &[], 0);
                slot = host.shared(&key);
            }
            let free = match Published::decode(&slot.bytes) {
                Ok(p) => p.owner == self.id || self.note(n, &p, now_us) >= CLAIM_AFTER_US,
                Err(_) => true,
            };
            if free && host.set_shared(&key, &empty, slot.cas).is_ok() {
                return Some(n);
            }
        }
        None
    }
}

fn key(n: usize) -> String {
    format!("pp/load/{n}")
}

/// A slot's value.
struct Published {
    owner: u64,
    beat: u64,
    epoch: u64,
    work: Vec<(u16, Work)>,
}

impl Published {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.owner);
        w.u64(self.beat);
        w.u64(self.epoch);
        for &(replica, work) in &self.work {
            w.u16(replica);
            w.u32(work.requests);
            w.u64(work.tokens);
        }
        w.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = Reader::new(bytes);
        let (owner, beat, epoch) = (r.u64()?, r.u64()?, r.u64()?);
        let mut work = Vec::new();
        while !r.rest().is_empty() {
            work.push((
                r.u16()?,
                Work {
                    requests: r.u32()?,
                    tokens: r.u64()?,
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

#[cfg(test)]
mod tests;
