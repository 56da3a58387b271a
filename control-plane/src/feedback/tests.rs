use std::time::{Duration, Instant};

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::sync::{Poll, PoolFeedback};

use super::ledger::{Counters, GATEWAYS_MAX, Ledger};
use super::*;

fn totals(exact: u64, under: u64) -> PoolFeedback {
    PoolFeedback {
        pool: "p".into(),
        exact,
        under,
        telling: exact + under,
        predicted_tokens: exact * 640,
        cached_tokens: (exact + under) * 640,
        under_tokens: under * 640,
        ..PoolFeedback::default()
    }
}

fn take(ledger: &mut Ledger, gateway: &str, now: PoolFeedback) -> Vec<(u64, u64)> {
    let changes = ledger.take(gateway, &[now], |pool| pool == "p");
    changes.iter().map(|c| (c.exact, c.under)).collect()
}

#[test]
fn differences_survive_loss_repetition_and_restarts() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.take("a", &[], |_| true), []);
    assert_eq!(take(&mut ledger, "a", totals(3, 1)), [(3, 1)]);
    assert_eq!(take(&mut ledger, "a", totals(3, 1)), [], "sent twice");
    assert_eq!(take(&mut ledger, "a", totals(9, 1)), [(6, 0)]);
    // One that we do not know yet has a past that is not news.
    assert_eq!(take(&mut ledger, "b", totals(1000, 0)), []);
    assert_eq!(take(&mut ledger, "b", totals(1001, 0)), [(1, 0)]);
    // Counters set to zero.
    assert_eq!(take(&mut ledger, "a", totals(2, 1)), [(2, 1)]);
    // A pool that we do not have.
    let other = PoolFeedback {
        pool: "other".into(),
        ..totals(5, 5)
    };
    assert_eq!(take(&mut ledger, "a", other), []);
}

#[test]
fn gateways_are_bounded() {
    let mut ledger = Ledger::default();
    take(&mut ledger, "first", totals(1, 0));
    for n in 0..GATEWAYS_MAX * 2 {
        take(&mut ledger, &format!("g{n}"), totals(1, 0));
        take(&mut ledger, "first", totals(n as u64 + 1, 0));
    }
    let last = GATEWAYS_MAX as u64 * 2;
    assert_eq!(take(&mut ledger, "first", totals(last + 7, 0)), [(7, 0)]);
    assert_eq!(take(&mut ledger, "g0", totals(9, 0)), [], "forgotten");
}

#[test]
fn engines_counters_start_anew_after_a_restart() {
    let mut counters = Counters::default();
    assert_eq!(counters.take(100, 50), None);
    assert_eq!(counters.take(150, 60), Some((50, 10)));
    assert_eq!(counters.take(20, 5), Some((20, 5)));
}

fn feedback() -> (Feedback, Metrics) {
    let pools = ["p".to_owned()].into_iter();
    let feedback = Feedback::new(pools);
    for slot in 0..2 {
        feedback.add(ReplicaIndex(slot), 0);
    }
    (feedback, Metrics::new())
}

fn poll(feedback: PoolFeedback) -> Poll {
    Poll {
        gateway: "g".into(),
        feedback: vec![feedback],
        ..Poll::default()
    }
}

fn alarm(metrics: &Metrics) -> i64 {
    let labels = PoolLabels { pool: "p".into() };
    metrics.prediction_mismatch.get_or_create(&labels).get()
}

#[test]
fn the_alarm_follows_the_verdict_while_events_flow() {
    let (feedback, metrics) = feedback();
    let start = Instant::now();
    let take = |totals, events| {
        feedback.take(&poll(totals), &metrics, |_| events, start);
        alarm(&metrics)
    };
    assert_eq!(take(totals(0, 0), true), 0);
    assert_eq!(
        take(totals(0, 30), false),
        0,
        "no events, nothing to predict from"
    );
    assert_eq!(take(totals(0, 31), true), 1);
    assert_eq!(take(totals(60, 31), true), 0);
    let labels = OutcomeLabels {
        pool: "p".into(),
        outcome: "under",
    };
    assert_eq!(metrics.feedback_responses.get_or_create(&labels).get(), 31);
}

#[test]
fn a_lasting_alarm_is_logged_now_and_then() {
    let (feedback, metrics) = feedback();
    let start = Instant::now();
    let logged = |after: u64, under| {
        let now = start + Duration::from_secs(after);
        feedback.take(&poll(totals(0, under)), &metrics, |_| true, now);
        let inner = feedback.inner.lock().unwrap();
        inner.pools[0].logged.map(|at| (at - start).as_secs())
    };
    assert_eq!(logged(0, 0), None);
    assert_eq!(logged(1, 20), Some(1));
    assert_eq!(logged(200, 40), Some(1));
    assert_eq!(logged(301, 60), Some(301));
}

#[test]
fn counters_of_all_replicas_are_one_witness() {
    let (feedback, metrics) = feedback();
    let now = Instant::now();
    feedback.take(
        &poll(PoolFeedback {
            pool: "p".into(),
            ..PoolFeedback::default()
        }),
        &metrics,
        |_| true,
        now,
    );
    assert_eq!(feedback.scraped(ReplicaIndex(0), 0, 0), None);
    assert_eq!(feedback.scraped(ReplicaIndex(1), 9, 9), None);
    assert_eq!(
        feedback.scraped(ReplicaIndex(7), 9, 9),
        None,
        "no such replica"
    );
    for n in 1..=2u64 {
        feedback.scraped(ReplicaIndex(0), n * 25_000, n * 20_000);
        feedback.scraped(ReplicaIndex(1), n * 25_000 + 9, n * 20_000 + 9);
        let totals = PoolFeedback {
            pool: "p".into(),
            missing: n * 50,
            prompt_tokens: n * 50_000,
            ..PoolFeedback::default()
        };
        feedback.take(&poll(totals), &metrics, |_| true, now);
        assert_eq!(alarm(&metrics), i64::from(n == 2));
    }
}
