use super::*;
use crate::testing::FakeHost;

const A: &str = "10.0.0.1:8000";

fn saw(signal: Signal) -> [Outcome; 1] {
    [Outcome {
        endpoint: A.to_owned(),
        seen: Seen::Signal(signal),
    }]
}

fn replaced() -> [Outcome; 1] {
    [Outcome {
        endpoint: A.to_owned(),
        seen: Seen::Replaced,
    }]
}

fn worker(host: &FakeHost) -> (Health, Metrics) {
    Health::prepare(host);
    (Health::default(), Metrics::define(host))
}

#[test]
fn what_one_worker_learns_all_know() {
    let host = FakeHost::default();
    let (mut one, metrics) = worker(&host);
    let (mut other, _) = worker(&host);
    let sent = host.unix_time_ms();
    one.learn(&host, &metrics, &saw(Signal::Unreached), sent);
    other.learn(&host, &metrics, &saw(Signal::Unreached), sent);
    one.refresh(&host);
    for health in [&one, &other] {
        assert_eq!(health.access(&host, A), Access::Closed);
        assert!(health.strain(&host, A) > 0);
    }
    assert_eq!(host.metric("ejections_total"), 1);
    assert_eq!(host.metric("ejected_endpoints"), 1);
    assert_eq!(
        host.metric("upstream_failures_total_kind=_=unreached_=_"),
        2
    );
    // One probe, whoever asks.
    host.advance_ms(2_000);
    assert!(one.may_send(&host, A));
    assert!(!other.may_send(&host, A));
    one.learn(&host, &metrics, &saw(Signal::Served), host.unix_time_ms());
    assert_eq!(host.metric("restorations_total"), 1);
    other.tick(&host, &metrics);
    assert_eq!(host.metric("ejected_endpoints"), 0);
    assert!(other.may_send(&host, A));
}

#[test]
fn while_all_is_well_nothing_is_written() {
    let host = FakeHost::default();
    let (mut health, metrics) = worker(&host);
    let before = host.shared(KEY).cas;
    for signal in [Signal::Served, Signal::Refused] {
        for _ in 0..100 {
            health.learn(&host, &metrics, &saw(signal), host.unix_time_ms());
        }
    }
    assert_eq!(host.shared(KEY).cas, before);
}

/// Envoy does not say why an attempt was replaced by another.
#[test]
fn an_endpoint_that_is_answering_others_has_too_much_to_do() {
    let host = FakeHost::default();
    let (mut health, metrics) = worker(&host);
    health.begins(A);
    health.begins(A);
    health.ends(A);
    for _ in 0..20 {
        health.learn(&host, &metrics, &replaced(), host.unix_time_ms());
    }
    assert_eq!(health.access(&host, A), Access::Open);
    assert!(health.strain(&host, A) >= 60);
    assert_eq!(host.metric("upstream_failures_total_kind=_=busy_=_"), 20);
    health.ends(A);
    health.ends(A);
    assert!(health.answering.is_empty());
    for _ in 0..2 {
        health.learn(&host, &metrics, &replaced(), host.unix_time_ms());
    }
    assert_eq!(health.access(&host, A), Access::Closed);
}

/// Others write between our read and our write, each time.
#[test]
fn a_write_that_is_never_let_through_is_given_up() {
    let host = FakeHost::default();
    let (mut health, _) = worker(&host);
    let mut tries = 0;
    let changed = health.change(&host, |table| {
        tries += 1;
        let mut theirs = Table::decode(&host.shared(KEY).bytes);
        let now = host.unix_time_ms();
        theirs.apply(&format!("other-{tries}"), Signal::Busy, now, now);
        host.set_shared(KEY, &theirs.encode(), 0).unwrap();
        table.apply(A, Signal::Unreached, now, now)
    });
    assert_eq!((changed, tries), (None, WRITE_TRIES));
    assert_eq!(health.strain(&host, A), 0);
}
