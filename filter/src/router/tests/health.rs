//! Replicas that fail: left alone, tried again, never a reason to serve nobody.

use std::collections::BTreeMap;

use super::bench::{Bench, bench, text};
use crate::router::Request;
use crate::testing::fleet::Fleet;
use crate::vm::Vm;

const OK: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];

fn gateway(replicas: u16) -> Bench {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, replicas);
    fleet.head.pools[0].block_size = 16;
    // All of it is held by the first one: that is where everything goes.
    fleet.holds_text(0, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    b
}

fn named(b: &Bench) -> Vec<String> {
    b.dest()
        .unwrap_or_default()
        .split(',')
        .map(str::to_owned)
        .collect()
}

impl Bench {
    /// The request's answer comes from `by`, at the so manieth attempt.
    fn answered(&mut self, mut request: Request, by: &str, attempts: u64, status: &str) {
        self.property("upstream.address", by.as_bytes());
        self.property("upstream.request_attempt_count", &attempts.to_le_bytes());
        self.property("response.code_details", b"via_upstream");
        self.property("response.flags", &0u64.to_le_bytes());
        let headers = [(":status", status), OK[1]];
        self.respond(&mut request, &headers, "{}", 100);
    }

    /// Envoy answers itself, or the stream ends without an answer.
    fn unanswered(&mut self, mut request: Request, attempts: u64, flags: u64, reply: bool) {
        self.property("upstream.address", b"");
        self.property("upstream.request_attempt_count", &attempts.to_le_bytes());
        self.property("response.code_details", b"upstream_reset_before_response");
        self.property("response.flags", &flags.to_le_bytes());
        if reply {
            self.respond(&mut request, &[(":status", "503")], "x", 100);
        }
        request.on_end(&mut self.vm, &self.host);
    }
}

const FIRST: &str = "10.0.0.1:8000";

#[test]
fn a_replica_that_cannot_be_reached_is_left_alone_by_all_workers_and_tried_again() {
    let mut b = gateway(3);
    let mut other = Vm::new(&b.host);
    let mut sent = Vec::new();
    for _ in 0..2 {
        let request = b.chat(&text(1));
        assert_eq!(named(&b)[0], FIRST);
        sent.push((request, named(&b)[1].clone()));
        std::mem::swap(&mut b.vm, &mut other);
    }
    for (request, second) in sent {
        b.answered(request, &second, 2, "200");
        std::mem::swap(&mut b.vm, &mut other);
    }
    for _ in 0..20 {
        let request = b.chat(&text(1));
        let names = named(&b);
        assert!(!names.contains(&FIRST.to_owned()), "{names:?}");
        b.answered(request, &names[0], 1, "200");
        std::mem::swap(&mut b.vm, &mut other);
        b.host.advance_ms(50);
    }
    b.host.advance_ms(7_000);
    // One probe at a time, over both workers.
    let probe = b.chat(&text(1));
    assert_eq!(named(&b)[0], FIRST);
    for _ in 0..4 {
        std::mem::swap(&mut b.vm, &mut other);
        let request = b.chat(&text(1));
        let names = named(&b);
        assert!(!names.contains(&FIRST.to_owned()), "{names:?}");
        b.answered(request, &names[0], 1, "200");
    }
    b.answered(probe, FIRST, 1, "200");
    b.chat(&text(1));
    assert_eq!(named(&b)[0], FIRST);
    assert_eq!(b.host.metric("ejections_total"), 1);
    assert_eq!(b.host.metric("restorations_total"), 1);
}

#[test]
fn envoys_own_answer_counts_by_its_flags() {
    for reply in [true, false] {
        let mut b = gateway(2);
        let sent = [b.chat(&text(1)), b.chat(&text(1))];
        assert_eq!(named(&b)[0], FIRST);
        for request in sent {
            b.unanswered(request, 1, 0x20, reply);
        }
        b.chat(&text(1));
        assert_ne!(named(&b)[0], FIRST);
    }
}

#[test]
fn clients_that_err_or_leave_and_limits_of_our_own_never_count() {
    let mut b = gateway(2);
    for n in 0..60 {
        let request = b.chat(&text(1));
        assert_eq!(named(&b)[0], FIRST, "{n}");
        match n % 6 {
            0 => b.answered(request, FIRST, 1, "404"),
            1 => b.answered(request, FIRST, 1, "429"),
            // The client has gone before there was an answer; overflow; timeout.
            2 => b.unanswered(request, 1, 0x4000, false),
            3 => b.unanswered(request, 1, 0x4000 | 0x40, false),
            4 => b.unanswered(request, 1, 0x80, true),
            _ => b.unanswered(request, 1, 0x4, true),
        }
    }
    assert_eq!(b.host.metric("ejections_total"), 0);
    for kind in ["unreached", "error", "busy"] {
        let name = format!("upstream_failures_total_kind=_={kind}_=_");
        assert_eq!(b.host.metric(&name), 0, "{kind}");
    }
}

impl Bench {
    /// Envoy gives its own answer after one attempt of a request whose body passes in pieces.
    fn streamed_and_reset(&mut self, flags: u64, attempts: u64, details: &[u8]) {
        self.headers(
            "POST",
            "/v1/chat/completions",
            Some("application/json"),
            Some(1 << 30),
        );
        let mut request = Request::default();
        request.on_request_headers(&mut self.vm, &self.host, &self.config, false);
        request.on_request_body(&mut self.vm, &self.host, &self.config, 1 << 20, false);
        self.property("upstream.address", b"");
        self.property("upstream.request_attempt_count", &attempts.to_le_bytes());
        self.property("response.code_details", details);
        self.property("response.flags", &flags.to_le_bytes());
        self.respond(&mut request, &[(":status", "503")], "x", 100);
    }
}

/// An engine that has refused a body need not read the rest of it: a client could have it ejected.
#[test]
fn a_reset_while_the_body_was_being_sent_is_nobodys_fault() {
    let details = b"upstream_reset_before_response_started{connection_termination}";
    for flags in [0x10, 0x40, 0x80_0000] {
        for attempts in [1, 2] {
            let mut b = gateway(2);
            for _ in 0..20 {
                b.streamed_and_reset(flags, attempts, details);
            }
            assert_eq!(b.host.metric("ejections_total"), 0, "{flags:x} {attempts}");
            let failures = "upstream_failures_total_kind=_=unreached_=_";
            assert_eq!(b.host.metric(failures), 0, "{flags:x} {attempts}");
        }
    }
    // That there is no connection has nothing to do with the body.
    let mut b = gateway(1);
    for _ in 0..2 {
        b.streamed_and_reset(0x20, 1, details);
    }
    assert_eq!(b.host.metric("ejections_total"), 1);
}

/// A body of unknown length, which grows beyond what is held; and one that ends only with its trailers.
#[test]
fn a_body_is_complete_once_its_end_was_seen_before_it_was_passed_on() {
    for (ends, ejections) in [(false, 0), (true, 1)] {
        let mut b = gateway(1);
        b.property("request.protocol", b"HTTP/2");
        for _ in 0..2 {
            b.headers(
                "POST",
                "/v1/chat/completions",
                Some("application/json"),
                None,
            );
            let mut request = Request::default();
            request.on_request_headers(&mut b.vm, &b.host, &b.config, false);
            let bytes = if ends { 10 } else { 2 << 20 };
            request.on_request_body(&mut b.vm, &b.host, &b.config, bytes, false);
            if ends {
                request.on_request_trailers(&mut b.vm, &b.host, &b.config);
            }
            assert_eq!(named(&b)[0], FIRST);
            b.unanswered(request, 1, 0x40, true);
        }
        assert_eq!(b.host.metric("ejections_total"), ejections, "{ends}");
    }
}

#[test]
fn a_reset_after_the_answer_began_is_no_missing_answer() {
    for reply in [true, false] {
        let mut b = gateway(2);
        for _ in 0..20 {
            let mut request = b.chat(&text(1));
            b.property("upstream.request_attempt_count", &1u64.to_le_bytes());
            b.property(
                "response.code_details",
                b"upstream_reset_after_response_started{connection_termination}",
            );
            b.property("response.flags", &0x40u64.to_le_bytes());
            if reply {
                b.respond(&mut request, &[(":status", "503")], "x", 100);
            }
            request.on_end(&mut b.vm, &b.host);
        }
        assert_eq!(b.host.metric("ejections_total"), 0);
    }
}

#[test]
fn where_all_are_ejected_all_are_used() {
    let mut b = gateway(2);
    for _ in 0..4 {
        let request = b.chat(&text(1));
        b.unanswered(request, 2, 0x20, true);
    }
    assert_eq!(b.host.metric("ejections_total"), 2);
    let before = b.host.metric("all_ejected_total");
    let request = b.chat(&text(1));
    assert_eq!(named(&b).len(), 2);
    assert_eq!(b.host.metric("all_ejected_total"), before + 1);
    // One that serves all the same is back at once.
    let first = named(&b)[0].clone();
    b.answered(request, &first, 1, "200");
    b.chat(&text(1));
    assert_eq!(named(&b), [first]);
}

/// Engines that answer after `ms`, and so many requests a second; how many each got, and in the last
/// second.
fn run(
    b: &mut Bench,
    per_second: u64,
    seconds: u64,
    answer: impl Fn(&str, u64) -> (&'static str, u64),
) -> BTreeMap<String, u64> {
    let mut got = BTreeMap::new();
    let mut open: Vec<(u64, Request, String, &str)> = Vec::new();
    for n in 0..per_second * seconds {
        let now = n * 1_000 / per_second;
        b.host.now_us.set(1_000_000 + now * 1_000);
        while let Some(at) = open.iter().position(|(end, ..)| *end <= now) {
            let (_, request, by, status) = open.swap_remove(at);
            b.answered(request, &by, 1, status);
        }
        let request = b.chat(&format!("{n}: a prompt of its own. {}", text(2)));
        let by = named(b)[0].clone();
        let (status, ms) = answer(&by, now);
        *got.entry(by.clone()).or_default() += 1;
        open.push((now + ms, request, by, status));
    }
    for (_, request, by, status) in open {
        b.answered(request, &by, 1, status);
    }
    got
}

#[test]
fn a_replica_that_fails_fast_attracts_nothing() {
    for status in ["500", "503"] {
        let mut b = gateway(4);
        let got = run(&mut b, 40, 30, |by, _| {
            if by == FIRST {
                (status, 1)
            } else {
                ("200", 400)
            }
        });
        let all: u64 = got.values().sum();
        let failing = got.get(FIRST).copied().unwrap_or(0);
        // Its share would be a quarter, and more for looking idle.
        assert!(failing * 20 < all, "{status}: {failing} of {all}");
        assert!(failing > 0);
    }
}

#[test]
fn one_that_works_again_gets_its_share_again() {
    for status in ["500", "503"] {
        let mut b = gateway(4);
        let got = run(&mut b, 40, 60, |by, now| {
            if by == FIRST && now < 10_000 {
                (status, 1)
            } else {
                ("200", 400)
            }
        });
        let all: u64 = got.values().sum();
        let first = got.get(FIRST).copied().unwrap_or(0);
        assert!(first * 100 > all * 15, "{status}: {got:?}");
    }
}

/// Half of its answers are errors, so that it is never ejected: it gets less all the same.
#[test]
fn one_that_fails_now_and_then_gets_less() {
    let mut b = gateway(4);
    let turn = std::cell::Cell::new(0);
    let got = run(&mut b, 40, 30, |by, _| {
        turn.set(turn.get() + 1);
        if by == FIRST && turn.get() % 2 == 0 {
            ("500", 1)
        } else {
            ("200", 400)
        }
    });
    let all: u64 = got.values().sum();
    let first = got.get(FIRST).copied().unwrap_or(0);
    assert!(first * 100 < all * 15, "{got:?}");
}
