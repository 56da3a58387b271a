//! Asking engines for full reports, in the client's own request.

use super::bench::{Bench, bench, text};
use crate::testing::fleet::{Fleet, MODEL};

fn asking(full_reports: bool, sample: u32) -> Bench {
    let mut b = bench();
    b.config.full_report_sample = sample;
    let mut fleet = Fleet::new(1, 8, 1);
    fleet.head.pools[0].full_reports = full_reports;
    b.publish(&fleet);
    b
}

fn body(content: &str) -> String {
    format!(r#"{{ "model": "{MODEL}", "messages": [{{"role": "user", "content": "{content}"}}] }}"#)
}

/// Sends a body and returns what Envoy forwards.
fn forwarded(b: &mut Bench, body: &str, length: Option<usize>) -> String {
    b.headers(
        "POST",
        "/v1/chat/completions",
        Some("application/json"),
        length,
    );
    let mut r = b.send(body);
    r.on_end(&mut b.vm, &b.host);
    b.host.advance_ms(2_000);
    String::from_utf8(b.host.body.borrow().clone()).unwrap()
}

fn length(b: &Bench) -> Option<usize> {
    let headers = b.host.request_headers.borrow();
    headers.get("content-length").map(|v| v.parse().unwrap())
}

#[test]
fn one_in_so_many_asks_and_the_length_is_right() {
    let mut b = asking(true, 3);
    let body = body(&text(1));
    let asked = body.replacen('{', r#"{"vllm_xargs":{"kv_cache_report_mode":"full"},"#, 1);
    let mut asks = Vec::new();
    for _ in 0..7 {
        let got = forwarded(&mut b, &body, Some(body.len()));
        assert_eq!(length(&b), Some(got.len()));
        assert!(got == body || got == asked, "{got}");
        asks.push(got == asked);
    }
    assert_eq!(asks, [true, false, false, true, false, false, true]);
    assert_eq!(b.host.metric("full_reports_total"), 3);
    assert_eq!(b.host.metric("named_total"), 7);
    // Of unknown length: no length is made up.
    for expected in [&body, &body, &asked] {
        assert_eq!(&forwarded(&mut b, &body, None), expected);
    }
    assert_eq!(length(&b), None);
}

#[test]
fn nobody_asks_where_nobody_may() {
    let content = text(1);
    let plain = body(&content);
    let own = format!(
        r#"{{"vllm_xargs": {{"kv_cache_report_mode": "incremental"}}, {}"#,
        &plain[1..]
    );
    for (full_reports, sample, body) in [(true, 0, &plain), (false, 1, &plain), (true, 1, &own)] {
        let mut b = asking(full_reports, sample);
        assert_eq!(&forwarded(&mut b, body, Some(body.len())), body);
        assert_eq!(length(&b), Some(body.len()));
        assert_eq!(b.host.metric("full_reports_total"), 0);
    }
    // No room for more bytes.
    let mut b = asking(true, 1);
    b.config.max_body_bytes = plain.len() as u64 + 5;
    assert_eq!(forwarded(&mut b, &plain, Some(plain.len())), plain);
    // Not looked up.
    let mut b = asking(true, 1);
    let unknown = plain.replace("\"user\"", "7");
    assert_eq!(forwarded(&mut b, &unknown, Some(unknown.len())), unknown);
}

#[test]
fn no_more_than_one_in_a_second() {
    let mut b = asking(true, 1);
    let body = body("x");
    for _ in 0..10 {
        b.headers(
            "POST",
            "/v1/chat/completions",
            Some("application/json"),
            Some(body.len()),
        );
        let mut r = b.send(&body);
        r.on_end(&mut b.vm, &b.host);
        b.host.advance_ms(250);
    }
    assert_eq!(b.host.metric("full_reports_total"), 3);
}
