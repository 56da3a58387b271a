//! One run: a trace, a fleet, a policy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::{Engine, Outcome};
use crate::gateway::{Gateway, Knowledge};
use crate::policy::{Policy, Question};
use crate::regime::Regime;
use crate::rng::Rng;
use crate::workload::Trace;

/// Times to the first token are not counted for this part of a run, from its start: caches fill.
/// Completions are: a queue that built up then must not count for whoever built it.
const WARM_UP: f64 = 0.3;
/// A run is cut off at this many times the arrivals' span, should it not have ended, if not told
/// otherwise.
pub const PATIENCE: f64 = 3.0;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What the gateway knows.
    pub knowledge: Knowledge,
    /// Requests per second, all engines together.
    pub rate: f64,
    /// Seed of the policy's draws.
    pub seed: u64,
    /// When the last replica joins, in seconds, and how long its ramp lasts; `None`: from the start.
    pub joins: Option<(f64, f64)>,
    /// See [`PATIENCE`].
    pub patience: f64,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// Requests completed per second while requests arrived.
    pub goodput: f64,
    /// Prompt tokens that hit, over all prompt tokens.
    pub hit_rate: f64,
    /// Seconds to the first token, sorted; infinite where it never came.
    pub ttft: Vec<f64>,
    /// Requests in flight per replica, mean over time.
    pub in_flight: Vec<f64>,
    /// Which replica each request went to.
    pub went: Vec<u16>,
    /// Seconds from request to last token, mean.
    pub latency: f64,
    /// When requests ended, in seconds.
    pub ended: Vec<f64>,
}

impl Outcomes {
    /// A quantile of the time to the first token, in seconds.
    #[must_use]
    pub fn ttft_at(&self, quantile: f64) -> f64 {
        let at = (self.ttft.len() as f64 * quantile) as usize;
        let at = at.min(self.ttft.len().saturating_sub(1));
        self.ttft.get(at).copied().unwrap_or(f64::NAN)
    }

    /// The most loaded replica's requests in flight over the mean.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let mean = self.in_flight.iter().sum::<f64>() / self.in_flight.len() as f64;
        self.in_flight.iter().copied().fold(0.0, f64::max) / mean
    }
}

struct Run<'a> {
    trace: &'a Trace,
    setup: Setup,
    policy: Policy,
    engines: Vec<Engine>,
    gateway: Gateway,
    rng: Rng,
    due: BinaryHeap<Reverse<(Time, usize, u64)>>,
    version: Vec<u64>,
    matched: Vec<(u32, u32)>,
    window: (f64, f64),
    counted: Vec<bool>,
    area: Vec<(f64, f64)>,
    out: Outcomes,
    completed: u64,
    tokens: (u64, u64),
}

/// A time that can be ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Runs a trace to its end.
#[must_use]
pub fn run(regime: &Regime, trace: &Trace, policy: Policy, setup: Setup) -> Outcomes {
    let engine = || Engine::new(regime.hardware, regime.kv_tokens(), trace.segments.len());
    let count = trace.requests.len();
    let span = trace.requests.last().map_or(0.0, |r| r.at) / setup.rate;
    let mut run = Run {
        trace,
        setup,
        policy,
        engines: (0..regime.replicas).map(|_| engine()).collect(),
        gateway: Gateway::new(
            setup.knowledge,
            regime.replicas,
            trace.segments.len(),
            count,
        ),
        rng: Rng::new(setup.seed),
        due: BinaryHeap::new(),
        version: vec![0; regime.replicas],
        matched: Vec::new(),
        window: (span * WARM_UP, span),
        counted: vec![false; count],
        area: vec![(0.0, 0.0); regime.replicas],
        out: Outcomes::default(),
        completed: 0,
        tokens: (0, 0),
    };
    run.all();
    run.finish()
}

impl Run<'_> {
    fn all(&mut self) {
        let mut outcomes = Vec::new();
        let mut next = 0;
        loop {
            let arrival = self.trace.requests.get(next);
            let arrival = arrival.map_or(f64::INFINITY, |r| r.at / self.setup.rate);
            match self.due.peek() {
                Some(&Reverse((Time(now), replica, version))) if now <= arrival => {
                    if now > self.window.1 * self.setup.patience {
                        return;
                    }
                    self.due.pop();
                    if version == self.version[replica] {
                        let due = self.engines[replica].advance(now, self.trace, &mut outcomes);
                        for outcome in outcomes.drain(..) {
                            self.note(outcome, now);
                        }
                        self.after(replica, due, now);
                    }
                }
                None if arrival.is_infinite() => return,
                _ => {
                    self.place(next, arrival);
                    next += 1;
                }
            }
        }
    }

    fn after(&mut self, replica: usize, due: Option<f64>, now: f64) {
        self.gateway.hear(replica, &mut self.engines[replica], now);
        if let Some(due) = due {
            self.version[replica] += 1;
            self.due
                .push(Reverse((Time(due), replica, self.version[replica])));
        }
    }

    fn place(&mut self, id: usize, now: f64) {
        let request = &self.trace.requests[id];
        let (segments, mut matched) = (&self.trace.segments, std::mem::take(&mut self.matched));
        self.gateway.tick(now, &self.engines);
        self.gateway
            .matched(&request.chain, segments, now, &mut matched);
        let all = self.engines.len();
        let mut ramps = vec![1_000; all];
        let mut live = all;
        if let Some((joins, ramp)) = self.setup.joins {
            if now < joins {
                live -= 1;
            }
            ramps[all - 1] = (((now - joins) / ramp).clamp(0.0, 1.0) * 1_000.0) as u16;
        }
        let question = Question {
            prompt: request.prompt,
            key: request.key,
            matched: &matched[..live],
            books: &self.gateway.books[..live],
            ramp_permille: &ramps[..live],
        };
        let replica = self.policy.choose(&question, &mut self.rng);
        self.counted[id] = now >= self.window.0;
        self.out.went.push(replica as u16);
        self.level(replica, now);
        let held = matched[replica].0;
        self.gateway.sent(id, request, replica, held, now);
        self.matched = matched;
        let due = self.engines[replica].arrive(id, now, self.trace);
        self.after(replica, due, now);
    }

    /// Adds up a replica's requests in flight over time, up to now.
    fn level(&mut self, replica: usize, now: f64) {
        let (area, since) = &mut self.area[replica];
        let until = now.clamp(self.window.0, self.window.1);
        let requests = f64::from(self.gateway.books[replica].requests);
        *area += requests * (until - since.max(self.window.0)).max(0.0);
        *since = until;
    }

    fn note(&mut self, outcome: Outcome, now: f64) {
        match outcome {
            Outcome::First(id, hit) => {
                let ttft = self.gateway.first(id, now);
                if self.counted[id] {
                    self.out.ttft.push(ttft);
                    self.tokens.0 += u64::from(hit);
                    self.tokens.1 += u64::from(self.trace.requests[id].prompt);
                }
            }
            Outcome::Last(id) => {
                self.level(usize::from(self.out.went[id]), now);
                let took = self.gateway.last(id, &self.trace.requests[id], now);
                if self.counted[id] {
                    self.out.latency += took;
                }
                self.out.ended.push(now);
                self.completed += u64::from(now <= self.window.1);
            }
        }
    }

    fn finish(mut self) -> Outcomes {
        for replica in 0..self.engines.len() {
            self.level(replica, f64::INFINITY);
        }
        let span = self.window.1 - self.window.0;
        let expected = self.counted.iter().filter(|c| **c).count();
        self.out.latency /= expected as f64;
        self.out.ttft.resize(expected, f64::INFINITY);
        self.out.ttft.sort_by(f64::total_cmp);
        self.out.goodput = self.completed as f64 / self.window.1;
        self.out.hit_rate = self.tokens.0 as f64 / self.tokens.1.max(1) as f64;
        self.out.in_flight = self.area.iter().map(|a| a.0 / span).collect();
        self.out
    }
}

/// Requests per second that least-request can serve: what it completes when more than that comes.
#[must_use]
pub fn capacity(regime: &Regime, trace: &Trace) -> f64 {
    let h = &regime.hardware;
    let prompt = f64::from(regime.prompt);
    let prefill = prompt * (1.0 + prompt / 2.0 / h.attention_tokens) * h.per_prompt_token;
    let mut rate = 4.0 * regime.replicas as f64 / prefill.max(0.004);
    for _ in 0..3 {
        let setup = Setup {
            knowledge: Knowledge::default(),
            rate: rate * 1.3,
            seed: 1,
            joins: None,
            patience: f64::INFINITY,
        };
        let ended = run(regime, trace, Policy::LeastRequest, setup).ended;
        // All along the run there was more to do than could be done.
        let (from, to) = (ended.len() * 3 / 10, ended.len() * 8 / 10);
        rate = match (ended.get(from), ended.get(to)) {
            (Some(start), Some(end)) => (to - from) as f64 / (end - start),
            _ => return rate,
        };
    }
    rate
}

#[cfg(test)]
mod tests;
