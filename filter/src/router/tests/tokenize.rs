//! `/tokenize`: it goes where its prompt is known, and leaves no trace. The engine computes nothing of it.

use serde_json::{Value, json};

use super::bench::{Bench, bench, text};
use crate::config;
use crate::router::{Request, STATE_PREDICTED, STATE_REASON};
use crate::testing::fleet::{Fleet, MODEL};

const JSON: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];

fn tokenize(b: &mut Bench, content: &str) -> Request {
    b.headers("POST", "/tokenize", Some("application/json"), Some(1_000));
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": content}]});
    b.send(&body.to_string())
}

/// All that is noted of what went where: claims, siblings, history.
fn notes(b: &Bench) -> Vec<(String, Vec<u8>)> {
    let shared = b.host.shared.borrow();
    let boards = ["pp/sent/", "pp/settling/", "pp/history/"];
    let on_them = shared
        .iter()
        .filter(|(key, _)| boards.iter().any(|board| key.starts_with(board)));
    // A bucket without notes is its version alone.
    on_them
        .filter(|(_, (bytes, _))| bytes.len() > 1)
        .map(|(key, (bytes, _))| (key.clone(), bytes.clone()))
        .collect()
}

#[test]
fn it_goes_to_the_holder_and_leaves_no_claim() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 3);
    fleet.head.pools[0].block_size = 16;
    fleet.holds_text(1, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    for content in [text(1), text(2), text(2)] {
        let mut r = tokenize(&mut b, &content);
        assert_eq!(notes(&b), []);
        // Nor is it work: nothing of it waits for a prefill.
        let tokens = (0..3).map(|replica| b.load(&fleet, replica).tokens);
        assert_eq!(tokens.sum::<u64>(), 0);
        let requests = (0..3).map(|replica| b.load(&fleet, replica).requests);
        assert_eq!(requests.sum::<u32>(), 1);
        let first = b.dest().unwrap();
        let first = first.split(',').next().unwrap();
        if content == text(1) {
            assert_eq!(first, "10.0.0.2:8000");
            assert_eq!(b.state(STATE_REASON).as_deref(), Some("prefix"));
        } else {
            assert_eq!(b.state(STATE_REASON).as_deref(), Some("load"));
        }
        b.property("upstream.address", first.as_bytes());
        b.respond(&mut r, &JSON, r#"{"count":1,"tokens":[1]}"#, 100);
        assert_eq!(notes(&b), []);
    }
    assert_eq!(b.state(STATE_PREDICTED), None);
    for name in ["matched_tokens_total", "prompt_tokens_total"] {
        assert_eq!(b.host.metric(name), 0, "{name}");
    }
}

#[test]
fn it_is_not_compared() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 2);
    fleet.holds_text(0, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    b.property("upstream.address", b"10.0.0.1:8000");
    let mut r = tokenize(&mut b, &text(1));
    let body =
        r#"{"count":1,"usage":{"prompt_tokens":700,"prompt_tokens_details":{"cached_tokens":0}}}"#;
    b.respond(&mut r, &JSON, body, 100);
    let totals = b.vm.feedback.totals(&b.host, ["p"].into_iter());
    assert_eq!(totals, []);
    // One that is computed is, and nothing of a sibling's is under way.
    let mut r = b.chat(&text(1));
    b.respond(&mut r, &JSON, body, 100);
    let totals = b.vm.feedback.totals(&b.host, ["p"].into_iter());
    assert_eq!((totals.len(), totals[0].over), (1, 1));
}

#[test]
fn without_a_table_it_leaves_no_history() {
    let mut b = bench();
    let replicas: Vec<Value> = (1..=3)
        .map(|n| json!({"endpoint": format!("10.0.0.{n}:8000")}))
        .collect();
    let json = json!({"standalone": {"pools": [{"name": "p", "replicas": replicas}]}});
    b.config = config::parse(json.to_string().as_bytes()).unwrap();
    b.config.standalone.as_ref().unwrap().publish(&b.host);
    let _held = tokenize(&mut b, &text(1));
    assert_eq!(notes(&b), []);
    let _computed = b.chat(&text(1));
    assert_ne!(notes(&b), []);
}
