//! What became of a request's attempts: learned once, from the answer's headers or at its end.

use crate::health::outcome::{Attempts, Had};
use crate::host::Host;
use crate::vm::Vm;

/// A request on its way.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// When it was sent, in milliseconds since 1970, until it is known what became of it.
    sent_ms: Option<u64>,
    /// The endpoints named were those that were tried, as far as Envoy obeyed.
    as_named: bool,
    /// How much of it an endpoint had.
    had: Had,
    /// Whose answer has begun.
    answers: Option<String>,
}

impl Tried {
    /// It is sent: to the endpoints named, or in shadow to whichever Envoy takes.
    pub(super) fn sent(host: &impl Host, as_named: bool, had: Had) -> Self {
        Self {
            sent_ms: Some(host.unix_time_ms()),
            as_named,
            had,
            answers: None,
        }
    }

    /// An answer begins, or there will be none.
    pub(super) fn learn(
        &mut self,
        vm: &mut Vm,
        host: &impl Host,
        named: &[String],
        attempts: &Attempts,
    ) {
        let Some(sent_ms) = self.sent_ms.take() else {
            return;
        };
        let named = if self.as_named { named } else { &[] };
        let outcomes = attempts.outcomes(named, self.had);
        vm.health.learn(host, &vm.metrics, &outcomes, sent_ms);
        if let Some(served) = attempts.served.as_ref().filter(|_| attempts.answered) {
            vm.health.begins(served);
            self.answers = Some(served.clone());
        }
    }

    /// It is over.
    pub(super) fn end(&mut self, vm: &mut Vm, host: &impl Host, named: &[String]) {
        if self.sent_ms.is_some() {
            self.learn(vm, host, named, &Attempts::read(host, None));
        }
        if let Some(endpoint) = self.answers.take() {
            vm.health.ends(&endpoint);
        }
    }
}
