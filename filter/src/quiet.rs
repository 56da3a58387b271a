//! Complaints that could come with every request: one line a minute.

use crate::host::Host;

/// Between two lines, in microseconds.
const QUIET_US: u64 = 60_000_000;

/// When there was the last line.
#[derive(Debug, Default)]
pub struct Quiet {
    told_us: Option<u64>,
}

impl Quiet {
    /// A line is due, and taken for written.
    pub fn is_over(&mut self, host: &impl Host) -> bool {
        let now_us = host.monotonic_us();
        let quiet = |told: u64| now_us.saturating_sub(told) < QUIET_US;
        if self.told_us.is_some_and(quiet) {
            return false;
        }
        self.told_us = Some(now_us);
        true
    }
}
