//! Tells other gateways what this one has in flight and has just sent where, and hears the same of them.
//!
//! By way of the control plane, from the VM that polls ([`crate::sync`]). Two calls at most are in
//! flight: one that *listens*, whose answer waits up to a second for news and which is a sign of life,
//! and one that *tells* at once what has changed, 50 ms after the last at the earliest. Without other
//! gateways there is only the first.
//!
//! | key | value |
//! |---|---|
//! | `pp/outbox` | claims that VMs have made and that are to be told |
//! | `pp/remote` | other gateways' work, see [`crate::load`] |
//! | `pp/news-seq` | number of the last report |
//!
//! Claims that are heard go where our own are ([`SENT`]), so that looking them up costs nothing more. One
//! that is taken back after a failure is not told again: others believe it until it ends.

use std::collections::VecDeque;

use prefix_picker_core::recent::{Bucket, Claim, place};
use prefix_picker_core::sync::news::{OthersNews, PlaceWork, REPORTED_MAX, Report, Sent};

use crate::config::Config;
use crate::host::Host;
use crate::load::remote;
use crate::pools::View;
use crate::recent::{Claimed, SENT};
use crate::sync::poller::gateway;
use crate::sync::{BINARY, post};
use crate::vm::Vm;

const OUTBOX_KEY: &str = "pp/outbox";
const SEQ_KEY: &str = "pp/news-seq";
/// Claims that wait to be told, at most; what comes faster is told in part.
const OUTBOX_MAX: usize = 256;
/// Claims that wait to be put where requests look, at most.
const HEARD_MAX: usize = 4_096;
/// How long putting them there may take at a time, in microseconds.
const SLICE_US: u64 = 500;
/// From one call to the next of its kind at least, in microseconds.
const PACE_US: u64 = 50_000;
/// How long the answer to who listens may wait for news, in milliseconds.
const WAIT_MS: u32 = 1_000;
/// When Envoy gives up, in milliseconds.
const TIMEOUT_MS: u32 = WAIT_MS + 2_000;
/// After a failure nothing is said for so long, in microseconds.
const BACKOFF_US: u64 = 1_000_000;
/// A control plane that knows no news (404) is asked again after this long, in microseconds.
const UNKNOWN_US: u64 = 30_000_000;
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Call {
    token: u32,
    root: u32,
    since_us: u64,
}

/// One VM's part.
#[derive(Debug, Default)]
pub struct News {
    listening: Option<Call>,
    telling: Option<Call>,
    /// Of either kind, when the last was sent.
    listened_us: Option<u64>,
    told_us: Option<u64>,
    quiet_until_us: u64,
    told: Vec<PlaceWork>,
    instance: u64,
    cursor: u64,
    seen: u64,
    /// Heard, and not yet where requests look.
    heard: VecDeque<Claim>,
}

impl News {
    /// A root context is gone, and with it the callbacks of the calls it sent.
    pub fn root_gone(&mut self, root: u32) {
        for call in [&mut self.listening, &mut self.telling] {
            if call.is_some_and(|call| call.root == root) {
                *call = None;
            }
        }
    }

    fn forget_lost(&mut self, now_us: u64) {
        let lost = u64::from(TIMEOUT_MS) * 1_000 + BACKOFF_US;
        for call in [&mut self.listening, &mut self.telling] {
            if call.is_some_and(|call| now_us.saturating_sub(call.since_us) >= lost) {
                *call = None;
            }
        }
    }
}

/// A request made claims: others hear of those that are new. Nothing where there are no others.
pub fn note(vm: &Vm, host: &impl Host, claimed: &Claimed) {
    if vm.loads.other_gateways() == 0 || claimed.made().is_empty() {
        return;
    }
    // Another worker may come between: once more, then leave it.
    for _ in 0..2 {
        let outbox = host.shared(OUTBOX_KEY);
        let mut claims = Bucket::decode(&outbox.bytes);
        for claim in claimed.made() {
            let _ = claims.put(*claim, OUTBOX_MAX);
        }
        let written = host.set_shared(OUTBOX_KEY, &claims.encode(), outbox.cas);
        if written.is_ok() {
            return;
        }
    }
}

fn take_outbox(host: &impl Host) -> Vec<Sent> {
    let outbox = host.shared(OUTBOX_KEY);
    if outbox.bytes.is_empty() {
        return Vec::new();
    }
    // If somebody adds to it meanwhile it goes next time.
    if host.set_shared(OUTBOX_KEY, &[], outbox.cas).is_err() {
        return Vec::new();
    }
    let now_ms = host.unix_time_ms();
    let claims = Bucket::decode(&outbox.bytes);
    let sent = claims
        .live(now_ms)
        .filter_map(|claim| claim.to_sent(now_ms));
    sent.take(REPORTED_MAX).collect()
}

/// This process's work, without other gateways'.
fn work(vm: &Vm, view: &View) -> Vec<PlaceWork> {
    let replicas = view.head.replicas.iter();
    let work = replicas.filter_map(|r| {
        let name = r.name();
        let work = vm.loads.local(r.index, &name);
        (work.requests != 0).then(|| PlaceWork {
            place: place(&name),
            requests: work.requests,
            tokens: work.tokens,
            context: work.context,
        })
    });
    work.collect()
}

/// The poller's share of a tick.
pub fn step(vm: &mut Vm, host: &impl Host, config: &Config, root: u32) {
    let now_us = host.monotonic_us();
    put_heard(vm, host);
    vm.news.forget_lost(now_us);
    if now_us < vm.news.quiet_until_us {
        return;
    }
    let Some(view) = vm.heads.last().cloned() else {
        return;
    };
    let due = |last: Option<u64>| last.is_none_or(|at| now_us.saturating_sub(at) >= PACE_US);
    let work = work(vm, &view);
    let others = vm.loads.other_gateways() > 0;
    if others && vm.news.telling.is_none() && due(vm.news.told_us) {
        let sent = take_outbox(host);
        if !sent.is_empty() || work != vm.news.told {
            let call = send(vm, host, config, root, (0, work.clone(), sent));
            vm.news.telling = call;
            vm.news.told_us = Some(now_us);
        }
    }
    if vm.news.listening.is_none() && due(vm.news.listened_us) {
        let call = send(vm, host, config, root, (WAIT_MS, work, Vec::new()));
        vm.news.listening = call;
        vm.news.listened_us = Some(now_us);
    }
}

fn send(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    root: u32,
    (wait_ms, work, sent): (u32, Vec<PlaceWork>, Vec<Sent>),
) -> Option<Call> {
    let report = Report {
        gateway: gateway(host, &mut vm.random),
        seq: next_seq(host),
        instance: vm.news.instance,
        cursor: vm.news.cursor,
        seen: vm.news.seen,
        wait_ms,
        work,
        sent,
    };
    let now_us = host.monotonic_us();
    let body = report.encode().ok()?;
    match post(vm, host, config, ("/v1/news", BINARY), (&body, TIMEOUT_MS)) {
        Ok(token) => {
            vm.news.told = report.work;
            Some(Call {
                token,
                root,
                since_us: now_us,
            })
        }
        Err(_) => {
            failed(vm, host, BACKOFF_US);
            None
        }
    }
}

/// The process's, so that it grows when another VM goes on.
fn next_seq(host: &impl Host) -> u64 {
    let last = host.shared(SEQ_KEY).bytes;
    let last = last.try_into().map_or(0, u64::from_le_bytes);
    let _ = host.set_shared(SEQ_KEY, &(last + 1).to_le_bytes(), 0);
    last + 1
}

fn failed(vm: &mut Vm, host: &impl Host, quiet_us: u64) {
    host.add(vm.metrics.news_failures, 1);
    vm.news.quiet_until_us = host.monotonic_us().saturating_add(quiet_us);
    // What it knew then is not what it will know.
    vm.news.told.clear();
}

/// The callback of a call. False: it is none of these.
pub fn answered(
    vm: &mut Vm,
    host: &impl Host,
    (root, token): (u32, u32),
    (num_headers, body_bytes): (usize, usize),
) -> bool {
    let News {
        listening, telling, ..
    } = &mut vm.news;
    let calls = [listening, telling];
    let call = calls
        .into_iter()
        .find(|call| call.is_some_and(|call| (call.root, call.token) == (root, token)));
    let Some(call) = call else { return false };
    *call = None;
    let answer = host.call_answer(num_headers, body_bytes.min(ANSWER_BYTES_MAX));
    let news = (answer.status == Some(200)).then(|| OthersNews::decode(&answer.body));
    match news {
        Some(Ok(news)) => take(vm, host, news),
        _ if answer.status == Some(404) => failed(vm, host, UNKNOWN_US),
        _ => failed(vm, host, BACKOFF_US),
    }
    true
}

fn take(vm: &mut Vm, host: &impl Host, news: OthersNews) {
    if news.instance == vm.news.instance {
        // Of two answers that overtook each other the later one counts.
        vm.news.cursor = vm.news.cursor.max(news.cursor);
        if news.seen < vm.news.seen {
            return;
        }
    } else {
        (vm.news.instance, vm.news.cursor) = (news.instance, news.cursor);
    }
    vm.news.seen = news.seen;
    if news.more {
        vm.news.listened_us = None;
    }
    remote::publish(host, news.gateways, &news.work);
    host.record(vm.metrics.other_gateways, news.gateways.into());
    let now_ms = host.unix_time_ms();
    let claims = news.sent.iter();
    let claims = claims.filter_map(|sent| Claim::of_sent(sent, now_ms));
    vm.news.heard.extend(claims);
    let excess = vm.news.heard.len().saturating_sub(HEARD_MAX);
    vm.news.heard.drain(..excess);
    put_heard(vm, host);
}

/// Puts what was heard where requests look, for as long as a worker may be held up.
fn put_heard(vm: &mut Vm, host: &impl Host) {
    let start_us = host.monotonic_us();
    while let Some(claim) = vm.news.heard.pop_front() {
        SENT.hear(host, claim);
        host.add(vm.metrics.news_claims, 1);
        if host.monotonic_us().saturating_sub(start_us) >= SLICE_US {
            break;
        }
    }
}

#[cfg(test)]
mod tests;
