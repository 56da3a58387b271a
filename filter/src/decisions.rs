//! Tells the control plane what became of decisions, for its report and its page.
//!
//! Each VM keeps the records of requests that have ended until its next tick and puts them into shared
//! data, from where the VM that polls ([`crate::sync`]) posts them, [`PACE_US`] apart and one call at a
//! time. What is too much, or was in a call that failed, is lost and counted: nothing depends on it.
//!
//! | key | value |
//! |---|---|
//! | `pp/decisions` | what is to be posted: a message as it will be, or nothing |

use prefix_picker_core::sync::decisions::{Decision, Decisions, OTHERS_MAX, Other, RECORDS_MAX};

use crate::config::Config;
use crate::host::Host;
use crate::reason::Reason;
use crate::sync::{BINARY, post};
use crate::vm::Vm;

const OUTBOX_KEY: &str = "pp/decisions";
/// From one call to the next at least, in microseconds: 2,560 requests a second can be told of.
const PACE_US: u64 = 100_000;
/// When Envoy gives up, in milliseconds.
const TIMEOUT_MS: u32 = 2_000;
/// After a failure nothing is posted for so long, in microseconds.
const BACKOFF_US: u64 = 1_000_000;
/// A control plane that makes no reports (404) is asked again after this long, in microseconds.
const UNKNOWN_US: u64 = 30_000_000;

#[derive(Clone, Copy, Debug)]
struct Call {
    token: u32,
    root: u32,
    since_us: u64,
    /// Requests that it tells of, and those that it says were lost before.
    records: u32,
    lost: u32,
}

/// One VM's part.
#[derive(Debug, Default)]
pub struct Told {
    waiting: Decisions,
    call: Option<Call>,
    posted_us: Option<u64>,
    quiet_until_us: u64,
}

impl Told {
    /// A root context is gone, and with it the callbacks of the calls it sent.
    pub fn root_gone(&mut self, root: u32) {
        self.call = self.call.filter(|call| call.root != root);
    }
}

/// A request has ended.
pub fn note(vm: &mut Vm, host: &impl Host, decision: Decision) {
    if vm.decisions.waiting.records.len() < RECORDS_MAX {
        vm.decisions.waiting.records.push(decision);
    } else {
        lose(vm, host, 1);
    }
}

/// A request was decided, whatever becomes of it.
pub fn count(vm: &mut Vm, reason: Reason) {
    vm.decisions.waiting.count(reason.code(), 1);
}

/// A request has ended that was not looked up, or not answered. A sample: what is too much is not
/// missed.
pub fn note_other(vm: &mut Vm, other: Option<Other>) {
    if vm.decisions.waiting.others.len() < OTHERS_MAX {
        vm.decisions.waiting.others.extend(other);
    }
}

fn lose(vm: &mut Vm, host: &impl Host, count: u32) {
    let lost = &mut vm.decisions.waiting.lost;
    *lost = lost.saturating_add(count);
    host.add(vm.metrics.decisions_lost, count.into());
}

/// Every VM's share of a tick: puts what it has where the VM that polls finds it.
pub fn hand_over(vm: &mut Vm, host: &impl Host) {
    if vm.decisions.waiting == Decisions::default() {
        return;
    }
    let outbox = host.shared(OUTBOX_KEY);
    let mut all = Decisions::decode(&outbox.bytes).unwrap_or_default();
    let room = RECORDS_MAX.saturating_sub(all.records.len());
    let records = &mut vm.decisions.waiting.records;
    let excess = records.len().saturating_sub(room);
    records.truncate(room);
    lose(vm, host, u32::try_from(excess).unwrap_or(u32::MAX));
    let mine = &vm.decisions.waiting;
    all.records.extend_from_slice(&mine.records);
    all.lost = all.lost.saturating_add(mine.lost);
    let room = OTHERS_MAX.saturating_sub(all.others.len());
    all.others.extend(mine.others.iter().take(room));
    for &(reason, requests) in &mine.counts {
        all.count(reason, requests);
    }
    let Ok(bytes) = all.encode() else { return };
    // If another VM came between, it is tried again with the next tick.
    if host.set_shared(OUTBOX_KEY, &bytes, outbox.cas).is_ok() {
        vm.decisions.waiting = Decisions::default();
    }
}

/// The poller's share of a tick.
pub fn step(vm: &mut Vm, host: &impl Host, config: &Config, root: u32) {
    let now_us = host.monotonic_us();
    let lost_us = u64::from(TIMEOUT_MS) * 1_000 + BACKOFF_US;
    let call = vm.decisions.call;
    if let Some(call) = call.filter(|call| now_us.saturating_sub(call.since_us) >= lost_us) {
        vm.decisions.call = None;
        failed(vm, host, call, 0);
    }
    let early = |at: u64| now_us.saturating_sub(at) < PACE_US;
    let quiet = now_us < vm.decisions.quiet_until_us;
    if quiet || vm.decisions.call.is_some() || vm.decisions.posted_us.is_some_and(early) {
        return;
    }
    let outbox = host.shared(OUTBOX_KEY);
    if outbox.bytes.is_empty() || host.set_shared(OUTBOX_KEY, &[], outbox.cas).is_err() {
        return;
    }
    vm.decisions.posted_us = Some(now_us);
    // What a VM of an older version left there.
    let Ok(decisions) = Decisions::decode(&outbox.bytes) else {
        return;
    };
    let to = ("/v1/decisions", BINARY);
    let records = u32::try_from(decisions.records.len()).unwrap_or(u32::MAX);
    let mut call = Call {
        token: 0,
        root,
        since_us: now_us,
        records,
        lost: decisions.lost,
    };
    match post(vm, host, config, to, (&outbox.bytes, TIMEOUT_MS)) {
        Ok(token) => {
            call.token = token;
            vm.decisions.call = Some(call);
        }
        Err(_) => failed(vm, host, call, BACKOFF_US),
    }
}

fn failed(vm: &mut Vm, host: &impl Host, call: Call, quiet_us: u64) {
    vm.decisions.quiet_until_us = host.monotonic_us().saturating_add(quiet_us);
    // Counted here once already.
    let lost = &mut vm.decisions.waiting.lost;
    *lost = lost.saturating_add(call.lost);
    lose(vm, host, call.records);
}

/// The callback of a call. False: it is none of these.
pub fn answered(
    vm: &mut Vm,
    host: &impl Host,
    (root, token): (u32, u32),
    num_headers: usize,
) -> bool {
    let call = vm.decisions.call;
    let call = call.filter(|call| (call.root, call.token) == (root, token));
    let Some(call) = call else { return false };
    vm.decisions.call = None;
    match host.call_answer(num_headers, 0).status {
        Some(200) => {}
        Some(404) => failed(vm, host, call, UNKNOWN_US),
        _ => failed(vm, host, call, BACKOFF_US),
    }
    true
}

#[cfg(test)]
mod tests;
