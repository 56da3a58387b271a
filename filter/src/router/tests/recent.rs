//! What was sent a moment ago counts as held, until it is announced, over, or came to nothing.

use std::collections::BTreeSet;

use super::bench::{Bench, bench, text};
use crate::router::{Request, STATE_PREDICTED, STATE_REASON};
use crate::testing::fleet::{Fleet, MODEL};
use crate::vm::Vm;

const JSON: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];

/// A gateway of two workers, and `replicas` idle engines.
struct Two {
    b: Bench,
    other: Vm,
    fleet: Fleet,
}

fn two(replicas: u16) -> Two {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, replicas);
    fleet.head.pools[0].block_size = 16;
    b.publish(&fleet);
    let other = Vm::new(&b.host);
    Two { b, other, fleet }
}

impl Two {
    /// Sends to the worker whose turn it is; returns the request and the endpoint named first.
    fn chat(&mut self, content: &str) -> (Request, String) {
        std::mem::swap(&mut self.b.vm, &mut self.other);
        let request = self.b.chat(content);
        let first = self.b.dest().unwrap().split(',').next().unwrap().to_owned();
        (request, first)
    }

    fn reason(&self) -> String {
        self.b.state(STATE_REASON).unwrap()
    }

    /// The named one answers with `status`.
    fn answer(&mut self, request: &mut Request, by: &str, status: &str) {
        self.b.property("upstream.address", by.as_bytes());
        let headers = [(":status", status), JSON[1]];
        self.b.respond(request, &headers, "{}", 100);
    }
}

/// A prompt of about 8,000 tokens; `tail` is each sibling's own.
fn long(tail: u32) -> String {
    let shared: String = (0..13).map(text).collect();
    format!("{shared}{}", text(1_000 + tail))
}

#[test]
fn eight_siblings_in_50_ms_share_two_replicas() {
    for seed in 0..20 {
        let mut g = two(8);
        for _ in 0..seed {
            g.b.vm.random.draw();
        }
        let mut used = BTreeSet::new();
        let mut held = Vec::new();
        for sibling in 0..8 {
            let (request, first) = g.chat(&long(sibling));
            assert_eq!(g.reason() == "load", sibling == 0);
            // Nothing of it is announced: that is what responses are compared with.
            assert_eq!(g.b.state(STATE_PREDICTED).as_deref(), Some("0"));
            used.insert(first);
            held.push(request);
            g.b.host.advance_ms(6);
        }
        assert!(used.len() <= 2, "{used:?}");
    }
}

#[test]
fn ten_cold_prompts_in_1_ms_use_most_of_four_replicas() {
    for seed in 0..20 {
        let mut g = two(4);
        for _ in 0..seed {
            g.b.vm.random.draw();
        }
        let sent: Vec<_> = (0..10)
            .map(|n| g.chat(&format!("Prompt number {n} has its own start. {}", long(n))))
            .collect();
        let used: BTreeSet<&str> = sent.iter().map(|(_, first)| first.as_str()).collect();
        assert!(used.len() >= 3, "{used:?}");
    }
}

/// As the engine would tell: the table has it, and what was noted is no news any more.
#[test]
fn events_supersede_what_was_noted() {
    let mut g = two(4);
    let (mut request, first) = g.chat(&long(1));
    g.answer(&mut request, &first, "200");
    let holder = g.fleet.head.replicas.iter();
    let holder = holder.clone().position(|r| r.endpoint == first).unwrap();
    let prompt = format!("user: {}", long(1));
    g.fleet
        .holds_text(u16::try_from(holder).unwrap(), &prompt, None);
    g.b.publish(&g.fleet);
    let (_held, second) = g.chat(&long(1));
    assert_eq!((second, g.reason().as_str()), (first, "prefix"));
    assert_ne!(g.b.state(STATE_PREDICTED).as_deref(), Some("0"));
}

#[test]
fn it_is_forgotten_after_a_while() {
    let mut g = two(4);
    let (mut first, home) = g.chat(&long(1));
    // However long it is computed.
    g.b.host.advance_ms(9_900);
    let (mut second, there) = g.chat(&long(1));
    assert_eq!((&there, g.reason().as_str()), (&home, "recent"));
    // Once it is, the events are on their way.
    g.answer(&mut first, &home, "200");
    g.answer(&mut second, &home, "200");
    g.b.host.advance_ms(900);
    let (mut third, there) = g.chat(&long(1));
    assert_eq!((&there, g.reason().as_str()), (&home, "recent"));
    g.answer(&mut third, &home, "200");
    g.b.host.advance_ms(1_100);
    drop(g.chat(&long(1)).0);
    assert_eq!(g.reason(), "load");
    // And without an answer it ends too.
    g.b.host.advance_ms(60_000 - 1);
    g.b.vm.freshness = crate::sync::Freshness::default();
    g.other.freshness = crate::sync::Freshness::default();
    drop(g.chat(&long(1)).0);
    assert_eq!(g.reason(), "load");
}

#[test]
fn what_came_to_nothing_attracts_nothing() {
    let mut g = two(4);
    for status in ["503", "500", "429", "404", "400"] {
        let (mut request, first) = g.chat(&long(1));
        assert_eq!(g.reason(), "load", "before {status}");
        g.answer(&mut request, &first, status);
    }
    // Reset, or the client went away, before anybody answered.
    let (mut request, _) = g.chat(&long(1));
    request.on_end(&mut g.b.vm, &g.b.host);
    request.on_end(&mut g.b.vm, &g.b.host);
    drop(g.chat(&long(1)).0);
    assert_eq!(g.reason(), "load");
}

/// What one sibling made is another's to lean on, but not its to take back.
#[test]
fn a_sibling_that_fails_leaves_the_first_ones_claim() {
    let mut g = two(4);
    let (mut first, home) = g.chat(&long(1));
    let (mut second, there) = g.chat(&long(1));
    assert_eq!(home, there);
    g.answer(&mut second, &home, "404");
    let (_held, there) = g.chat(&long(1));
    assert_eq!((there, g.reason().as_str()), (home.clone(), "recent"));
    g.answer(&mut first, &home, "200");
}

#[test]
fn it_moves_to_whoever_serves() {
    let mut g = two(4);
    let (mut request, first) = g.chat(&long(1));
    let second = g.b.dest().unwrap().split(',').nth(1).unwrap().to_owned();
    g.b.property("upstream.request_attempt_count", &2u64.to_le_bytes());
    g.answer(&mut request, &second, "200");
    let (_held, there) = g.chat(&long(1));
    assert_ne!(there, first);
    assert_eq!((there, g.reason().as_str()), (second, "recent"));
}

#[test]
fn replicas_that_are_not_ready_get_no_credit() {
    let mut g = two(2);
    let (mut request, first) = g.chat(&long(1));
    g.answer(&mut request, &first, "200");
    for replica in &mut g.fleet.head.replicas {
        if replica.endpoint == first {
            replica.state = prefix_picker_core::sync::ReplicaState::Warming;
        }
    }
    g.b.publish(&g.fleet);
    drop(g.chat(&long(1)).0);
    assert_eq!(g.reason(), "load");
}

#[test]
fn all_prompts_of_a_list_are_noted() {
    let mut g = two(4);
    let prompts: Vec<String> = (0..6).map(|n| format!("{n} {}", text(n))).collect();
    let body = serde_json::json!({"model": MODEL, "prompt": prompts});
    let send = |g: &mut Two, body: serde_json::Value| {
        g.b.headers("POST", "/v1/completions", Some("application/json"), None);
        let request = g.b.send(&body.to_string());
        (
            request,
            g.b.dest().unwrap().split(',').next().unwrap().to_owned(),
        )
    };
    let (mut request, first) = send(&mut g, body);
    g.answer(&mut request, &first, "200");
    for prompt in prompts {
        let body = serde_json::json!({"model": MODEL, "prompt": prompt});
        let (mut request, there) = send(&mut g, body);
        assert_eq!((&there, g.reason().as_str()), (&first, "recent"));
        g.answer(&mut request, &first, "200");
    }
}

/// A worker's sibling is not in the other worker's notes, but it is no error of the table either;
/// and no excuse for one that lasts.
#[test]
fn siblings_of_other_workers_are_early() {
    let mut g = two(4);
    let figure =
        r#"{"usage":{"prompt_tokens":8000,"prompt_tokens_details":{"cached_tokens":6400}}}"#;
    let outcome = |g: &Two, name: &str| {
        let full = format!("feedback_responses_total_outcome=_={name}_=__pool=_=p_=_");
        g.b.host.metric(&full)
    };
    let (mut first, home) = g.chat(&long(1));
    g.b.host.advance_ms(20);
    let (mut second, _) = g.chat(&long(1));
    g.b.property("upstream.address", home.as_bytes());
    g.b.respond(&mut first, &JSON, "{}", 100);
    g.b.respond(&mut second, &JSON, figure, 100);
    assert_eq!((outcome(&g, "early"), outcome(&g, "under")), (1, 0));
    // Events have long been due.
    let mut under = 0;
    for _ in 0..8 {
        g.b.host.advance_ms(3_000);
        let (mut late, there) = g.chat(&long(1));
        g.b.property("upstream.address", there.as_bytes());
        g.b.respond(&mut late, &JSON, figure, 100);
        under = outcome(&g, "under");
    }
    assert!(under >= 6, "{under}");
}

#[test]
fn shared_data_is_asked_a_bounded_number_of_times() {
    let mut g = two(8);
    drop(g.chat("x").0);
    let mut most = 0;
    for n in 0..20 {
        let before = g.b.host.shared_calls.get();
        drop(g.chat(&format!("{n}{}", long(n))).0);
        most = most.max(g.b.host.shared_calls.get() - before);
    }
    // Of these 20 for what was sent; the rest: head, sign of life, pages, load.
    assert!(most <= 32, "{most}");
}
