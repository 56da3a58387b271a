//! One request, phase by phase.
//!
//! ```text
//! headers --hold--> body ... end of body (or trailers) --decide--> continue
//!    \--not ours, or too long--> continue at once
//! ```
//! Every path continues, with one counted [`Reason`]. The destination header is set once at most,
//! while Envoy still holds the headers: writing a header makes Envoy route again.

pub mod complexity;
pub mod decide;
pub mod gate;
pub mod report;

use crate::config::Config;
use crate::feedback::{Expected, Reading};
use crate::host::Host;
use crate::load::Ticket;
use crate::metrics::{Phase, Timer};
use crate::reason::Reason;
use crate::vm::Vm;
use decide::Plan;
use gate::Gate;
use prefix_picker_core::prompt::Api;

/// The header that Envoy's `override_host` policy reads: endpoints in the order to try.
pub const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";
/// Filter state, in the access log as `%FILTER_STATE(wasm.<name>:PLAIN)%`: why.
pub const STATE_REASON: &str = "prefix_picker.reason";
/// The endpoints named, as in the header.
pub const STATE_ENDPOINT: &str = "prefix_picker.endpoint";
/// Prompt tokens that the engine will find cached there, by the table.
pub const STATE_PREDICTED: &str = "prefix_picker.predicted_tokens";
/// Prompt tokens that the engine did find cached, by its response.
pub const STATE_CACHED: &str = "prefix_picker.cached_tokens";

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
    named: Vec<String>,
    ticket: Option<Ticket>,
    /// The response is a stream: its headers come before the prefill's end.
    streamed: bool,
    /// What its response will be compared with, until it was.
    expected: Option<Expected>,
    reading: Option<Reading>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            stage: Stage::New,
            named: Vec::new(),
            ticket: None,
            streamed: false,
            expected: None,
            reading: None,
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
        // Not a client's to set: it is an instruction to Envoy's balancer.
        if host.request_header(DESTINATION_HEADER).is_some() {
            host.remove_request_header(DESTINATION_HEADER);
        }
        match gate::check(host, config, end_of_stream) {
            Gate::Hold {
                api,
                cap,
                unknown_length,
            } => {
                self.stage = Stage::Holding {
                    api,
                    cap,
                    unknown_length,
                };
                Flow::Pause
            }
            Gate::Pass {
                reason,
                body_bytes: Some(bytes),
            } => {
                let plan = decide::by_load(vm, host, reason, bytes);
                self.go(vm, host, plan)
            }
            Gate::Pass {
                reason,
                body_bytes: None,
            } => self.pass(vm, host, reason),
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
            let plan = decide::by_load(vm, host, reason, bytes as u64);
            return self.go(vm, host, plan);
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
            decide::by_load(vm, host, Reason::NoBody, 0)
        } else {
            decide::by_prompt(vm, host, config, api, &body, &mut timer)
        };
        if writable {
            report::ask(vm, host, config, &plan, &body);
        }
        let flow = self.go(vm, host, plan);
        timer.lap(host, &vm.metrics, Phase::Pick);
        timer.stop(host, &vm.metrics);
        flow
    }

    /// Not for us.
    fn pass(&mut self, vm: &Vm, host: &impl Host, reason: Reason) -> Flow {
        self.stage = Stage::Done;
        vm.metrics.request(host, reason);
        host.set_filter_state(STATE_REASON, reason.as_str().as_bytes());
        Flow::Continue
    }

    /// As planned.
    fn go(&mut self, vm: &mut Vm, host: &impl Host, plan: Plan) -> Flow {
        if let Some(first) = plan.endpoints.first() {
            let endpoints = plan.endpoints.join(",");
            host.set_request_header(DESTINATION_HEADER, &endpoints);
            host.set_filter_state(STATE_ENDPOINT, endpoints.as_bytes());
            host.add(vm.metrics.named, 1);
            if let Some(view) = vm.heads.last().cloned() {
                self.ticket = Some(vm.loads.start(host, &view, first, plan.uncached_tokens));
            }
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

    /// The response's headers: by now it is known who serves the request.
    pub fn on_response_headers(&mut self, vm: &mut Vm, host: &impl Host, end_of_stream: bool) {
        if self.ticket.is_none() {
            return;
        }
        let as_named = self.check_served(vm, host);
        let content_type = host.response_header("content-type").unwrap_or_default();
        self.streamed = content_type.starts_with("text/event-stream");
        let ok = host.response_header(":status").as_deref() == Some("200");
        if !(as_named && ok) || end_of_stream {
            let gone = self.expected.take();
            if let Some(sibling) = gone.and_then(|expected| expected.sibling) {
                vm.settling.failed(sibling);
            }
        } else if self.expected.is_some() {
            let encoding = host.response_header("content-encoding");
            self.reading = Some(Reading::of(&content_type, encoding.as_deref()));
        }
        if end_of_stream || !self.streamed {
            self.prefill_ended(vm, host);
        }
    }

    /// A piece of the response's body: read as it passes, never held.
    pub fn on_response_body(
        &mut self,
        vm: &mut Vm,
        host: &impl Host,
        bytes: usize,
        end_of_stream: bool,
    ) {
        if let Some(reading) = &mut self.reading {
            reading.pass(host, bytes);
        }
        if self.streamed && bytes > 0 {
            self.streamed = false;
            self.prefill_ended(vm, host);
        }
        if end_of_stream {
            self.on_response_end(vm, host);
        }
    }

    /// The response is complete: with the last piece of its body, or its trailers.
    pub fn on_response_end(&mut self, vm: &mut Vm, host: &impl Host) {
        let (Some(expected), Some(reading)) = (self.expected.take(), self.reading.take()) else {
            return;
        };
        let judged = expected.judge(reading.usage());
        if let Some(cached) = judged.cached {
            host.set_filter_state(STATE_CACHED, cached.to_string().as_bytes());
        }
        vm.feedback.count(host, &expected, &judged);
    }

    /// The stream is over, whatever way. May be called again.
    pub fn on_end(&mut self, vm: &mut Vm, host: &impl Host) {
        if matches!(self.stage, Stage::Holding { .. }) {
            self.stage = Stage::Done;
            vm.metrics.request(host, Reason::Aborted);
        }
        let unanswered = self.expected.take().filter(|_| self.reading.is_none());
        if let Some(sibling) = unanswered.and_then(|expected| expected.sibling) {
            vm.settling.failed(sibling);
        }
        if let Some(ticket) = self.ticket.take() {
            let view = vm.heads.last().cloned();
            vm.loads.end(host, view.as_deref(), ticket);
        }
    }

    fn prefill_ended(&mut self, vm: &mut Vm, host: &impl Host) {
        if let Some(sibling) = self.expected.as_ref().and_then(|e| e.sibling) {
            vm.settling.answered(sibling, host.monotonic_us());
        }
        if let Some(ticket) = &mut self.ticket {
            let view = vm.heads.last().cloned();
            vm.loads.prefill_ended(host, view.as_deref(), ticket);
        }
    }

    /// Compares who was named with who serves; the load follows the latter. True: it is the one named
    /// first.
    fn check_served(&mut self, vm: &mut Vm, host: &impl Host) -> bool {
        let Some(ticket) = &mut self.ticket else {
            return false;
        };
        let attempt = host.property(&["upstream", "request_attempt_count"]);
        let attempt = attempt.and_then(|b| Some(u64::from_le_bytes(b.try_into().ok()?)));
        let attempt = attempt.unwrap_or(1).max(1);
        if attempt > 1 {
            host.add(vm.metrics.retried, 1);
        }
        let served = host.property(&["upstream", "address"]);
        let served = served.and_then(|served| String::from_utf8(served).ok());
        let Some(served) = served.filter(|served| !served.is_empty()) else {
            return false;
        };
        let at = usize::try_from(attempt - 1).unwrap_or(usize::MAX);
        if self.named.get(at).is_some_and(|named| *named != served) {
            host.add(vm.metrics.missed_override, 1);
        }
        if ticket.endpoint() != served {
            let view = vm.heads.last().cloned();
            vm.loads.moved(host, view.as_deref(), ticket, &served);
        }
        self.named.first() == Some(&served)
    }
}

#[cfg(test)]
mod tests;
