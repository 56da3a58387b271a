//! The response: who serves, when the prefill ends, what the engine says, and the end.

use prefix_picker_core::prompt::Api;
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::replica_name;
use prefix_picker_core::usage::Cached;

use super::{Request, STATE_CACHED, Stage, history, stored_answers};
use crate::decisions;
use crate::feedback::Reading;
use crate::health::outcome::Attempts;
use crate::host::Host;
use crate::mode::Mode;
use crate::news;
use crate::reason::Reason;
use crate::recent::SENT;
use crate::vm::Vm;

/// Events of a prompt are there within this time after its answer began, in milliseconds.
const EVENTS_MS: u64 = 1_000;

impl Request {
    /// The response's headers: by now it is known who serves the request.
    pub fn on_response_headers(&mut self, vm: &mut Vm, host: &impl Host, end_of_stream: bool) {
        self.debug.tell(host);
        let keeps = self.api == Some(Api::Responses);
        if self.ticket.is_none() && !keeps {
            return;
        }
        let status = host.response_header(":status").unwrap_or_default();
        if let (Some(other), Ok(status)) = (&mut self.other, status.parse()) {
            other.status = status;
        }
        let attempts = Attempts::read(host, status.parse().ok());
        self.tried.learn(vm, host, &self.named, &attempts);
        let as_named = self.check_served(vm, host, &attempts, status.starts_with('2'));
        let served = attempts.served.as_deref().filter(|_| status == "200");
        match (&mut self.decided, served) {
            (Some(decided), Some(served)) => {
                let as_chosen = self.named.first().is_some_and(|named| named == served);
                decided.answered(served, as_chosen);
            }
            _ => self.decided = None,
        }
        let content_type = host.response_header("content-type").unwrap_or_default();
        self.streamed = content_type.starts_with("text/event-stream");
        let readable = status == "200" && !end_of_stream;
        if !(as_named && readable) {
            let gone = self.expected.take();
            if let Some(sibling) = gone.and_then(|expected| expected.sibling) {
                sibling.failed(host);
            }
        }
        let keeper = attempts.served.filter(|_| keeps && readable);
        self.keeper = keeper.map(|served| replica_name(&served, self.dp_rank).into_owned());
        self.shadow = self.shadow.filter(|_| readable);
        let told_of = self.decided.is_some() && readable;
        if self.expected.is_some() || self.keeper.is_some() || self.shadow.is_some() || told_of {
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
            if let (Some(keeper), Some(id)) = (&self.keeper, reading.id()) {
                stored_answers::note(host, id, keeper);
                self.keeper = None;
            }
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
        let Some(reading) = self.reading.take() else {
            return;
        };
        if let Some(decided) = &mut self.decided {
            decided.told(reading.usage());
        }
        if let (Some(predicted), Some(usage)) = (self.shadow.take(), reading.usage())
            && let Cached::Tokens(cached) = usage.cached
        {
            host.add(vm.metrics.shadow_predicted, predicted);
            host.add(vm.metrics.shadow_cached, cached);
        }
        let Some(expected) = self.expected.take() else {
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
            decisions::count(vm, Reason::Aborted);
        }
        let unanswered = self.expected.take().filter(|_| self.reading.is_none());
        if let Some(sibling) = unanswered.and_then(|expected| expected.sibling) {
            sibling.failed(host);
        }
        if let Some(ticket) = self.ticket.take() {
            let view = vm.heads.last().cloned();
            vm.loads.end(host, view.as_deref(), ticket);
        }
        self.tried.end(vm, host, &self.named);
        // Nobody answered: nobody has computed it.
        self.take_back(host);
        let other = self.other.take();
        match self.decided.take().and_then(|decided| decided.ended()) {
            Some(ended) => decisions::note(vm, host, ended),
            None => decisions::note_other(vm, other),
        }
    }

    fn take_back(&mut self, host: &impl Host) {
        for claimed in self.claimed.drain(..) {
            SENT.release(host, &claimed);
        }
        if let Some(kept) = self.kept.take() {
            history::BOARD.release(host, &kept);
        }
    }

    fn prefill_ended(&mut self, vm: &mut Vm, host: &impl Host) {
        if let Some(sibling) = self.expected.as_ref().and_then(|e| e.sibling) {
            sibling.answered(host);
        }
        for claimed in self.claimed.drain(..) {
            SENT.settle(host, &claimed, EVENTS_MS);
        }
        // It has computed it: that stands.
        self.kept = None;
        if let Some(ticket) = &self.ticket {
            let view = vm.heads.last().cloned();
            vm.loads.prefill_ended(host, view.as_deref(), ticket);
        }
    }

    /// Compares who was named with who serves; the load follows the latter, and what was noted as
    /// sent does so if the request was `taken` and not refused. True: it is the one named first. In
    /// shadow an engine chooses among its ranks, and none of them is known to serve.
    fn check_served(
        &mut self,
        vm: &mut Vm,
        host: &impl Host,
        attempts: &Attempts,
        taken: bool,
    ) -> bool {
        if !taken {
            self.take_back(host);
        }
        let claimed = std::mem::take(&mut self.claimed);
        let (Some(ticket), Some(served)) = (&self.ticket, attempts.served.as_deref()) else {
            self.claimed = claimed;
            self.take_back(host);
            return false;
        };
        if attempts.count > 1 {
            host.add(vm.metrics.retried, 1);
        }
        let at = attempts.last();
        if self.mode == Mode::Shadow {
            let agreed = self.named.first().is_some_and(|named| named == served);
            host.add(vm.metrics.shadow_agreed, u64::from(agreed));
        } else if let Some(named) = self.named.get(at).filter(|named| *named != served) {
            host.add(vm.metrics.missed_override, 1);
            if let Some(line) = vm.missed.note(host, named, served) {
                log::warn!("{line}");
            }
        }
        let served = replica_name(served, self.dp_rank);
        let view = vm.heads.last().cloned();
        if vm.loads.moved(host, view.as_deref(), ticket, &served) {
            let moved = |claimed| SENT.moved(host, claimed, place(&served));
            self.claimed = claimed.into_iter().map(moved).collect();
            for claimed in &self.claimed {
                news::note(vm, host, claimed);
            }
            let moved = |kept| history::BOARD.moved(host, kept, place(&served));
            self.kept = self.kept.take().map(moved);
        } else {
            self.claimed = claimed;
        }
        self.replica.as_deref() == Some(&*served)
    }
}
