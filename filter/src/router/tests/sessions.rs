//! A session decides where nothing else does, and never more than that.

use std::collections::BTreeSet;

use super::bench::{Bench, bench, text};
use crate::router::Request;
use crate::testing::fleet::{Fleet, MODEL};

fn fleet(profile: bool) -> Bench {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 8);
    if !profile {
        fleet.set_profile(Fleet::predicted_only());
    }
    b.publish(&fleet);
    b
}

fn send(b: &mut Bench, session: Option<&str>, content: &str) -> (Request, String) {
    let body = serde_json::json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": content}],
    });
    b.headers(
        "POST",
        "/v1/chat/completions",
        Some("application/json"),
        Some(100),
    );
    if let Some(session) = session {
        b.header("x-session-id", session);
    }
    let request = b.send(&body.to_string());
    let dest = b.dest().unwrap();
    (request, dest.split(',').next().unwrap().to_owned())
}

/// Where a request of a session goes.
fn first(b: &mut Bench, session: Option<&str>, content: &str) -> String {
    let (mut request, first) = send(b, session, content);
    request.on_end(&mut b.vm, &b.host);
    first
}

#[test]
fn a_session_has_a_home_where_prompts_cannot_be_told() {
    let mut b = fleet(false);
    let mut homes = BTreeSet::new();
    for session in 0..40 {
        let session = format!("session {session}");
        let turns = (0..4).map(|turn| first(&mut b, Some(&session), &text(turn)));
        let turns: BTreeSet<String> = turns.collect();
        assert_eq!(turns.len(), 1, "{session}");
        homes.extend(turns);
    }
    assert!(homes.len() >= 6, "{homes:?}");
    let anywhere: BTreeSet<String> = (0..40).map(|n| first(&mut b, None, &text(n))).collect();
    assert!(anywhere.len() >= 6, "{anywhere:?}");
}

#[test]
fn a_session_decides_among_equals_and_not_against_a_prefix() {
    let mut b = fleet(true);
    let home = first(&mut b, Some("s"), "short");
    for n in 0..4 {
        assert_eq!(first(&mut b, Some("s"), &format!("other {n}")), home);
    }
    // Somebody holds this one.
    let mut fleet = Fleet::new(1, 8, 8);
    let holder = if home == "10.0.0.3:8000" { 3 } else { 2 };
    let long: String = (0..5).map(text).collect();
    fleet.holds_text(holder, &format!("user: {long}"), None);
    b.publish(&fleet);
    let expected = format!("10.0.0.{}:8000", holder + 1);
    assert_eq!(first(&mut b, Some("s"), &long), expected);
}

#[test]
fn a_busy_home_is_left() {
    let mut b = fleet(false);
    let held: Vec<(Request, String)> = (0..60).map(|_| send(&mut b, Some("s"), "x")).collect();
    let used: BTreeSet<&str> = held.iter().map(|(_, first)| first.as_str()).collect();
    assert!(used.len() > 1, "{used:?}");
}

/// A value that names an endpoint is a name like any other.
#[test]
fn a_forged_session_chooses_no_endpoint() {
    let mut b = fleet(false);
    let hits = (1..=8)
        .map(|n| format!("10.0.0.{n}:8000"))
        .filter(|endpoint| first(&mut b, Some(endpoint), "x") == *endpoint)
        .count();
    assert!(hits < 5, "{hits}");
}
