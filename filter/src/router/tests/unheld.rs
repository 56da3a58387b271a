//! Headers that go on at once, where Envoy cannot be told to hold them: the pick is in filter state.

use super::bench::{Bench, bench, text};
use crate::config;
use crate::router::{
    DESTINATION_HEADER, Flow, RANK_HEADER, Request, STATE_ENDPOINT, STATE_PICK, STATE_RANK,
    STATE_REASON,
};
use crate::testing::fleet::{Fleet, MODEL};

fn unheld(fleet: &Fleet, more: &str) -> Bench {
    let mut b = bench();
    let json = format!(
        r#"{{"control_plane": {{"cluster": "cp", "token": "t"}}, "hold_headers": false{more}}}"#
    );
    b.config = config::parse(json.as_bytes()).unwrap();
    b.publish(fleet);
    b
}

/// The headers go on, then the body comes in pieces. From there on a touch of the headers fails the test.
fn send(b: &mut Bench, content: &str, ends_with_body: bool) -> Request {
    let message = serde_json::json!({"role": "user", "content": content});
    let body = serde_json::json!({"model": MODEL, "messages": [message]}).to_string();
    let json = Some("application/json");
    b.headers("POST", "/v1/chat/completions", json, Some(body.len()));
    b.header(DESTINATION_HEADER, "10.9.9.9:1");
    b.header(RANK_HEADER, "7");
    let mut r = Request::default();
    let flow = r.on_request_headers(&mut b.vm, &b.host, &b.config, false);
    assert_eq!(flow, Flow::Continue, "the headers go on");
    assert_eq!((b.dest(), b.rank()), (None, None), "a client's are removed");
    b.host.headers_gone.set(true);
    let half = body.len() / 2;
    *b.host.body.borrow_mut() = body.as_bytes()[..half].to_vec();
    let flow = r.on_request_body(&mut b.vm, &b.host, &b.config, half, false);
    assert_eq!(flow, Flow::Pause, "the body waits for its end");
    *b.host.body.borrow_mut() = body.as_bytes().to_vec();
    let all = body.len();
    let flow = r.on_request_body(&mut b.vm, &b.host, &b.config, all, ends_with_body);
    if !ends_with_body {
        assert_eq!(flow, Flow::Pause);
        let flow = r.on_request_trailers(&mut b.vm, &b.host, &b.config);
        assert_eq!(flow, Flow::Continue);
    } else {
        assert_eq!(flow, Flow::Continue);
    }
    b.host.headers_gone.set(false);
    r
}

#[test]
fn the_pick_is_in_filter_state() {
    for ends_with_body in [true, false] {
        let mut fleet = Fleet::new(1, 4, 8);
        let content: String = (0..5).map(text).collect();
        fleet.holds_text(2, &format!("user: {content}"), None);
        let mut b = unheld(&fleet, "");
        let mut r = send(&mut b, &content, ends_with_body);
        let pick = b.state(STATE_PICK).unwrap();
        assert!(pick.starts_with("10.0.0.3:8000,"), "{pick}");
        assert_eq!(b.state(STATE_ENDPOINT).unwrap(), pick);
        assert_eq!(b.state(STATE_RANK), None);
        assert_eq!((b.dest(), b.host.requests("prefix")), (None, 1));
        r.on_end(&mut b.vm, &b.host);
    }
}

#[test]
fn so_is_the_rank() {
    let mut fleet = Fleet::of_ranks(3, 2);
    fleet.holds_text(3, &format!("user: {}", text(1)), None);
    let mut b = unheld(&fleet, "");
    let mut r = send(&mut b, &text(1), true);
    let pick = b.state(STATE_PICK).unwrap();
    assert!(pick.starts_with("10.0.0.2:8000"), "{pick}");
    assert_eq!(
        (b.state(STATE_RANK).as_deref(), b.rank()),
        (Some("1"), None)
    );
    r.on_end(&mut b.vm, &b.host);
}

/// Filter state of shadow is for the access log; what Envoy obeys stays empty.
#[test]
fn nothing_is_named_in_shadow() {
    let mut b = unheld(&Fleet::new(1, 4, 8), r#", "mode": "shadow""#);
    let mut r = send(&mut b, "hi", true);
    assert!(b.state(STATE_ENDPOINT).is_some());
    assert_eq!(b.state(STATE_PICK), None);
    r.on_end(&mut b.vm, &b.host);
}

/// A body is left as it is: what its length is has gone on.
#[test]
fn no_report_is_asked_for() {
    let mut fleet = Fleet::new(1, 4, 8);
    fleet.head.pools[0].full_reports = true;
    let mut b = unheld(&fleet, r#", "full_report_sample": 1"#);
    let mut r = send(&mut b, "hi", true);
    assert_eq!(b.host.metric("named_total"), 1);
    assert_eq!(b.host.metric("full_reports_total"), 0);
    r.on_end(&mut b.vm, &b.host);
}

/// What is decided by the headers alone is still said there.
#[test]
fn a_body_that_is_not_held_has_its_header_at_once() {
    let mut b = unheld(&Fleet::new(1, 4, 8), r#", "max_body_bytes": 10"#);
    b.headers(
        "POST",
        "/v1/completions",
        Some("application/json"),
        Some(11),
    );
    let mut r = Request::default();
    let flow = r.on_request_headers(&mut b.vm, &b.host, &b.config, false);
    assert_eq!(flow, Flow::Continue);
    assert!(b.dest().is_some());
    assert_eq!(b.state(STATE_REASON).as_deref(), Some("body_too_large"));
    r.on_end(&mut b.vm, &b.host);
}
