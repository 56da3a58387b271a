//! How fast an engine is, from its own totals, and whether its load can be believed.
//!
//! Pure: totals and time come in, rates and loads go out.

use prefix_picker_core::checksum::checksum;
use prefix_picker_core::pick::Rates;
use prefix_picker_core::pick::cost::prefill_work;
use prefix_picker_core::pick::learn::RateLearner;

use super::parse::{Figures, Mean};
use crate::engine::Load;

/// Where the engine does not say what it computed for the requests that it counts, it takes this many
/// of them for prompt tokens less cache hits to be near it: the two are counted at different times.
const REQUESTS_MIN: f64 = 8.0;
/// Throughput is looked at over this long, in milliseconds.
const WIDE_MS: u64 = 2_000;
/// Each such time, one part in so many of the highest throughput seen is forgotten.
const FORGET: u64 = 32;
/// A load that could not be read anew for this long is not believed, in milliseconds.
const LOAD_FRESH_MS: u64 = 3_000;
/// Nor one of an engine that has requests and shows the same text for this long: it runs steps, and
/// each moves some counter.
const FROZEN_MS: u64 = 10_000;

/// Totals of requests that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Prefills {
    requests: f64,
    seconds: f64,
    prompt_tokens: f64,
    /// Of those, computed.
    computed: Option<f64>,
    /// Prompt tokens found in a cache, of all requests.
    hits: f64,
}

impl Prefills {
    fn of(figures: &Figures) -> Option<Self> {
        let time = figures.prefill?;
        Some(Self {
            requests: time.count,
            seconds: time.sum,
            prompt_tokens: figures.prompt_tokens?,
            computed: figures.computed_tokens,
            hits: figures.cache_hits.unwrap_or(0.0),
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            seconds: self.seconds - before.seconds,
            prompt_tokens: self.prompt_tokens - before.prompt_tokens,
            computed: self
                .computed
                .zip(before.computed)
                .map(|(now, was)| now - was),
            hits: self.hits - before.hits,
        }
    }

    fn is_whole(&self) -> bool {
        let enough = match self.computed {
            Some(_) => 1.0,
            None => REQUESTS_MIN,
        };
        self.requests >= enough
    }

    /// Work of the average request, in [`prefill_work`] tokens.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped; `as` saturates
    fn work_each(&self) -> u64 {
        let each = |total: f64| (total / self.requests).clamp(0.0, f64::from(u32::MAX)) as u32;
        let prompt = each(self.prompt_tokens);
        let computed = self.computed.unwrap_or(self.prompt_tokens - self.hits);
        let computed = each(computed).min(prompt);
        prefill_work(prompt - computed, prompt)
    }
}

/// Learns one engine's rates.
#[derive(Debug, Default)]
pub struct Learning {
    learner: RateLearner,
    learned: bool,
    near: Option<Prefills>,
    wide: Option<(u64, Prefills)>,
    /// Throughput seen lately, in tokens per second: it is at least that fast.
    floor: u64,
    between: Option<Mean>,
}

impl Learning {
    /// Takes what a scrape at `now_ms` read. Returns the rates once there is something learned.
    pub fn take(&mut self, figures: &Figures, now_ms: u64) -> Option<Rates> {
        if let Some(now) = Prefills::of(figures) {
            self.prefills(now, now_ms);
        }
        if let Some(now) = figures.between_tokens {
            self.steps(now, figures.running.unwrap_or(0.0));
        }
        self.learned.then(|| self.learner.rates())
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn prefills(&mut self, now: Prefills, now_ms: u64) {
        let restarted = self.near.is_some_and(|was| now.requests < was.requests);
        let (Some(near), Some((since_ms, wide)), false) = (self.near, self.wide, restarted) else {
            (self.near, self.wide) = (Some(now), Some((now_ms, now)));
            return;
        };
        let wall_ms = now_ms.saturating_sub(since_ms);
        if wall_ms >= WIDE_MS {
            self.wide = Some((now_ms, now));
            self.throughput(&now.since(&wide), wall_ms);
        }
        let some = now.since(&near);
        if some.is_whole() {
            self.near = Some(now);
            let work = some.work_each();
            let us = (some.seconds / some.requests * 1e6) as u64;
            let floor_us = work.saturating_mul(1_000_000) / self.floor.max(1);
            self.first_token(work, us.min(floor_us));
        }
    }

    /// Several prompts share a step, so that each alone looks slower than the engine is: it computes at
    /// least what comes out. What came out was mostly computed within the time looked at, if each
    /// request took a small part of it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn throughput(&mut self, all: &Prefills, wall_ms: u64) {
        self.floor -= self.floor / FORGET;
        let short = all.seconds / all.requests.max(1.0) * 8_000.0 < wall_ms as f64;
        if all.requests >= REQUESTS_MIN && short {
            let work = all.work_each().saturating_mul(all.requests as u64);
            self.floor = self.floor.max(work.saturating_mul(1_000) / wall_ms);
        }
    }

    fn first_token(&mut self, work: u64, us: u64) {
        let before = self.learner;
        self.learner.observe_first_token(work, us);
        self.learned |= self.learner != before;
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn steps(&mut self, now: Mean, running: f64) {
        let Some(was) = self.between.filter(|was| was.count <= now.count) else {
            self.between = Some(now);
            return;
        };
        let (tokens, seconds) = (now.count - was.count, now.sum - was.sum);
        if tokens >= 8.0 {
            self.between = Some(now);
            let before = self.learner;
            let us = (seconds * 1e6) as u64;
            self.learner
                .observe_answer(tokens as u32, us, running as u32);
            self.learned |= self.learner != before;
        }
    }
}

/// Whether an engine's load can still be believed.
#[derive(Debug, Default)]
pub struct Belief {
    read_ms: Option<u64>,
    text: Option<(u64, u64)>,
}

impl Belief {
    /// Takes a scrape at `now_ms`: the metrics' text, if there was one, and the load in it. Returns what
    /// to believe: an idle engine where nothing is known, so that gateways go by their own requests;
    /// `None`: as before.
    pub fn take(&mut self, text: Option<&str>, load: Option<Load>, now_ms: u64) -> Option<Load> {
        let Some((text, load)) = text.zip(load) else {
            let old = |at: u64| now_ms.saturating_sub(at) >= LOAD_FRESH_MS;
            return self.read_ms.is_none_or(old).then(Load::default);
        };
        self.read_ms = Some(now_ms);
        let sum = checksum(&[text.as_bytes()]);
        let since_ms = match self.text {
            Some((known, since_ms)) if known == sum => since_ms,
            _ => now_ms,
        };
        self.text = Some((sum, since_ms));
        let frozen = now_ms.saturating_sub(since_ms) >= FROZEN_MS && load.running > 0;
        Some(if frozen { Load::default() } else { load })
    }
}

#[cfg(test)]
mod tests;
