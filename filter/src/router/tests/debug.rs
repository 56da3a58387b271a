//! What a client is told that asks.

use super::bench::{Bench, bench, text};
use crate::config;
use crate::testing::fleet::Fleet;

fn answer(b: &mut Bench, asks: Option<&str>, content: &str) -> Vec<(String, String)> {
    let body = serde_json::json!({
        "model": crate::testing::fleet::MODEL,
        "messages": [{"role": "user", "content": content}],
    });
    b.headers(
        "POST",
        "/v1/chat/completions",
        Some("application/json"),
        Some(1_000),
    );
    if let Some(asks) = asks {
        b.header("x-explain", asks);
    }
    let mut r = b.send(&body.to_string());
    let headers = [
        (":status", "200"),
        ("content-type", "application/json"),
        ("x-prefix-picker-reason", "forged"),
    ];
    b.respond(&mut r, &headers, "{}", 100);
    let all = b.host.response_headers.borrow();
    let ours = all
        .iter()
        .filter(|(name, _)| name.starts_with("x-prefix-picker-"));
    ours.map(|(n, v)| (n.clone(), v.clone())).collect()
}

#[test]
fn a_client_that_asks_is_told_where_that_is_allowed() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 2);
    let blocks = fleet.holds_text(1, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    let forged = [("x-prefix-picker-reason".to_owned(), "forged".to_owned())];
    assert_eq!(answer(&mut b, Some("1"), &text(1)), forged, "not allowed");
    let json =
        br#"{"control_plane": {"cluster": "cp", "token": "t"}, "debug_header": "x-explain"}"#;
    b.config = config::parse(json).unwrap();
    for no in [None, Some(""), Some("0"), Some("false")] {
        assert_eq!(answer(&mut b, no, &text(1)), forged, "not asked");
    }
    let told = answer(&mut b, Some("1"), &text(1));
    let names: Vec<&str> = told
        .iter()
        .map(|(name, _)| &name["x-prefix-picker-".len()..])
        .collect();
    assert_eq!(names, ["cost", "matched", "reason", "replica"]);
    assert!(told[0].1.parse::<u64>().unwrap() > 0);
    let matched: u32 = told[1].1.parse().unwrap();
    assert!(matched > 0 && matched <= blocks * 64);
    assert_eq!(
        (told[2].1.as_str(), told[3].1.as_str()),
        ("prefix", "10.0.0.2:8000")
    );
    // Not ours to place: the reason alone.
    b.headers("GET", "/", None, None);
    b.header("x-explain", "yes");
    let mut r = b.send("");
    b.respond(&mut r, &[(":status", "200")], "x", 10);
    let headers = b.host.response_headers.borrow();
    assert_eq!(headers.get("x-prefix-picker-reason").unwrap(), "method");
    assert!(!headers.contains_key("x-prefix-picker-replica"));
}

#[test]
fn a_name_that_is_no_headers_is_refused() {
    for name in ["", "X-Explain", "a b", "x:y", ":path"] {
        let json = format!(
            r#"{{"control_plane": {{"cluster": "cp", "token": "t"}}, "debug_header": "{name}"}}"#
        );
        let error = config::parse(json.as_bytes()).unwrap_err();
        assert!(error.contains("debug_header"), "{error}");
    }
}
