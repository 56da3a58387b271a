//! Prompts that begin with something new each time, as the control plane counts them
//! ([`crate::starts`]).

use super::item::Item;
use super::samples::samples;

const ID: &str = "traffic.volatile_start";
/// Requests below which nothing is said.
const REQUESTS_MIN: f64 = 20.0;
/// Shares of requests, or of prompt tokens, from which on it is worth a change.
const SHARE_MIN: f64 = 0.05;

/// Judges all pools by the control plane's metrics.
#[must_use]
pub(super) fn judge(metrics: &str) -> Vec<Item> {
    let figure = |name: &str, pool: &str| {
        let mut all = samples(metrics);
        let found = all.find(|sample| sample.name == name && sample.label("pool") == Some(pool));
        found.map_or(0.0, |sample| sample.value)
    };
    let pools =
        samples(metrics).filter(|sample| sample.name == "prefix_picker_prompt_start_requests");
    pools
        .filter_map(|of| Some((of.label("pool")?, of.value)))
        .map(|(pool, requests)| {
            if requests < REQUESTS_MIN {
                let why = format!("only {requests} requests of two blocks or more in the last hour");
                return Item::skipped(ID, pool, why);
            }
            let share = |part: &str, all: &str| figure(part, pool) / figure(all, pool).max(1.0);
            let of_requests = share("prefix_picker_volatile_start_requests", "prefix_picker_prompt_start_requests");
            let of_tokens = share("prefix_picker_volatile_start_tokens", "prefix_picker_prompt_start_tokens");
            let told = format!("{:.0} % of requests and {:.0} % of prompt tokens of the last hour", of_requests * 100.0, of_tokens * 100.0);
            if of_requests.max(of_tokens) < SHARE_MIN {
                return Item::ok(ID, pool, format!("{told} begin with something new in front of what is known"));
            }
            Item::warn(
                ID,
                pool,
                format!("{told} begin with something new each time, though what follows was seen before: nothing of them can be found cached"),
                "look for a timestamp, date, request or session id at the beginning of the system prompt (the first 300 \
                 characters), and move it to the end of the prompt, or leave it out",
            )
        })
        .collect()
}
