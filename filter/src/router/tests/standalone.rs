//! Without a control plane, and where prompts cannot be told: by what was sent where before.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::bench::{Bench, bench, text};
use crate::config;
use crate::router::history;
use crate::router::{Request, STATE_PREDICTED, STATE_REASON};
use crate::testing::fleet::{Fleet, MODEL};
use crate::vm::Vm;

const OK: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];

/// A gateway of two workers that knows its engines from its own configuration.
struct Gateway {
    b: Bench,
    other: Vm,
}

fn standalone(replicas: usize) -> Gateway {
    let mut b = bench();
    let replicas = (1..=replicas).map(|n| json!({"endpoint": format!("10.0.0.{n}:8000")}));
    let replicas: Vec<Value> = replicas.collect();
    let json = json!({"standalone": {"pools": [{"name": "p", "replicas": replicas}]}});
    b.config = config::parse(json.to_string().as_bytes()).unwrap();
    b.config.standalone.as_ref().unwrap().publish(&b.host);
    let other = Vm::new(&b.host);
    Gateway { b, other }
}

impl Gateway {
    /// To the worker whose turn it is; the request and the endpoint named first.
    fn send(&mut self, messages: &[Value]) -> (Request, String) {
        std::mem::swap(&mut self.b.vm, &mut self.other);
        self.b.headers(
            "POST",
            "/v1/chat/completions",
            Some("application/json"),
            Some(1_000),
        );
        let body = json!({"model": MODEL, "messages": messages});
        let request = self.b.send(&body.to_string());
        let first = self.b.dest().unwrap().split(',').next().unwrap().to_owned();
        (request, first)
    }

    /// Sends and answers, by the replica that is named.
    fn turn(&mut self, messages: &[Value]) -> String {
        let (mut request, first) = self.send(messages);
        self.answer(&mut request, &first, "200");
        first
    }

    fn answer(&mut self, request: &mut Request, by: &str, status: &str) {
        self.b.property("upstream.address", by.as_bytes());
        self.b.property("response.code_details", b"via_upstream");
        self.b
            .respond(request, &[(":status", status), OK[1]], "{}", 100);
    }

    fn reason(&self) -> String {
        self.b.state(STATE_REASON).unwrap()
    }
}

fn say(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// A system prompt that all share, and a first question.
fn opening(n: u32) -> Vec<Value> {
    let system: String = (0..4).map(text).collect();
    vec![
        say("system", &system),
        say("user", &format!("Question {n}. {}", text(100 + n))),
    ]
}

#[test]
fn conversations_go_on_where_they_began() {
    let mut g = standalone(4);
    let mut all: Vec<Vec<Value>> = (0..40).map(opening).collect();
    let mut homes: Vec<String> = all.iter().map(|messages| g.turn(messages)).collect();
    let mut stayed = 0;
    for round in 0..5 {
        for (n, (messages, home)) in all.iter_mut().zip(&mut homes).enumerate() {
            messages.push(say(
                "assistant",
                &format!("Answer {round} to {n}. {}", text(7)),
            ));
            messages.push(say("user", &format!("And {round}? {}", text(900 + round))));
            let next = g.turn(messages);
            stayed += u32::from(next == *home);
            *home = next;
            assert_eq!(g.reason(), "predicted");
            assert_ne!(g.b.state(STATE_PREDICTED).as_deref(), Some("0"));
        }
    }
    assert_eq!(stayed, 200);
}

/// What they all share draws them together only as far as the load allows.
#[test]
fn conversations_at_once_are_spread() {
    let mut g = standalone(4);
    let mut used: BTreeMap<String, u32> = BTreeMap::new();
    let open: Vec<_> = (0..80).map(|n| g.send(&opening(n))).collect();
    for (_, first) in &open {
        *used.entry(first.clone()).or_default() += 1;
    }
    assert!(
        used.len() == 4 && used.values().all(|&n| n <= 30),
        "{used:?}"
    );
}

#[test]
fn agents_and_siblings_stay_together() {
    let mut g = standalone(8);
    let mut messages = opening(1);
    let home = g.turn(&messages);
    // Two calls at once, their results, and the next question.
    messages.push(
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}, {"id": "2"}]}),
    );
    messages.push(json!({"role": "tool", "tool_call_id": "1", "content": text(20)}));
    messages.push(json!({"role": "tool", "tool_call_id": "2", "content": text(21)}));
    assert_eq!(g.turn(&messages), home);
    // The same conversation with another last message.
    for n in 0..4 {
        let mut sibling = messages.clone();
        sibling.push(say("user", &format!("Another way to go on: {n}")));
        assert_eq!(g.turn(&sibling), home, "{n}");
    }
}

#[test]
fn it_is_forgotten_in_time_and_moves_to_whoever_serves() {
    let mut g = standalone(8);
    let messages = opening(1);
    let (mut request, first) = g.send(&messages);
    let other = if first == "10.0.0.1:8000" {
        "10.0.0.2:8000"
    } else {
        "10.0.0.1:8000"
    };
    g.answer(&mut request, other, "200");
    assert_eq!(g.turn(&messages), other);
    g.b.host.advance_ms(history::TTL_MS - 1_000);
    assert_eq!(g.turn(&messages), other);
    // It was used again meanwhile.
    g.b.host.advance_ms(history::TTL_MS / 2);
    assert_eq!(g.turn(&messages), other);
    g.b.host.advance_ms(history::TTL_MS);
    g.turn(&messages);
    assert_eq!(g.reason(), "load");
}

#[test]
fn what_came_to_nothing_is_not_remembered() {
    let mut g = standalone(8);
    for status in ["404", "400"] {
        let (mut request, first) = g.send(&opening(1));
        assert_eq!(g.reason(), "load", "{status}");
        g.answer(&mut request, &first, status);
    }
    let (mut request, _) = g.send(&opening(1));
    request.on_end(&mut g.b.vm, &g.b.host);
    let (_request, _) = g.send(&opening(1));
    assert_eq!(g.reason(), "load");
}

#[test]
fn a_session_decides_where_nothing_else_does() {
    let mut g = standalone(8);
    let mut homes: BTreeMap<String, u32> = BTreeMap::new();
    for n in 0..20 {
        g.b.headers(
            "POST",
            "/v1/chat/completions",
            Some("application/json"),
            Some(1_000),
        );
        g.b.header("x-session-id", "one");
        let body = json!({"messages": [say("user", &format!("{n} {}", text(500 + n)))]});
        let mut request = g.b.send(&body.to_string());
        let first = g.b.dest().unwrap().split(',').next().unwrap().to_owned();
        g.answer(&mut request, &first, "200");
        *homes.entry(first).or_default() += 1;
    }
    assert_eq!(homes.len(), 1, "{homes:?}");
}

#[test]
fn few_host_calls_a_request() {
    let mut g = standalone(8);
    let mut messages = opening(1);
    for n in 0..30 {
        messages.push(say("user", &format!("{n}: {}", text(n))));
    }
    g.turn(&messages);
    messages.push(say("user", "On."));
    let before = g.b.host.shared_calls.get();
    let request = g.send(&messages);
    // The head, health, others' work, our own (two), and at most 16 for history.
    let calls = g.b.host.shared_calls.get() - before;
    assert!(calls <= 28, "{calls}");
    drop(request);
}

/// Texts that share a long beginning without turns to tell.
#[test]
fn completions_and_ids_go_by_blocks() {
    let mut g = standalone(8);
    let long: String = (0..30).map(text).collect();
    let ids: Vec<u32> = (0..8_000).collect();
    for (first, second) in [
        (json!(long), json!(format!("{long} And more. {}", text(99)))),
        (json!(ids), json!([ids.clone(), vec![7; 100]].concat())),
    ] {
        let mut homes = Vec::new();
        for prompt in [first, second] {
            g.b.headers(
                "POST",
                "/v1/completions",
                Some("application/json"),
                Some(1_000),
            );
            let mut request = g.b.send(&json!({"prompt": prompt}).to_string());
            let first = g.b.dest().unwrap().split(',').next().unwrap().to_owned();
            g.answer(&mut request, &first, "200");
            homes.push(first);
        }
        assert_eq!(homes[0], homes[1]);
        assert_eq!(g.reason(), "predicted");
    }
}

/// A control plane, but a model whose prompts cannot be told.
#[test]
fn pools_that_are_only_predicted_go_by_history_too() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 6);
    fleet.set_profile(Fleet::predicted_only());
    b.publish(&fleet);
    let mut g = Gateway {
        other: Vm::new(&b.host),
        b,
    };
    let mut messages = opening(1);
    let home = g.turn(&messages);
    assert_eq!(g.reason(), "predicted_only");
    for n in 0..5 {
        messages.push(say("assistant", &text(n)));
        messages.push(say("user", &text(n + 10)));
        assert_eq!(g.turn(&messages), home);
        assert_eq!(g.reason(), "predicted");
    }
}
