//! The grid of regimes, each run with every policy on the same seeded requests, and what came of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::gateway::Knowledge;
use crate::policy::Policy;
use crate::regime::{Family, LARGE, Regime, SMALL};
use crate::rng::Rng;
use crate::sim::{self, Outcomes, PATIENCE, Setup};
use crate::workload::Trace;

/// What `core::pick` is held against: the better of these.
pub const BASELINES: [Policy; 3] = [Policy::LeastRequest, Policy::TwoChoices, Policy::PrefixOnly];

/// Loads of each base regime.
pub const LOADS: [f64; 4] = [0.2, 0.6, 0.9, 1.3];

/// Goodput must not fall below this much of the better baseline's.
pub const GOODPUT_MIN: f64 = 0.97;
/// Below saturation the 90th percentile of the time to the first token must not rise above this
/// much of the better baseline's.
pub const TTFT_MAX: f64 = 1.05;

/// All regimes but for their load: every family, with the other conditions cycling through their values
/// at periods without a common factor, so that all pairs occur.
#[must_use]
pub fn bases() -> Vec<Regime> {
    let mut all = Vec::new();
    let mut add = |family: Family, prompt: u32, reuse: f64, skew: f64| {
        let i = all.len();
        let per_replica = [0.25, 4.0, 1.0][i % 3];
        let family = match family {
            Family::Groups { .. } => Family::Groups { per_replica },
            Family::Mixed { .. } => Family::Mixed { per_replica },
            Family::Sessions { .. } => Family::Sessions {
                per_replica: [6.0, 20.0, 40.0][i % 3],
            },
        };
        all.push(Regime {
            family,
            replicas: [2, 8, 64, 4, 16, 32, 3][i % 7],
            prompt,
            output: [100, 300, 30, 150, 600][i % 5],
            reuse,
            skew,
            load: 0.0,
            cache: [0.5, 3.0, 1.0, 12.0][(i / 2) % 4],
            hardware: if i % 4 == 1 { LARGE } else { SMALL },
        });
    };
    let (groups, sessions, mixed) = (
        Family::Groups { per_replica: 0.0 },
        Family::Sessions { per_replica: 0.0 },
        Family::Mixed { per_replica: 0.0 },
    );
    for prompt in [500, 1_000, 2_000, 4_000, 16_000, 60_000, 200_000] {
        add(groups, prompt, 0.0, 0.0);
    }
    for reuse in [0.5, 0.9, 0.99] {
        for prompt in [500, 4_000, 20_000, 100_000] {
            for skew in [0.0, 1.2] {
                add(groups, prompt, reuse, skew);
            }
        }
    }
    for reuse in [0.5, 0.8, 0.95] {
        for prompt in [1_500, 10_000, 50_000] {
            for skew in [0.0, 1.2] {
                add(sessions, prompt, reuse, skew);
            }
        }
    }
    for reuse in [0.0, 0.7, 0.95] {
        for prompt in [500, 2_000] {
            add(mixed, prompt, reuse, 0.9);
        }
    }
    all
}

/// Base regimes by [`LOADS`].
#[must_use]
pub fn regimes() -> Vec<Regime> {
    let bases = bases();
    let with = |load| bases.iter().map(move |&base| Regime { load, ..base });
    LOADS.into_iter().flat_map(with).collect()
}

/// Mean and half the width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Estimate {
    /// Mean.
    pub mean: f64,
    /// Half the interval's width.
    pub half: f64,
}

impl Estimate {
    /// Of some values.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        // Student's t at 97.5 % for n - 1 = 1, 2, ...
        const T: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        if n < 2 {
            return Self { mean, half: 0.0 };
        }
        let square: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let deviation = (square / (n - 1) as f64).sqrt();
        let t = T.get(n - 2).copied().unwrap_or(2.0);
        Self {
            mean,
            half: t * deviation / (n as f64).sqrt(),
        }
    }
}

/// One policy in one regime, by seed.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Requests per second.
    pub goodput: Vec<f64>,
    /// Seconds.
    pub ttft_p50: Vec<f64>,
    /// Seconds.
    pub ttft_p90: Vec<f64>,
    /// Seconds.
    pub ttft_p99: Vec<f64>,
    /// Seconds, mean.
    pub latency: Vec<f64>,
    /// Share of prompt tokens.
    pub hit_rate: Vec<f64>,
    /// Most loaded replica over the mean.
    pub imbalance: Vec<f64>,
}

impl Series {
    fn push(&mut self, out: &Outcomes) {
        self.goodput.push(out.goodput);
        self.ttft_p50.push(out.ttft_at(0.5));
        self.ttft_p90.push(out.ttft_at(0.9));
        self.ttft_p99.push(out.ttft_at(0.99));
        self.latency.push(out.latency);
        self.hit_rate.push(out.hit_rate);
        self.imbalance.push(out.imbalance());
    }
}

/// One regime, all policies.
#[derive(Clone, Debug)]
pub struct Row {
    /// The conditions.
    pub regime: Regime,
    /// By policy, in the order asked for.
    pub series: Vec<(Policy, Series)>,
    /// Ours over the baseline of the highest mean goodput.
    pub goodput: Estimate,
    /// That baseline.
    pub goodput_best: Policy,
    /// Ours over the baseline of the lowest mean p90 time to the first token.
    pub ttft: Estimate,
    /// That baseline.
    pub ttft_best: Policy,
}

impl Row {
    /// The time to the first token counts below saturation only.
    #[must_use]
    pub fn below_saturation(&self) -> bool {
        self.regime.load < 1.0
    }

    /// Both bounds hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.goodput.mean >= GOODPUT_MIN && (!self.below_saturation() || self.ttft.mean <= TTFT_MAX)
    }

    fn of(regime: Regime, series: Vec<(Policy, Series)>) -> Self {
        let values = |policy: Policy, ttft: bool| -> &[f64] {
            let found = series.iter().find(|s| s.0 == policy);
            found.map_or(&[], |(_, s)| if ttft { &s.ttft_p90 } else { &s.goodput })
        };
        let mean = |policy, ttft| Estimate::of(values(policy, ttft)).mean;
        let ratio = |best: Policy, ttft| {
            let pairs = values(Policy::Ours, ttft).iter().zip(values(best, ttft));
            let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs).collect();
            Estimate::of(&ratios)
        };
        let best = |ttft: bool| {
            let sign = if ttft { 1.0 } else { -1.0 };
            let by = |a: &Policy, b: &Policy| {
                (sign * mean(*a, ttft)).total_cmp(&(sign * mean(*b, ttft)))
            };
            BASELINES.into_iter().min_by(by).unwrap_or(Policy::Random)
        };
        let (goodput_best, ttft_best) = (best(false), best(true));
        Self {
            regime,
            goodput: ratio(goodput_best, false),
            goodput_best,
            ttft: ratio(ttft_best, true),
            ttft_best,
            series,
        }
    }
}

/// How much to run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Runs of each regime and policy.
    pub seeds: u64,
    /// Requests per replica in a run.
    pub requests_per_replica: usize,
    /// And at least so many in all.
    pub requests_min: usize,
    /// Threads to run on.
    pub threads: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            seeds: 5,
            requests_per_replica: 200,
            requests_min: 6_000,
            threads: 1,
        }
    }
}

/// Runs base regimes at some loads with some policies, `Ours` and the baselines among them.
#[must_use]
pub fn run(
    bases: &[Regime],
    loads: &[f64],
    policies: &[Policy],
    effort: Effort,
    knowledge: Knowledge,
) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..effort.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(base) = bases.get(at) else { return };
                    let found = run_base(base, loads, policies, effort, knowledge);
                    if let Ok(mut rows) = rows.lock() {
                        rows.extend(found.into_iter().map(|row| (at, row)));
                    }
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn run_base(
    base: &Regime,
    loads: &[f64],
    policies: &[Policy],
    effort: Effort,
    knowledge: Knowledge,
) -> Vec<Row> {
    let count = (base.replicas * effort.requests_per_replica).max(effort.requests_min);
    let capacity = sim::capacity(base, &Trace::draw(base, count, 999));
    let mut all: Vec<Vec<(Policy, Series)>> = loads
        .iter()
        .map(|_| policies.iter().map(|&p| (p, Series::default())).collect())
        .collect();
    for seed in 0..effort.seeds {
        let trace = Trace::draw(base, count, Rng::new(seed).next());
        for (&load, series) in loads.iter().zip(&mut all) {
            let regime = Regime { load, ..*base };
            let setup = Setup {
                knowledge,
                rate: capacity * load,
                seed,
                joins: None,
                patience: PATIENCE,
            };
            for (policy, series) in series {
                series.push(&sim::run(&regime, &trace, *policy, setup));
            }
        }
    }
    loads
        .iter()
        .zip(all)
        .map(|(&load, series)| Row::of(Regime { load, ..*base }, series))
        .collect()
}
