//! Asks an engine, now and then, to announce anew what a request finds cached.
//!
//! A prefix that is always in use is never evicted and so never announced again: a control plane that
//! lost it learns of it by such a report only. Off unless configured; only for pools whose control
//! plane takes a report as one; one in so many requests, and no more than one in [`EVERY_US`] from a
//! VM, since a report of a long prompt is thousands of blocks.

use prefix_picker_core::prompt::full_report;

use super::decide::Plan;
use crate::config::Config;
use crate::host::Host;
use crate::vm::Vm;

/// Shortest time between two reports that a VM asks for, in microseconds.
const EVERY_US: u64 = 1_000_000;

/// A VM's turn-taking.
#[derive(Debug, Default)]
pub struct Reports {
    /// Requests until the next one.
    left: u32,
    asked_us: Option<u64>,
}

impl Reports {
    /// One request of those that may be asked. True: this one.
    fn is_due(&mut self, sample: u32, now_us: u64) -> bool {
        self.left = self.left.min(sample - 1);
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.asked_us
            .is_none_or(|at| now_us.saturating_sub(at) >= EVERY_US)
    }

    fn asked(&mut self, sample: u32, now_us: u64) {
        self.left = sample - 1;
        self.asked_us = Some(now_us);
    }
}

/// Puts the mode into the body, if it is this request's turn. Only in the callback of the body's last
/// piece, with all of the body at hand.
pub fn ask(vm: &mut Vm, host: &impl Host, config: &Config, plan: &Plan, body: &[u8]) {
    let sample = config.full_report_sample;
    if sample == 0 || !plan.full_reports || plan.endpoints.is_empty() {
        return;
    }
    let now_us = host.monotonic_us();
    if !vm.reports.is_due(sample, now_us) {
        return;
    }
    let Some(insertion) = full_report(body) else {
        return;
    };
    let length = body.len() + insertion.text.len();
    let Some(before) = body.get(..insertion.at) else {
        return;
    };
    // What is forwarded must fit where it is held.
    if u64::try_from(length).is_ok_and(|length| length > config.max_body_bytes) {
        return;
    }
    vm.reports.asked(sample, now_us);
    // A stale length would leave the engine waiting for the rest, or cut it off.
    if host.request_header("content-length").is_some() {
        host.set_request_header("content-length", &length.to_string());
    }
    let start = [before, insertion.text.as_bytes()].concat();
    host.replace_body_start(before.len(), &start);
    host.add(vm.metrics.full_reports, 1);
}
