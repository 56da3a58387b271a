//! What the engine reports against what was predicted.

use prefix_picker_core::sync::{PoolFeedback, ReplicaState};

use super::bench::{Bench, bench, text};
use crate::router::{Request, STATE_CACHED, STATE_PREDICTED};
use crate::testing::fleet::{Fleet, TOKENS_PER_BLOCK};

const JSON: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];
const STREAM: [(&str, &str); 2] = [
    (":status", "200"),
    ("content-type", "text/event-stream; charset=utf-8"),
];

fn usage(cached: &str) -> String {
    format!(
        r#"{{"choices":[{{"message":{{"content":"\"usage\":{{"}}}}],"usage":{{"prompt_tokens":700,"prompt_tokens_details":{cached}}}}}"#
    )
}

fn figure(cached: u32) -> String {
    usage(&format!(r#"{{"cached_tokens":{cached}}}"#))
}

/// The first of two replicas holds a text, and serves whatever is sent.
fn held() -> (Bench, Fleet, u32) {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 2);
    let blocks = fleet.holds_text(0, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    b.property("upstream.address", b"10.0.0.1:8000");
    (b, fleet, blocks * TOKENS_PER_BLOCK)
}

fn outcome(b: &Bench, outcome: &str) -> u64 {
    b.host.metric(&format!(
        "feedback_responses_total_outcome=_={outcome}_=__pool=_=p_=_"
    ))
}

fn total(b: &Bench, name: &str) -> u64 {
    b.host.metric(&format!("feedback_{name}_pool=_=p_=_"))
}

fn totals(b: &mut Bench) -> Option<PoolFeedback> {
    let totals = b.vm.feedback.totals(&b.host, ["p"].into_iter());
    totals.into_iter().next()
}

#[test]
fn a_right_prediction_is_exact_in_bodies_and_streams() {
    let (mut b, _, held) = held();
    assert_eq!(totals(&mut b), None);
    let mut r = b.chat(&text(1));
    let predicted: u32 = b.state(STATE_PREDICTED).unwrap().parse().unwrap();
    assert_eq!(predicted, held / 16 * 16);
    b.respond(&mut r, &JSON, &figure(predicted + 16), 10);
    assert_eq!(b.state(STATE_CACHED), Some((predicted + 16).to_string()));
    assert_eq!(outcome(&b, "exact"), 1);
    let mut r = b.chat(&text(1));
    let stream = format!(
        "data: {{\"choices\":[]}}\n\ndata: {}\n\ndata: [DONE]\n\n",
        figure(predicted)
    );
    b.respond(&mut r, &STREAM, &stream, 7);
    assert_eq!(outcome(&b, "exact"), 2);
    let expected = PoolFeedback {
        pool: "p".into(),
        exact: 2,
        telling: 2,
        predicted_tokens: u64::from(predicted) * 2,
        cached_tokens: u64::from(predicted) * 2 + 16,
        prompt_tokens: 1400,
        under_tokens: 16,
        ..PoolFeedback::default()
    };
    assert_eq!(totals(&mut b), Some(expected));
    assert_eq!(total(&b, "error_tokens"), 0, "the last value recorded");
    assert_eq!(total(&b, "under_tokens"), 16);
}

#[test]
fn errors_have_a_direction() {
    let (mut b, _, _) = held();
    let mut r = b.chat(&text(1));
    b.respond(&mut r, &JSON, &figure(0), 1_000);
    assert_eq!(outcome(&b, "over"), 1);
    let mut r = b.chat(&text(2));
    b.property(
        "upstream.address",
        b.dest().unwrap().split(',').next().unwrap().as_bytes(),
    );
    b.respond(&mut r, &JSON, &figure(640), 1_000);
    assert_eq!(outcome(&b, "under"), 1);
    assert_eq!(total(&b, "telling_total"), 2);
    assert_eq!(total(&b, "under_tokens_total"), 640);
    assert_eq!(
        total(&b, "over_tokens_total"),
        total(&b, "predicted_tokens_total")
    );
}

#[test]
fn what_is_missing_is_told_apart() {
    let (mut b, _, _) = held();
    let compressed = [JSON[0], JSON[1], ("content-encoding", "gzip")];
    let plain = [JSON[0], ("content-type", "text/plain")];
    for (headers, body, as_) in [
        (
            &STREAM[..],
            "data: {}\n\ndata: [DONE]\n\n".to_owned(),
            "no_usage",
        ),
        (&JSON, usage("null"), "no_figure"),
        (&JSON, usage(r#"{"cached_tokens":null}"#), "null"),
        (&compressed, figure(1), "unreadable"),
        (&plain, figure(1), "unreadable"),
    ] {
        let before = outcome(&b, as_);
        let mut r = b.chat(&text(1));
        b.respond(&mut r, headers, &body, 9);
        assert_eq!(outcome(&b, as_), before + 1, "{as_}");
        assert_eq!(b.state(STATE_CACHED), None);
    }
    let totals = totals(&mut b).unwrap();
    assert_eq!(
        (totals.missing, totals.answered(), totals.telling),
        (5, 5, 0)
    );
    assert!(totals.predicted_tokens > 0);
}

#[test]
fn what_was_not_predicted_or_went_elsewhere_is_not_compared() {
    let (mut b, mut fleet, _) = held();
    let none = |b: &mut Bench, r: &mut Request, headers: &[(&str, &str)]| {
        b.respond(r, headers, &figure(640), 100);
        assert_eq!(totals(b), None);
    };
    // Not 200.
    let mut r = b.chat(&text(1));
    none(&mut b, &mut r, &[(":status", "404"), JSON[1]]);
    // Served by another.
    b.property("upstream.address", b"10.0.0.2:8000");
    let mut r = b.chat(&text(1));
    none(&mut b, &mut r, &JSON);
    // It has the prompt now; what was sent there is forgotten first.
    b.host.advance_ms(15_000);
    // Served by the second one named, after the first had failed.
    b.property("upstream.request_attempt_count", &2u64.to_le_bytes());
    let mut r = b.chat(&text(1));
    none(&mut b, &mut r, &JSON);
    b.host
        .properties
        .borrow_mut()
        .remove("upstream.request_attempt_count");
    b.property("upstream.address", b"10.0.0.1:8000");
    // Nobody knows what a warming replica holds.
    fleet.head.replicas[0].state = ReplicaState::Warming;
    fleet.head.replicas[1].state = ReplicaState::Down;
    fleet.head.version += 1;
    b.publish(&fleet);
    let mut r = b.chat(&text(1));
    none(&mut b, &mut r, &JSON);
    // No prompt to tell.
    let mut r = b.send("{\"model\": \"m\"}");
    none(&mut b, &mut r, &JSON);
    // The client left in the middle of it.
    fleet.head.replicas[0].state = ReplicaState::Ready;
    fleet.head.version += 1;
    b.publish(&fleet);
    let mut r = b.chat(&text(1));
    r.on_response_headers(&mut b.vm, &b.host, false);
    r.on_end(&mut b.vm, &b.host);
    assert_eq!(totals(&mut b), None);
}

#[test]
fn a_figure_of_several_prompts_is_not_compared() {
    let (mut b, _, _) = held();
    let body = serde_json::json!({"model": "m", "n": 2,
        "messages": [{"role": "user", "content": text(1)}]});
    let mut r = b.send(&body.to_string());
    b.respond(&mut r, &JSON, &figure(0), 100);
    assert_eq!(outcome(&b, "apart"), 1);
    assert_eq!(b.state(STATE_CACHED), None);
}

#[test]
fn siblings_of_a_burst_are_no_errors() {
    let (mut b, _, _) = held();
    let fresh = text(9);
    let mut burst: Vec<Request> = (0..8)
        .map(|_| {
            let r = b.chat(&fresh);
            b.host.advance_ms(5);
            r
        })
        .collect();
    for r in &mut burst {
        let named = r.named[0].clone();
        b.property("upstream.address", named.as_bytes());
        b.respond(r, &JSON, &figure(640), 100);
    }
    // The first is under, as far as one can know; the others went where it went, and are early.
    assert_eq!((outcome(&b, "early"), outcome(&b, "under")), (7, 1));
    assert_eq!(total(&b, "under_tokens_total"), 640);
    // Much later there is no excuse.
    b.host.advance_ms(10_000);
    let mut r = b.chat(&fresh);
    let named = r.named[0].clone();
    b.property("upstream.address", named.as_bytes());
    b.respond(&mut r, &JSON, &figure(640), 100);
    assert_eq!(outcome(&b, "under"), 2);
}

#[test]
fn pieces_larger_than_a_slice_are_read_to_their_end() {
    let (mut b, _, held) = held();
    let mut r = b.chat(&text(1));
    let body = figure(held / 16 * 16).replace(
        "\"choices\"",
        &format!("\"x\":\"{}\",\"choices\"", "y".repeat(200_000)),
    );
    b.respond(&mut r, &JSON, &body, 1 << 20);
    assert_eq!(outcome(&b, "exact"), 1);
}
