//! Says in response headers what was decided, to a client that asks, where the configuration lets it.

use std::borrow::Cow;

use crate::config::Config;
use crate::host::Host;
use crate::router::decide::Plan;

/// The replica that was named first, or would have been in shadow: `endpoint`, or `endpoint#rank`.
pub const REPLICA: &str = "x-prefix-picker-replica";
/// Prompt tokens that it holds, by the table or, where there is none, by what was sent there.
pub const MATCHED: &str = "x-prefix-picker-matched";
/// Why it.
pub const REASON: &str = "x-prefix-picker-reason";
/// What the request costs there, by the picker's estimate, in microseconds.
pub const COST: &str = "x-prefix-picker-cost";

/// What a client that asked is told.
#[derive(Debug, Default)]
pub(super) struct Debug {
    asked: bool,
    headers: Vec<(&'static str, String)>,
}

impl Debug {
    /// Does the request ask, and may it? Only while its headers are held.
    pub(super) fn of_request(host: &impl Host, config: &Config) -> Self {
        let name = config.debug_header.as_deref();
        let value = name.and_then(|name| host.request_header(name));
        let no = ["", "0", "false"];
        Self {
            asked: value.is_some_and(|value| !no.contains(&value.trim())),
            headers: Vec::new(),
        }
    }

    /// What was decided.
    pub(super) fn note(&mut self, plan: &Plan) {
        if !self.asked {
            return;
        }
        let number = |n: u64| n.to_string();
        let named = [
            (REPLICA, plan.replica().map(Cow::into_owned)),
            (MATCHED, plan.matched_tokens.map(|n| number(n.into()))),
            (REASON, Some(plan.reason.as_str().to_owned())),
            (COST, plan.cost_us.map(number)),
        ];
        let named = named.into_iter();
        self.headers = named.filter_map(|(n, v)| Some((n, v?))).collect();
    }

    /// Says it. Only in the response headers' callback.
    pub(super) fn tell(&self, host: &impl Host) {
        for (name, value) in &self.headers {
            host.set_response_header(name, value);
        }
    }
}
