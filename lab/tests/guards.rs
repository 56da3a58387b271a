//! The guards, on whole fleets: hot prefixes, replicas that join, prompts that share nothing, and a part
//! of the grid. `make lab` runs all of it.

use prefix_picker_lab::gateway::Knowledge;
use prefix_picker_lab::grid::{self, BASELINES, Effort, GOODPUT_MIN, TTFT_MAX};
use prefix_picker_lab::policy::Policy;
use prefix_picker_lab::regime::{Family, Regime, SMALL};
use prefix_picker_lab::sim::{self, Outcomes, PATIENCE, Setup};
use prefix_picker_lab::workload::Trace;

fn regime(family: Family, prompt: u32, reuse: f64) -> Regime {
    Regime {
        family,
        replicas: 8,
        prompt,
        output: 150,
        reuse,
        skew: 0.0,
        load: 0.0,
        cache: 4.0,
        hardware: SMALL,
    }
}

fn run(regime: &Regime, trace: &Trace, policy: Policy, rate: f64) -> Outcomes {
    let setup = Setup {
        knowledge: Knowledge::default(),
        rate,
        seed: 11,
        joins: None,
        patience: PATIENCE,
    };
    sim::run(regime, trace, policy, setup)
}

/// One hot prefix at three times what one replica can serve.
#[test]
fn a_hot_prefix_spreads_and_still_hits() {
    let regime = regime(Family::Groups { per_replica: 0.125 }, 6_000, 0.9);
    for seed in 1..4 {
        let trace = Trace::draw(&regime, 6_000, seed);
        let one = Regime {
            replicas: 1,
            ..regime
        };
        let rate = 3.0 * sim::capacity(&one, &Trace::draw(&one, 1_500, seed));
        let ours = run(&regime, &trace, Policy::Ours, rate);
        let theirs = run(&regime, &trace, Policy::LeastRequest, rate);
        assert!(ours.imbalance() <= 1.5, "{}", ours.imbalance());
        assert!(ours.goodput >= 0.97 * theirs.goodput);
        assert!(ours.hit_rate >= 0.8, "{}", ours.hit_rate);
    }
}

/// The most requests that one replica got, over the mean.
fn share(out: &Outcomes) -> f64 {
    let mut counts = vec![0.0; out.in_flight.len()];
    for &to in &out.went {
        counts[usize::from(to)] += 1.0;
    }
    counts.iter().copied().fold(0.0, f64::max) * counts.len() as f64 / out.went.len() as f64
}

/// Prompts that share nothing are spread as least-request spreads them, and are answered as soon.
#[test]
fn unique_prompts_go_by_load() {
    let regime = regime(Family::Groups { per_replica: 1.0 }, 2_000, 0.0);
    let trace = Trace::draw(&regime, 6_000, 5);
    for rate in [20.0, 50.0] {
        let ours = run(&regime, &trace, Policy::Ours, rate);
        let theirs = run(&regime, &trace, Policy::LeastRequest, rate);
        let (a, b) = (share(&ours), share(&theirs));
        assert!(a <= 1.05 * b, "{a} {b}");
        // By work, not by number, so not quite as even in number.
        assert!(ours.imbalance() <= 1.1 * theirs.imbalance());
        assert!(ours.ttft_at(0.9) <= 1.05 * theirs.ttft_at(0.9));
        assert!(ours.ttft_at(0.5) <= 1.05 * theirs.ttft_at(0.5));
    }
}

/// A replica that joins under steady load has its share within 30 seconds, and never much more.
#[test]
fn a_new_replica_is_neither_starved_nor_flooded() {
    let families = [
        (Family::Groups { per_replica: 1.0 }, 2_000, 0.0),
        (Family::Groups { per_replica: 2.0 }, 4_000, 0.9),
        (Family::Sessions { per_replica: 10.0 }, 4_000, 0.8),
    ];
    for (family, prompt, reuse) in families {
        let regime = regime(family, prompt, reuse);
        let trace = Trace::draw(&regime, 12_000, 3);
        let rate = 0.6 * sim::capacity(&regime, &trace);
        let joins = 4_000.0 / rate;
        let setup = Setup {
            knowledge: Knowledge::default(),
            rate,
            seed: 11,
            joins: Some((joins, 30.0)),
            patience: PATIENCE,
        };
        let out = sim::run(&regime, &trace, Policy::Ours, setup);
        let share = |from: f64, to: f64| {
            let sent = trace.requests.iter().zip(&out.went);
            let sent = sent.filter(|(r, _)| (from..to).contains(&(r.at / rate - joins)));
            let all: Vec<bool> = sent.map(|(_, &to)| to == 7).collect();
            all.iter().filter(|new| **new).count() as f64 * 8.0 / all.len() as f64
        };
        let settled = share(25.0, 45.0);
        let first = share(0.0, 30.0);
        assert!((0.5..1.2).contains(&settled), "{family:?}: {settled}");
        assert!((0.1..1.2).contains(&first), "{family:?}: {first}");
    }
}

/// A part of the grid, in little: more noise than in the whole, so a little more room.
#[test]
fn affinity_does_not_hurt() {
    let bases: Vec<Regime> = grid::bases()
        .into_iter()
        .filter(|base| base.replicas <= 8)
        .step_by(3)
        .collect();
    assert!(bases.len() >= 8);
    let policies: Vec<Policy> = std::iter::once(Policy::Ours).chain(BASELINES).collect();
    let effort = Effort {
        seeds: 3,
        requests_per_replica: 200,
        requests_min: 2_000,
        threads: 2,
    };
    let rows = grid::run(&bases, &[0.6, 1.3], &policies, effort, Knowledge::default());
    for row in &rows {
        let name = row.regime.name();
        assert!(
            row.goodput.mean >= GOODPUT_MIN - 0.02,
            "{name}: {:?}",
            row.goodput
        );
        if row.below_saturation() {
            assert!(row.ttft.mean <= TTFT_MAX + 0.05, "{name}: {:?}", row.ttft);
        }
    }
}
