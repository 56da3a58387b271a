//! Work in flight, per replica, over all VMs of this Envoy process.
//!
//! Each VM that serves requests claims a slot `pp/work/<n>` and is its only writer: absolute
//! totals, so that nothing drifts. Readers sum the slots. A slot whose beat has stood still for
//! [`SILENT_US`] by the reader's own clock is ignored: its VM is gone, and its streams with it. A
//! VM that was only stalled rewrites everything at its next beat.
//!
//! Totals are kept by a replica's name and published by its number: numbers change with the epoch,
//! streams outlive it.

mod slot;

pub mod remote;

use std::rc::Rc;

use hashbrown::HashMap;
use prefix_picker_core::ids::ReplicaIndex;

use remote::Remote;

use crate::host::Host;
use crate::pools::View;
use slot::Published;

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
    /// What is to be computed of requests whose prefill has not ended, in
    /// [`prefill_work`](prefix_picker_core::pick::cost::prefill_work) tokens.
    pub tokens: u64,
    /// Prompt tokens of all requests, computed or not: what their decoding drags along.
    pub context: u64,
}

impl Work {
    fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.context = self.context.saturating_add(other.context);
    }

    fn sub(&mut self, other: Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.tokens = self.tokens.saturating_sub(other.tokens);
        self.context = self.context.saturating_sub(other.context);
    }
}

/// What a request brings along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brings {
    /// To be computed, as in [`Work::tokens`].
    pub tokens: u64,
    /// The prompt's tokens.
    pub context: u64,
    /// Its prefill ends so many microseconds from now, where nothing else will tell: the headers of a
    /// response that is no stream come with its last token. `None`: the first byte of the stream does.
    pub prefill_us: Option<u64>,
}

/// One request's part of the load. Given back exactly once, by [`Loads::end`].
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// A request that is not over.
#[derive(Debug)]
struct Open {
    replica: Rc<str>,
    work: Work,
    prefill_ends_us: Option<u64>,
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
    open: HashMap<u64, Open>,
    next_ticket: u64,
    others: HashMap<u16, Work>,
    others_epoch: u64,
    read_us: Option<u64>,
    seen: Vec<Seen>,
    remote: Remote,
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
            open: HashMap::new(),
            next_ticket: 0,
            others: HashMap::new(),
            others_epoch: 0,
            read_us: None,
            seen: Vec::new(),
            remote: Remote::default(),
        }
    }

    /// A request goes to a replica, by its name.
    pub fn start(
        &mut self,
        host: &impl Host,
        view: &View,
        replica: &str,
        brings: Brings,
    ) -> Ticket {
        let work = Work {
            requests: 1,
            tokens: brings.tokens,
            context: brings.context,
        };
        let now_us = host.monotonic_us();
        let open = Open {
            replica: self.give(replica, work),
            work,
            prefill_ends_us: brings.prefill_us.map(|us| now_us.saturating_add(us)),
        };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.open.insert(ticket, open);
        self.publish(host, Some(view));
        Ticket(ticket)
    }

    /// Its prompt is computed.
    pub fn prefill_ended(&mut self, host: &impl Host, view: Option<&View>, ticket: &Ticket) {
        if self.take_prefill(ticket.0) {
            self.publish(host, view);
        }
    }

    /// False: there was nothing left of it.
    fn take_prefill(&mut self, ticket: u64) -> bool {
        let Some(open) = self.open.get_mut(&ticket) else {
            return false;
        };
        open.prefill_ends_us = None;
        let tokens = std::mem::take(&mut open.work.tokens);
        let replica = Rc::clone(&open.replica);
        let work = Work {
            tokens,
            ..Work::default()
        };
        self.take(&replica, work);
        tokens != 0
    }

    /// Ends prefills whose time is over.
    fn end_prefills(&mut self, now_us: u64) -> bool {
        let due = |open: &Open| open.prefill_ends_us.is_some_and(|at| at <= now_us);
        let ended = self.open.iter().filter(|(_, open)| due(open));
        let ended: Vec<u64> = ended.map(|(&ticket, _)| ticket).collect();
        let changed = ended.iter().map(|&ticket| self.take_prefill(ticket));
        changed.fold(false, |any, this| any | this)
    }

    /// It turned out to be served elsewhere. True: than where it counted until now.
    pub fn moved(
        &mut self,
        host: &impl Host,
        view: Option<&View>,
        ticket: &Ticket,
        to: &str,
    ) -> bool {
        let Some(open) = self.open.get(&ticket.0).filter(|o| &*o.replica != to) else {
            return false;
        };
        let (from, work) = (Rc::clone(&open.replica), open.work);
        self.take(&from, work);
        let to = self.give(to, work);
        if let Some(open) = self.open.get_mut(&ticket.0) {
            open.replica = to;
        }
        self.publish(host, view);
        true
    }

    /// It is over.
    pub fn end(&mut self, host: &impl Host, view: Option<&View>, ticket: Ticket) {
        if let Some(open) = self.open.remove(&ticket.0) {
            self.take(&open.replica, open.work);
            self.publish(host, view);
        }
    }

    fn give(&mut self, name: &str, work: Work) -> Rc<str> {
        let name: Rc<str> = match self.own.get_key_value(name) {
            Some((known, _)) => Rc::clone(known),
            None => Rc::from(name),
        };
        self.own.entry(Rc::clone(&name)).or_default().add(work);
        name
    }

    fn take(&mut self, name: &str, work: Work) {
        if let Some(own) = self.own.get_mut(name) {
            own.sub(work);
            if *own == Work::default() {
                self.own.remove(name);
            }
        }
    }

    /// Keeps the slot alive, and ends prefills by the clock; called on every tick.
    pub fn beat(&mut self, host: &impl Host, view: Option<&View>, now_us: u64) {
        let changed = self.end_prefills(now_us);
        let due = now_us.saturating_sub(self.published_us) >= BEAT_EVERY_US;
        if changed || due && !self.own.is_empty() {
            self.publish(host, view);
        }
    }

    /// Work in flight on a replica: this process's and, as of a tenth of a second ago, other gateways'.
    pub fn on(&self, replica: ReplicaIndex, name: &str) -> Work {
        let mut work = self.local(replica, name);
        work.add(self.remote.on(replica.0));
        work
    }

    /// Gateways beside this one that are heard of, as of the last [`Self::refresh`].
    #[must_use]
    pub fn other_gateways(&self) -> u16 {
        self.remote.gateways()
    }

    /// Work in flight on a replica, ours and, as of a few milliseconds ago, the other VMs'.
    pub fn local(&self, replica: ReplicaIndex, name: &str) -> Work {
        let mut work = self.own.get(name).copied().unwrap_or_default();
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
        self.remote.refresh(host, view, now_us);
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
        let work = work.filter_map(|(name, &w)| Some((view.replica_called(name)?.0, w)));
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
    format!("pp/work/{n}")
}

#[cfg(test)]
mod tests;
