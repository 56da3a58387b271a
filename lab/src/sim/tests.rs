use super::*;
use crate::regime::{Family, SMALL};

fn regime() -> Regime {
    Regime {
        family: Family::Groups { per_replica: 2.0 },
        replicas: 4,
        prompt: 4_000,
        output: 100,
        reuse: 0.9,
        skew: 0.9,
        load: 0.5,
        cache: 2.0,
        hardware: SMALL,
    }
}

fn setup(rate: f64) -> Setup {
    Setup {
        knowledge: Knowledge::default(),
        rate,
        seed: 7,
        joins: None,
        patience: PATIENCE,
    }
}

#[test]
fn every_request_is_served_and_counted_once() {
    let trace = Trace::draw(&regime(), 1_000, 3);
    for policy in Policy::ALL {
        let out = run(&regime(), &trace, policy, setup(20.0));
        assert_eq!(out.went.len(), 1_000);
        assert!(out.ttft.iter().all(|t| t.is_finite()), "{policy:?}");
        assert!(out.ttft.len() > 600 && out.ttft.len() < 800);
        assert!(
            (out.goodput - 20.0).abs() < 3.0,
            "{policy:?} {}",
            out.goodput
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = Trace::draw(&regime(), 600, 3);
    let one = run(&regime(), &trace, Policy::Ours, setup(30.0));
    let two = run(&regime(), &trace, Policy::Ours, setup(30.0));
    assert_eq!(one.went, two.went);
    assert_eq!(one.ttft, two.ttft);
}

#[test]
fn capacity_is_where_the_queue_begins_to_grow() {
    let trace = Trace::draw(&regime(), 3_000, 3);
    let capacity = capacity(&regime(), &trace);
    let below = run(
        &regime(),
        &trace,
        Policy::LeastRequest,
        setup(capacity * 0.8),
    );
    let above = run(
        &regime(),
        &trace,
        Policy::LeastRequest,
        setup(capacity * 1.3),
    );
    assert!(
        (below.goodput / (capacity * 0.8) - 1.0).abs() < 0.08,
        "{}",
        below.goodput / capacity
    );
    // The cold start counts, and what is not done when the last one comes does not.
    let served = above.goodput / capacity;
    assert!((0.8..1.05).contains(&served), "{served}");
    let waits = |out: &Outcomes| out.ttft_at(0.9);
    assert!(waits(&above) > 10.0 * waits(&below));
}

#[test]
fn rates_are_learned() {
    let trace = Trace::draw(&regime(), 2_000, 3);
    let out = run(&regime(), &trace, Policy::Ours, setup(20.0));
    assert!(out.hit_rate > 0.7, "{}", out.hit_rate);
}
