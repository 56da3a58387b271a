//! Which control plane of the ordered list is asked.
//!
//! All gateways start with the first, since what they tell each other goes through the one they ask. After
//! [`FAILURES_MAX`] failures in a row it is the next one's turn; what is known stays in use until that one's
//! table is complete. From there an earlier one is asked now and then whether it is ready, and once it has
//! been so for [`RETURN_AFTER_US`] it is asked again: so gateways that left it at different moments end
//! up together, and a control plane that comes and goes moves nobody more than once a minute.
//!
//! Kept in shared data under [`KEY`] for the next poller: its position, one byte.

use super::{Request, call};
use crate::config::Config;
use crate::host::Host;
use crate::vm::Vm;

/// The position's key.
const KEY: &str = "pp/control-plane";
/// So many polls in a row must fail: one may be a connection that was closed just then.
pub const FAILURES_MAX: u32 = 2;
/// Time between looks at an earlier control plane, in microseconds.
const LOOK_EVERY_US: u64 = 5_000_000;
/// An earlier one must have been ready for so long, in microseconds.
pub const RETURN_AFTER_US: u64 = 60_000_000;
/// When Envoy gives up on a look, in milliseconds.
const TIMEOUT_MS: u32 = 2_000;
/// A look whose callback never came is given up after this long, in microseconds.
const LOST_US: u64 = (TIMEOUT_MS as u64 + 3_000) * 1_000;

#[derive(Clone, Copy, Debug)]
struct Look {
    at: usize,
    token: u32,
    root: u32,
    since_us: u64,
}

/// One VM's part; of use only while it polls.
#[derive(Debug, Default)]
pub struct Choice {
    current: usize,
    failures: u32,
    look: Option<Look>,
    looks: usize,
    looked_us: u64,
    /// Since when each earlier one has been ready.
    ready: Vec<Option<u64>>,
}

impl Choice {
    /// Its position in the list.
    #[must_use]
    pub fn current(&self) -> usize {
        self.current
    }

    /// Goes on where the last poller was.
    pub fn take_over(&mut self, host: &impl Host, config: &Config) {
        let stored = host.shared(KEY).bytes.first().copied().map(usize::from);
        let known = stored.filter(|at| *at < config.control_planes.len());
        self.start_at(host, known.unwrap_or(0));
    }

    fn start_at(&mut self, host: &impl Host, at: usize) {
        *self = Self {
            current: at,
            looked_us: host.monotonic_us(),
            ready: vec![None; at],
            ..Self::default()
        };
    }

    fn go_to(&mut self, host: &impl Host, at: usize) {
        self.start_at(host, at);
        let byte = u8::try_from(at).unwrap_or(0);
        // Without it the next poller begins with the first, which is no harm.
        let _ = host.set_shared(KEY, &[byte], 0);
    }

    /// A root context is gone, and with it the callback of a look it sent.
    pub fn root_gone(&mut self, root: u32) {
        if self.look.is_some_and(|look| look.root == root) {
            self.look = None;
        }
    }

    /// A poll was answered well.
    pub fn worked(&mut self) {
        self.failures = 0;
    }

    /// A poll failed. True: from now on another one is asked.
    pub fn failed(&mut self, host: &impl Host, config: &Config) -> bool {
        self.failures += 1;
        let count = config.control_planes.len();
        if self.failures < FAILURES_MAX || count < 2 {
            return false;
        }
        self.go_to(host, (self.current + 1) % count);
        true
    }

    /// An earlier one said whether it is ready. True: from now on it is asked.
    fn heard(&mut self, host: &impl Host, at: usize, ready: bool) -> bool {
        let now_us = host.monotonic_us();
        let Some(since) = self.ready.get_mut(at) else {
            return false;
        };
        *since = ready.then(|| since.unwrap_or(now_us));
        let back = since.is_some_and(|since| now_us.saturating_sub(since) >= RETURN_AFTER_US);
        if back {
            self.go_to(host, at);
        }
        back
    }
}

/// The poller's share of a tick: looks at the earlier ones in turn.
pub fn step(vm: &mut Vm, host: &impl Host, config: &Config, root: u32) {
    let now_us = host.monotonic_us();
    let choice = &mut vm.choice;
    host.record(
        vm.metrics.control_plane,
        u64::try_from(choice.current).unwrap_or(u64::MAX),
    );
    if let Some(look) = choice.look {
        if now_us.saturating_sub(look.since_us) < LOST_US {
            return;
        }
        choice.look = None;
        choice.heard(host, look.at, false);
    }
    if choice.current == 0 || now_us.saturating_sub(choice.looked_us) < LOOK_EVERY_US {
        return;
    }
    let at = choice.looks % choice.current;
    choice.looks = choice.looks.wrapping_add(1);
    choice.looked_us = now_us;
    let request = Request {
        method: "GET",
        path: "/readyz",
        content_type: None,
        body: &[],
        timeout_ms: TIMEOUT_MS,
    };
    match call(host, config, at, request) {
        Ok(token) => {
            choice.look = Some(Look {
                at,
                token,
                root,
                since_us: now_us,
            });
        }
        Err(_) => {
            choice.heard(host, at, false);
        }
    }
}

/// The callback of a call. False: it is none of these.
pub fn answered(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    call: (u32, u32),
    num_headers: usize,
) -> bool {
    let choice = &mut vm.choice;
    let Some(look) = choice.look.filter(|look| (look.root, look.token) == call) else {
        return false;
    };
    choice.look = None;
    let ready = host.call_answer(num_headers, 0).status == Some(200);
    if choice.heard(host, look.at, ready) {
        log::info!(
            "{} is ready again and asked from now on",
            config.plane(look.at)
        );
    }
    true
}

#[cfg(test)]
mod tests;
