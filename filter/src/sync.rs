//! Brings the control plane's table into shared data.
//!
//! One VM of the process polls, under the [`crate::lease`]; all others only read. An answer is
//! applied in slices, so that a worker is never held up for long. What the next poller needs to
//! continue is in shared data too, since a VM can trap and a lease can move at any time.
//!
//! | key | value |
//! |---|---|
//! | `pp/sync` | [`state::State`]: which table is complete, which is being loaded |
//! | `pp/head` | the head that requests read, see [`crate::pools`] |
//! | `pp/head-next` | a head of another epoch, until that epoch's table is complete |
//! | `pp/page/<slot>/<n>` | pages, in two sets of keys |
//! | `pp/heard` | rewritten with each answer: its version is the sign of life |
//! | `pp/control-plane` | which control plane is asked, see [`choice`] |
//! | `pp/gateway` | a random name of this process |
//! | `pp/token-id-pools` | pools that got token-id prompts, one a line |
//!
//! Others' are `pp/work/<n>` ([`crate::load`]), `pp/sent/<n>`, `pp/answers/<n>` and `pp/settling/<n>`
//! ([`crate::recent`]), `pp/decisions` ([`crate::decisions`]), and the lease.
//!
//! Keys in Envoy's shared data are never freed. Their number is bounded by the largest table there
//! was; a set of keys that is left behind is overwritten with empty values.

pub mod apply;
pub mod choice;
mod complaints;
pub mod poller;
pub mod state;

pub use poller::Poller;

use crate::config::Config;
use crate::host::{CallRefused, Host};
use crate::router::choose::look_around;
use crate::vm::Vm;
use crate::{decisions, news};

/// The content type of messages in our own format.
pub(crate) const BINARY: &str = "application/octet-stream";
/// Rewritten with each answer.
pub const HEARD_KEY: &str = "pp/heard";
/// Pools that got token-id prompts.
pub const TOKEN_ID_POOLS_KEY: &str = "pp/token-id-pools";
/// Root contexts tick this often, in milliseconds.
pub const TICK_MS: u32 = 50;
/// While an answer is being applied, the poller's root context ticks this often.
pub const BUSY_TICK_MS: u32 = 2;

/// When this process last heard from the control plane, by this VM's own clock.
#[derive(Debug, Default)]
pub struct Freshness {
    cas: u32,
    since_us: Option<u64>,
}

impl Freshness {
    /// Looks for a sign of life.
    pub fn observe(&mut self, host: &impl Host) {
        let cas = host.shared(HEARD_KEY).cas;
        if cas != self.cas || self.since_us.is_none() {
            self.cas = cas;
            self.since_us = Some(host.monotonic_us());
        }
    }

    /// How long ago that was, in milliseconds, as far as this VM saw.
    #[must_use]
    pub fn age_ms(&self, host: &impl Host) -> u64 {
        let since = self.since_us.unwrap_or_else(|| host.monotonic_us());
        host.monotonic_us().saturating_sub(since) / 1_000
    }
}

/// One tick of a root context: keeps the load's slot alive, contends for the lease, polls.
pub fn tick(vm: &mut Vm, host: &impl Host, config: &Config, root: u32) {
    if let Some(standalone) = &config.standalone {
        standalone.tick(vm, host);
        return;
    }
    vm.freshness.observe(host);
    let now_us = host.monotonic_us();
    let view = vm.heads.read(host);
    vm.loads.beat(host, view.as_deref(), now_us);
    if let Some(view) = view {
        look_around(vm, host, &view);
    }
    vm.health.tick(host, &vm.metrics);
    decisions::hand_over(vm, host);
    let held_before = vm.lease.is_held();
    if !vm.lease.tick(host, now_us / 1_000) {
        vm.poller.stand_down();
    } else {
        if !held_before {
            log::info!("this VM polls the control plane now");
            vm.poller.take_over(host);
            vm.choice.take_over(host, config);
        }
        choice::step(vm, host, config, root);
        poller::step(vm, host, config, root);
        news::step(vm, host, config, root);
        decisions::step(vm, host, config, root);
    }
}

/// The callback of a call. `sizes`: its headers and the bytes of its body, as the host gave them.
pub fn answered(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    call: (u32, u32),
    sizes: (usize, usize),
) {
    let taken = choice::answered(vm, host, config, call, sizes.0)
        || news::answered(vm, host, call, sizes)
        || decisions::answered(vm, host, call, sizes.0);
    if !taken {
        poller::answered(vm, host, config, call, sizes);
    }
}

/// What the control plane is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub content_type: Option<&'a str>,
    pub body: &'a [u8],
    pub timeout_ms: u32,
}

/// Asks the control plane at a position of the list. Gives the call's token.
pub(crate) fn call(
    host: &impl Host,
    config: &Config,
    at: usize,
    request: Request<'_>,
) -> Result<u32, CallRefused> {
    let plane = config.control_planes.get(at).ok_or(CallRefused)?;
    let mut headers = vec![
        (":method", request.method),
        (":path", request.path),
        (":authority", plane.authority.as_str()),
        ("authorization", config.authorization.as_str()),
    ];
    headers.extend(request.content_type.map(|kind| ("content-type", kind)));
    host.call(&plane.cluster, &headers, request.body, request.timeout_ms)
}

/// Sends a body to the control plane in use: a path, and the body's content type. Gives the call's
/// token.
pub(crate) fn post(
    vm: &Vm,
    host: &impl Host,
    config: &Config,
    (path, content_type): (&str, &str),
    (body, timeout_ms): (&[u8], u32),
) -> Result<u32, CallRefused> {
    let request = Request {
        method: "POST",
        path,
        content_type: Some(content_type),
        body,
        timeout_ms,
    };
    call(host, config, vm.choice.current(), request)
}

#[cfg(test)]
mod tests;
