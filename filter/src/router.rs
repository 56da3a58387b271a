//! One request, phase by phase.
//!
//! ```text
//! headers --hold--> body ... end of body (or trailers) --decide--> continue
//!    \--not ours, or too long--> continue at once
//! ```
//! Every path continues, with one counted [`Reason`]. The destination header (and, where replicas are
//! ranks of an engine, the rank's) is set once at most, while Envoy still holds the headers: writing a
//! header makes Envoy route again.
//!
//! With `hold_headers: false` the headers go on at once and only the body is held, for gateways that
//! cannot set Envoy's `allow_on_headers_stop_iteration`. They wait at a buffer filter behind us, out of
//! our reach; the destination is then put into filter state, where Envoy reads it behind that filter.

pub mod choose;
pub mod debug;
pub mod decide;
pub mod decided;
pub mod gate;
pub mod held;
pub mod history;
pub mod missed;
pub mod report;
mod response;
pub mod stored_answers;
mod tried;

use std::borrow::Cow;

use crate::config::Config;
use crate::decisions;
use crate::feedback::{Expected, Reading};
use crate::health::outcome::Had;
use crate::host::Host;
use crate::load::{Brings, Ticket};
use crate::metrics::{Phase, Timer};
use crate::mode::Mode;
use crate::news;
use crate::reason::Reason;
use crate::recent::{Claimed, SENT};
use crate::session;
use crate::vm::Vm;
use debug::Debug;
use decide::Plan;
use decided::Decided;
use gate::Gate;
use prefix_picker_core::prompt::Api;
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::decisions::Other;
use tried::Tried;

/// The header that Envoy's `override_host` policy reads: endpoints in the order to try.
pub const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";
/// The header by which vLLM is asked for a data-parallel rank.
pub const RANK_HEADER: &str = "x-data-parallel-rank";
/// Filter state, in the access log as `%FILTER_STATE(wasm.<name>:PLAIN)%`: why.
pub const STATE_REASON: &str = "prefix_picker.reason";
/// The endpoints named, as in the header; in shadow, those that would have been.
pub const STATE_ENDPOINT: &str = "prefix_picker.endpoint";
/// Prompt tokens that the engine will find cached there, by the table.
pub const STATE_PREDICTED: &str = "prefix_picker.predicted_tokens";
/// The destination header's value, where the headers went on before it was known. Nothing else is.
pub const STATE_PICK: &str = "prefix_picker.pick";
/// The same of the rank's.
pub const STATE_RANK: &str = "prefix_picker.rank";
/// Prompt tokens that the engine did find cached, by its response.
pub const STATE_CACHED: &str = "prefix_picker.cached_tokens";

/// What was sent counts as held for so long beyond the expected prefill, in milliseconds, if no answer
/// begins before.
const SENT_MS: u64 = 10_000;
/// And in all no longer than this.
const SENT_MAX_MS: u64 = 60_000;

/// What Envoy does next with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Goes on to the next filter.
    Continue,
    /// Waits for more.
    Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The headers have not come.
    New,
    /// Held until the body's end. While that has not come, at most `cap` bytes are waited on.
    Holding {
        api: Api,
        cap: u64,
        unknown_length: bool,
    },
    /// Decided and counted.
    Done,
}

/// One request's state.
#[derive(Debug)]
pub struct Request {
    stage: Stage,
    /// The headers went on before the body came: they can be neither read nor written any more.
    headers_gone: bool,
    /// The session that the headers name.
    session: Option<u64>,
    named: Vec<String>,
    /// The name of the replica chosen.
    replica: Option<String>,
    /// The rank that all of `named` were asked for; in shadow none is.
    dp_rank: Option<u16>,
    ticket: Option<Ticket>,
    /// What was noted as sent, until it is known who serves it.
    claimed: Vec<Claimed>,
    /// What was noted for requests to come, until it is known who serves it.
    kept: Option<Claimed>,
    /// What may be done with it.
    mode: Mode,
    /// In shadow: tokens that the chosen replica holds, by the table.
    shadow: Option<u64>,
    /// Its interface, once that is known.
    api: Option<Api>,
    /// The response is a stream: its headers come before the prefill's end.
    streamed: bool,
    /// Who keeps the answer, until that is noted.
    keeper: Option<String>,
    tried: Tried,
    debug: Debug,
    /// What its response will be compared with, until it was.
    expected: Option<Expected>,
    reading: Option<Reading>,
    /// What will be told of it.
    decided: Option<Box<Decided>>,
    /// What will be told of it otherwise.
    other: Option<Other>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            stage: Stage::New,
            headers_gone: false,
            session: None,
            named: Vec::new(),
            replica: None,
            dp_rank: None,
            ticket: None,
            claimed: Vec::new(),
            kept: None,
            mode: Mode::Enforce,
            shadow: None,
            api: None,
            streamed: false,
            keeper: None,
            tried: Tried::default(),
            debug: Debug::default(),
            expected: None,
            reading: None,
            decided: None,
            other: None,
        }
    }
}

impl Request {
    /// The request's headers.
    pub fn on_request_headers(
        &mut self,
        vm: &mut Vm,
        host: &impl Host,
        config: &Config,
        end_of_stream: bool,
    ) -> Flow {
        // Not a client's to set: instructions to Envoy's balancer, and to the engine's.
        // Unseen: a value that is empty or no text could hide others of the same name.
        for header in [DESTINATION_HEADER, RANK_HEADER] {
            host.remove_request_header(header);
        }
        let mode = Mode::of_request(host, config, vm.random.draw());
        self.mode = mode.unwrap_or_else(|field| {
            if vm.odd_routes.is_over(host) {
                log::warn!(
                    "a route's metadata has a prefix-picker.{field} that cannot be read: its requests are \
                     in shadow (mode: enforce, shadow or off; percent: 0 to 100)"
                );
            }
            Mode::Shadow
        });
        if self.mode == Mode::Off {
            return self.pass(vm, host, Reason::Off);
        }
        self.debug = Debug::of_request(host, config);
        self.session = session::of_headers(host);
        match gate::check(host, config, end_of_stream) {
            Gate::Hold {
                api,
                cap,
                unknown_length,
            } => {
                self.api = Some(api);
                self.stage = Stage::Holding {
                    api,
                    cap,
                    unknown_length,
                };
                self.headers_gone = !config.hold_headers;
                if config.hold_headers {
                    Flow::Pause
                } else {
                    Flow::Continue
                }
            }
            Gate::Pass {
                reason,
                body_bytes: Some(bytes),
            } => {
                let plan = decide::by_load(vm, host, reason, bytes, self.session);
                self.go(vm, host, plan, Had::of_unread(end_of_stream))
            }
            Gate::Pass {
                reason,
                body_bytes: None,
            } => {
                self.debug.note(&Plan::nothing(reason));
                self.pass(vm, host, reason)
            }
        }
    }

    /// A piece of the body; `bytes` is what is there of it by now.
    pub fn on_request_body(
        &mut self,
        vm: &mut Vm,
        host: &impl Host,
        config: &Config,
        bytes: usize,
        end_of_stream: bool,
    ) -> Flow {
        let Stage::Holding {
            api,
            cap,
            unknown_length,
        } = self.stage
        else {
            return Flow::Continue;
        };
        // What ends here does not wait in Envoy's buffer for more.
        let limit = if end_of_stream {
            config.max_body_bytes
        } else {
            cap
        };
        if bytes as u64 > limit {
            let reason = if unknown_length {
                Reason::ChunkedTooLarge
            } else {
                Reason::BodyTooLarge
            };
            let plan = decide::by_load(vm, host, reason, bytes as u64, self.session);
            return self.go(vm, host, plan, Had::of_unread(end_of_stream));
        }
        if !end_of_stream {
            return Flow::Pause;
        }
        self.decide(vm, host, config, api, bytes, true)
    }

    /// Trailers: with them, no piece of the body was the last one.
    pub fn on_request_trailers(&mut self, vm: &mut Vm, host: &impl Host, config: &Config) -> Flow {
        let Stage::Holding { api, cap, .. } = self.stage else {
            return Flow::Continue;
        };
        let bytes = usize::try_from(cap).unwrap_or(usize::MAX);
        self.decide(vm, host, config, api, bytes, false)
    }

    fn decide(
        &mut self,
        vm: &mut Vm,
        host: &impl Host,
        config: &Config,
        api: Api,
        bytes: usize,
        writable: bool,
    ) -> Flow {
        let timed = config.timing_sample != 0 && vm.untimed == 0;
        vm.untimed = if timed {
            config.timing_sample - 1
        } else {
            vm.untimed.saturating_sub(1)
        };
        let mut timer = Timer::start(host, timed);
        let body = host.request_body(bytes);
        timer.lap(host, &vm.metrics, Phase::Copy);
        let plan = if body.is_empty() {
            decide::by_load(vm, host, Reason::NoBody, 0, self.session)
        } else {
            let read = (api, body.as_slice(), self.session);
            decide::by_prompt(vm, host, config, read, &mut timer)
        };
        // What is put into a body makes it longer, which its header must say.
        if writable && self.mode == Mode::Enforce && !self.headers_gone {
            report::ask(vm, host, config, &plan, &body);
        }
        let flow = self.go(vm, host, plan, Had::of_body(body.len()));
        timer.lap(host, &vm.metrics, Phase::Pick);
        timer.stop(host, &vm.metrics);
        flow
    }

    /// Not for us.
    fn pass(&mut self, vm: &mut Vm, host: &impl Host, reason: Reason) -> Flow {
        self.stage = Stage::Done;
        vm.metrics.request(host, reason);
        decisions::count(vm, reason);
        host.set_filter_state(STATE_REASON, reason.as_str().as_bytes());
        Flow::Continue
    }

    /// Tells Envoy where to, and the engine for which rank.
    fn name(&self, host: &impl Host, endpoints: &str) {
        let rank = self.dp_rank.map(|rank| rank.to_string());
        if self.headers_gone {
            host.set_filter_state(STATE_PICK, endpoints.as_bytes());
            if let Some(rank) = rank {
                host.set_filter_state(STATE_RANK, rank.as_bytes());
            }
        } else {
            host.set_request_header(DESTINATION_HEADER, endpoints);
            if let Some(rank) = rank {
                host.set_request_header(RANK_HEADER, &rank);
            }
        }
    }

    /// As planned. `had`: how much of the request an endpoint will have.
    fn go(&mut self, vm: &mut Vm, host: &impl Host, plan: Plan, had: Had) -> Flow {
        self.debug.note(&plan);
        self.other = Some(Other {
            enforced: self.mode == Mode::Enforce,
            reason: plan.reason.code(),
            prompt_tokens: plan.prompt_tokens,
            ..Other::default()
        });
        self.replica = plan.replica().map(Cow::into_owned);
        if let Some(first) = &self.replica {
            let endpoints = plan.endpoints.join(",");
            if self.mode == Mode::Enforce {
                self.dp_rank = plan.dp_rank;
                self.name(host, &endpoints);
                host.add(vm.metrics.named, 1);
            } else {
                host.add(vm.metrics.shadowed, 1);
                self.shadow = plan.predicted_tokens.map(u64::from);
            }
            host.set_filter_state(STATE_ENDPOINT, endpoints.as_bytes());
            self.tried = Tried::sent(host, self.mode == Mode::Enforce, had);
            if let Some(view) = vm.heads.last().cloned() {
                let prefill_us = (!plan.streamed).then(|| plan.prefill_ms.saturating_mul(1_000));
                let brings = Brings {
                    tokens: plan.uncached_tokens,
                    context: plan.prompt_tokens.into(),
                    prefill_us,
                };
                self.ticket = Some(vm.loads.start(host, &view, first, brings));
                vm.note_ours(host, &view, first);
            }
            let decided = plan
                .decided
                .map(|draft| draft.sent(self.mode, place(first), plan.reason));
            self.decided = decided.map(Box::new);
            if let Some(other) = &mut self.other {
                other.chosen = place(first);
            }
            let ttl_ms = SENT_MS.saturating_add(plan.prefill_ms).min(SENT_MAX_MS);
            let claim = |look| SENT.claim(host, look, place(first), ttl_ms);
            self.claimed = plan.sent.into_iter().map(claim).collect();
            for claimed in &self.claimed {
                news::note(vm, host, claimed);
            }
            self.kept = plan.history.map(|history| history.claim(host, first));
        }
        if let Some(predicted) = plan.predicted_tokens {
            host.set_filter_state(STATE_PREDICTED, predicted.to_string().as_bytes());
            host.add(vm.metrics.matched_tokens, u64::from(predicted));
            host.add(vm.metrics.prompt_tokens, u64::from(plan.prompt_tokens));
        }
        self.named = plan.endpoints;
        self.expected = plan.expected;
        self.pass(vm, host, plan.reason)
    }
}

#[cfg(test)]
pub(crate) mod tests;
