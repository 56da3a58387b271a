//! What happens now: the last decisions, and sums over the last ten minutes.
//!
//! Made of what gateways tell of their requests ([`prefix_picker_core::sync::decisions`]) and of their
//! polls. Replicas are known by their places (hashes of their names), so that it does not matter who
//! comes and goes. All of it is bounded and in memory. [`crate::status`] makes an answer of it.
//!
//! Absent here: prompts. Gateways tell hashes only.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use prefix_picker_core::sync::decisions::{Decision, Decisions, Other};

use crate::clock::ms_since;

pub mod gateways;
pub mod hot;
pub mod sources;
pub mod window;

pub use gateways::Gateway;
use gateways::Gateways;
use hot::{Hot, Prefix};
use sources::{Source, Sources};
use window::{Sum, Window};

/// Decisions that are kept.
pub const DECISIONS_MAX: usize = 200;
/// Replicas of which something is kept: as many as there may be, and as many that are gone.
const PLACES_MAX: usize = 2 * crate::config::REPLICAS_MAX;

/// Sums over requests that were looked up and answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests.
    pub requests: u64,
    /// Of those, enforced.
    pub enforced: u64,
    /// Of those, served by another endpoint than the one named first.
    pub elsewhere: u64,
    /// Tokens of their prompts, as the engines say or as estimated.
    pub prompt_tokens: u64,
    /// Of those, not to be computed: found cached, or held by the table where the response did not tell.
    pub saved_tokens: u64,
    /// Requests whose response told what was cached.
    pub told: u64,
    /// Tokens of their prompts.
    pub told_prompt_tokens: u64,
    /// Of those, found cached.
    pub told_cached_tokens: u64,
}

impl Sum for Figures {
    fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.enforced, other.enforced),
            (&mut self.elsewhere, other.elsewhere),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.saved_tokens, other.saved_tokens),
            (&mut self.told, other.told),
            (&mut self.told_prompt_tokens, other.told_prompt_tokens),
            (&mut self.told_cached_tokens, other.told_cached_tokens),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

impl Figures {
    fn of(decision: &Decision) -> Self {
        let told = decision.told;
        let prompt = told.map_or(decision.prompt_tokens, |told| told.prompt_tokens);
        let saved = told.map_or(decision.served_tokens, |told| told.cached_tokens);
        let sum = told.unwrap_or_default();
        Self {
            requests: 1,
            enforced: decision.enforced.into(),
            elsewhere: (decision.enforced && !decision.agreed).into(),
            prompt_tokens: prompt.into(),
            saved_tokens: saved.into(),
            told: told.is_some().into(),
            told_prompt_tokens: sum.prompt_tokens.into(),
            told_cached_tokens: sum.cached_tokens.into(),
        }
    }

    /// Share of prompt tokens found cached, by the responses that told.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        share(self.told_cached_tokens, self.told_prompt_tokens)
    }
}

/// Two counters of an engine's: prompt tokens looked up in its cache, and found there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Looked up.
    pub queries: u64,
    /// Found.
    pub hits: u64,
}

impl Sum for Counted {
    fn add(&mut self, other: &Self) {
        self.queries = self.queries.saturating_add(other.queries);
        self.hits = self.hits.saturating_add(other.hits);
    }
}

impl Counted {
    /// Share found.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        share(self.hits, self.queries)
    }
}

impl Sum for BTreeMap<u8, u64> {
    fn add(&mut self, other: &Self) {
        for (&reason, &more) in other {
            let sum = self.entry(reason).or_default();
            *sum = sum.saturating_add(more);
        }
    }
}

/// A part of a whole, to four digits.
#[must_use]
pub fn share(part: u64, of: u64) -> Option<f64> {
    let parts = u128::from(part) * 10_000 / u128::from(of).max(1);
    let parts = u32::try_from(parts).unwrap_or(u32::MAX);
    (of > 0).then(|| f64::from(parts) / 10_000.0)
}

/// One decision, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Counts up by one.
    pub number: u64,
    /// When it was told.
    pub at_ms: u64,
    /// A code of [`prefix_picker_core::reasons`].
    pub reason: u8,
    /// Named to Envoy; else in shadow.
    pub enforced: bool,
    /// Served by the endpoint chosen, as far as known.
    pub agreed: Option<bool>,
    /// The place of the replica chosen; 0: none.
    pub chosen: u64,
    /// Tokens of the prompt; 0: not known.
    pub prompt_tokens: u32,
    /// Of those, held by the replica chosen by the table; `None`: not looked up.
    pub predicted_tokens: Option<u32>,
    /// Found cached, if the response told.
    pub cached_tokens: Option<u32>,
    /// The response's status; 0: none, or not looked at.
    pub status: u16,
}

/// All of it at one moment.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// The moment, in milliseconds since the start.
    pub now_ms: u64,
    /// Of the last minutes.
    pub recent: Figures,
    /// The same, step by step, the oldest first.
    pub steps: Vec<Figures>,
    /// Since the start.
    pub ever: Figures,
    /// Requests by reason in the last minutes, and since the start.
    pub reasons: BTreeMap<u8, (u64, u64)>,
    /// Requests looked up and answered of the last minutes, by the place of the replica chosen.
    pub places: HashMap<u64, Figures>,
    /// The hottest prefixes.
    pub prefixes: Vec<Prefix>,
    /// Gateways that poll.
    pub gateways: Vec<Gateway>,
    /// What those said who list replicas, by the pool's position.
    pub sources: BTreeMap<usize, Source>,
    /// Requests that gateways could not tell of, since the start.
    pub lost: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Live {
    book: Mutex<Book>,
    start: tokio::time::Instant,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            book: Mutex::default(),
            start: tokio::time::Instant::now(),
        }
    }
}

impl Live {
    fn with<R>(&self, work: impl FnOnce(&mut Book, u64) -> R) -> R {
        let now_ms = ms_since(self.start);
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut book, now_ms)
    }

    /// Takes what a gateway tells.
    pub fn take(&self, decisions: &Decisions) {
        self.with(|book, now_ms| book.take(decisions, now_ms));
    }

    /// A gateway's poll has come; it waits for as long as what is returned lives.
    #[must_use]
    pub fn polling(&self, gateway: &str, version: &str) -> Polling<'_> {
        self.with(|book, now_ms| book.gateways.waits(gateway, version, now_ms));
        Polling {
            live: self,
            gateway: gateway.to_owned(),
            answered: false,
        }
    }

    /// A pool's discovery has told a list, or why it cannot, or a list and what it lacks.
    pub fn discovery_said(&self, pool: usize, is_list: bool, failure: Option<&str>) {
        self.with(|book, now_ms| book.sources.take(pool, is_list, failure, now_ms));
    }

    /// All sums, and so many of the hottest prefixes.
    #[must_use]
    pub fn now(&self, prefixes: usize) -> Now {
        self.with(|book, now_ms| book.now(prefixes, now_ms))
    }

    /// The decisions after this number, the oldest first, and what time it is.
    #[must_use]
    pub fn after(&self, number: u64) -> (Vec<Seen>, u64) {
        self.with(|book, now_ms| {
            let late = book.last.iter().filter(|seen| seen.number > number);
            (late.copied().collect(), now_ms)
        })
    }
}

/// A poll that waits. Dropped without an answer, its gateway has gone away.
#[derive(Debug)]
pub struct Polling<'a> {
    live: &'a Live,
    gateway: String,
    answered: bool,
}

impl Polling<'_> {
    /// It has its answer.
    pub fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let (gateway, answered) = (&self.gateway, self.answered);
        self.live
            .with(|book, now_ms| book.gateways.ended(gateway, answered, now_ms));
    }
}

/// The same with time as a parameter.
#[derive(Debug, Default)]
struct Book {
    number: u64,
    last: VecDeque<Seen>,
    recent: Window<Figures>,
    ever: Figures,
    reasons: Window<BTreeMap<u8, u64>>,
    reasons_ever: BTreeMap<u8, u64>,
    places: HashMap<u64, Window<Figures>>,
    hot: Hot,
    gateways: Gateways,
    sources: Sources,
    lost: u64,
}

impl Book {
    fn take(&mut self, decisions: &Decisions, now_ms: u64) {
        self.lost = self.lost.saturating_add(decisions.lost.into());
        for decision in &decisions.records {
            let figures = Figures::of(decision);
            self.recent.add(now_ms, &figures);
            self.ever.add(&figures);
            self.add_to_place(decision.chosen, &figures, now_ms);
            self.hot.add(decision, now_ms);
            self.show(seen(decision), now_ms);
        }
        for other in &decisions.others {
            self.show(seen_other(other), now_ms);
        }
        let counts = decisions.counts.iter();
        let counts: BTreeMap<u8, u64> = counts.map(|&(code, n)| (code, n.into())).collect();
        if !counts.is_empty() {
            self.reasons.add(now_ms, &counts);
            self.reasons_ever.add(&counts);
        }
    }

    fn add_to_place(&mut self, place: u64, figures: &Figures, now_ms: u64) {
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&place) {
            self.places.retain(|_, window| !window.is_idle(now_ms));
            if self.places.len() >= PLACES_MAX {
                return;
            }
        }
        self.places.entry(place).or_default().add(now_ms, figures);
    }

    fn show(&mut self, seen: Seen, now_ms: u64) {
        self.number += 1;
        if self.last.len() >= DECISIONS_MAX {
            self.last.pop_front();
        }
        self.last.push_back(Seen {
            number: self.number,
            at_ms: now_ms,
            ..seen
        });
    }

    fn now(&mut self, prefixes: usize, now_ms: u64) -> Now {
        self.gateways.forget(now_ms);
        self.places.retain(|_, window| !window.is_idle(now_ms));
        let recent = self.reasons.sum(now_ms);
        let reasons = self.reasons_ever.iter().map(|(&reason, &ever)| {
            let recent = recent.get(&reason).copied().unwrap_or(0);
            (reason, (recent, ever))
        });
        let places = self.places.iter();
        Now {
            now_ms,
            recent: self.recent.sum(now_ms),
            steps: self.recent.steps(now_ms),
            ever: self.ever,
            reasons: reasons.collect(),
            places: places
                .map(|(&at, window)| (at, window.sum(now_ms)))
                .collect(),
            prefixes: self.hot.top(prefixes, now_ms),
            gateways: self.gateways.0.values().cloned().collect(),
            sources: self.sources.0.clone(),
            lost: self.lost,
        }
    }
}

fn seen(decision: &Decision) -> Seen {
    Seen {
        number: 0,
        at_ms: 0,
        reason: decision.reason,
        enforced: decision.enforced,
        agreed: Some(decision.agreed),
        chosen: decision.chosen,
        prompt_tokens: decision
            .told
            .map_or(decision.prompt_tokens, |told| told.prompt_tokens),
        predicted_tokens: Some(decision.chosen_tokens),
        cached_tokens: decision.told.map(|told| told.cached_tokens),
        status: 200,
    }
}

fn seen_other(other: &Other) -> Seen {
    Seen {
        number: 0,
        at_ms: 0,
        reason: other.reason,
        enforced: other.enforced,
        agreed: None,
        chosen: other.chosen,
        prompt_tokens: other.prompt_tokens,
        predicted_tokens: None,
        cached_tokens: None,
        status: other.status,
    }
}

#[cfg(test)]
mod tests;
