//! From the response's headers to the end of the stream: who serves, and whose load it is.

use super::bench::{Bench, bench, text};
use crate::load::Work;
use crate::router::Request;
use crate::testing::fleet::Fleet;

#[test]
fn load_is_given_back_in_parts_and_once() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 1);
    fleet.head.pools[0].block_size = 1;
    b.publish(&fleet);
    // A stream: the prefill ends at the first byte of the body.
    let mut r = b.chat(&text(1));
    let all = b.load(&fleet, 0);
    assert_eq!(all.requests, 1);
    assert!(all.tokens > 500);
    let set = |name: &str, value: &str| {
        b.host
            .response_headers
            .borrow_mut()
            .insert(name.to_owned(), value.to_owned());
    };
    set("content-type", "text/event-stream; charset=utf-8");
    r.on_response_headers(&mut b.vm, &b.host, false);
    r.on_response_body(&mut b.vm, &b.host, 0, false);
    assert_eq!(b.load(&fleet, 0), all);
    r.on_response_body(&mut b.vm, &b.host, 10, false);
    r.on_response_body(&mut b.vm, &b.host, 10, false);
    assert_eq!(
        (b.load(&fleet, 0).requests, b.load(&fleet, 0).tokens),
        (1, 0)
    );
    r.on_end(&mut b.vm, &b.host);
    r.on_end(&mut b.vm, &b.host);
    assert_eq!(b.load(&fleet, 0), Work::default());
    // Not a stream: headers come with the answer.
    let mut r = b.chat(&text(2));
    b.host
        .response_headers
        .borrow_mut()
        .insert("content-type".into(), "application/json".into());
    r.on_response_headers(&mut b.vm, &b.host, false);
    assert_eq!(
        (b.load(&fleet, 0).requests, b.load(&fleet, 0).tokens),
        (1, 0)
    );
    // The client leaves in the middle of it.
    r.on_end(&mut b.vm, &b.host);
    assert_eq!(b.load(&fleet, 0), Work::default());
}

#[test]
fn a_busy_replica_is_left_for_an_idle_one() {
    let mut b = bench();
    let fleet = Fleet::new(1, 8, 3);
    b.publish(&fleet);
    let mut held: Vec<Request> = (0..30).map(|_| b.chat("x")).collect();
    for replica in 0..3 {
        assert_eq!(b.load(&fleet, replica).requests, 10);
    }
    for r in &mut held {
        r.on_end(&mut b.vm, &b.host);
    }
}

#[test]
fn load_follows_whoever_serves() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 3);
    fleet.holds_text(0, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    let first = |b: &mut Bench| b.chat(&text(1));
    // As named.
    let mut r = first(&mut b);
    b.property("upstream.address", b"10.0.0.1:8000");
    b.property("upstream.request_attempt_count", &1u64.to_le_bytes());
    r.on_response_headers(&mut b.vm, &b.host, true);
    assert_eq!(b.host.metric("missed_override_total"), 0);
    r.on_end(&mut b.vm, &b.host);
    // The first failed, the second one named took over: a retry, not a miss.
    let mut r = first(&mut b);
    let second = b.dest().unwrap().split(',').nth(1).unwrap().to_owned();
    b.property("upstream.address", second.as_bytes());
    b.property("upstream.request_attempt_count", &2u64.to_le_bytes());
    r.on_response_headers(&mut b.vm, &b.host, false);
    assert_eq!(b.host.metric("missed_override_total"), 0);
    assert_eq!(b.host.metric("retried_total"), 1);
    assert_eq!(b.load(&fleet, 0).requests, 0);
    let at = fleet
        .head
        .replicas
        .iter()
        .position(|r| r.endpoint == second)
        .unwrap();
    assert_eq!(b.load(&fleet, u16::try_from(at).unwrap()).requests, 1);
    r.on_end(&mut b.vm, &b.host);
    // Somebody else at once: Envoy did not obey.
    let mut r = first(&mut b);
    b.property("upstream.address", b"10.0.0.99:8000");
    b.property("upstream.request_attempt_count", &1u64.to_le_bytes());
    r.on_response_headers(&mut b.vm, &b.host, false);
    assert_eq!(b.host.metric("missed_override_total"), 1);
    r.on_end(&mut b.vm, &b.host);
    for replica in 0..3 {
        assert_eq!(b.load(&fleet, replica), Work::default());
    }
}
