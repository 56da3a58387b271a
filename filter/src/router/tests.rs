pub(crate) mod bench;
mod debug;
mod feedback;
mod health;
mod lora;
mod modes;
mod pace;
mod ranks;
mod recent;
mod report;
mod served;
mod sessions;
mod simulation;
mod standalone;
mod stored_answers;
mod tokenize;
mod unheld;

use prefix_picker_core::prompt::Profile;
use prefix_picker_core::sync::ReplicaState;

use super::*;
use crate::pools::{self, Slot};
use crate::profiles;
use crate::testing::fleet::{Fleet, MODEL, TOKENS_PER_BLOCK};
use bench::{Bench, bench, text};

/// The reason a request is counted with, and whether it was held.
fn check(b: &mut Bench, end_of_stream: bool, reason: &str, held: bool) {
    let mut r = Request::default();
    let flow = r.on_request_headers(&mut b.vm, &b.host, &b.config, end_of_stream);
    assert_eq!(flow == Flow::Pause, held);
    if !held {
        assert_eq!(b.host.requests(reason), 1, "{reason}");
        assert_eq!(b.state(STATE_REASON).as_deref(), Some(reason));
        // Whatever else comes passes.
        assert_eq!(
            r.on_request_body(&mut b.vm, &b.host, &b.config, 5, true),
            Flow::Continue
        );
    }
    r.on_end(&mut b.vm, &b.host);
    r.on_end(&mut b.vm, &b.host);
    assert_eq!(b.host.requests("aborted"), u64::from(held));
}

#[test]
fn only_what_can_hold_a_prompt_is_held() {
    let json = Some("application/json");
    let chat = "/v1/chat/completions";
    let cases = [
        ("POST", chat, json, Some(10), false, "", true),
        ("POST", "/v1/completions?x=1", json, None, false, "", true),
        ("POST", "/v1/responses", json, Some(10), false, "", true),
        ("POST", "/v1/messages", json, Some(10), false, "", true),
        ("POST", "/v1/embeddings", json, Some(10), false, "", true),
        ("POST", "/pooling", json, Some(10), false, "", true),
        ("POST", "/classify", json, Some(10), false, "", true),
        ("POST", "/tokenize", json, Some(10), false, "", true),
        ("GET", chat, json, None, true, "method", false),
        ("POST", "/v1/models", json, Some(10), false, "path", false),
        (
            "POST",
            chat,
            Some("multipart/form-data; boundary=x"),
            Some(10),
            false,
            "content_type",
            false,
        ),
        ("POST", chat, None, Some(10), false, "content_type", false),
        ("POST", chat, json, Some(0), false, "no_body", false),
        ("POST", chat, json, None, true, "no_body", false),
        (
            "POST",
            chat,
            json,
            Some(1_048_001),
            false,
            "body_too_large",
            false,
        ),
    ];
    for (method, path, kind, length, end, reason, held) in cases {
        let mut b = bench();
        b.headers(method, path, kind, length);
        check(&mut b, end, reason, held);
    }
    let mut b = bench();
    b.header("content-encoding", "gzip");
    check(&mut b, false, "content_encoding", false);
}

#[test]
fn a_clients_own_destination_is_removed_whatever_the_request() {
    for path in ["/v1/chat/completions", "/anything"] {
        let mut b = bench();
        b.headers("POST", path, Some("application/json"), Some(2));
        b.header(DESTINATION_HEADER, "10.9.9.9:1");
        b.send("{}");
        assert_eq!(b.dest(), None);
    }
}

#[test]
fn the_replica_that_holds_the_prefix_is_named_first() {
    for holder in 0..3 {
        let mut b = bench();
        let mut fleet = Fleet::new(1, 8, 3);
        let prompt = format!("user: {}", text(1));
        let blocks = fleet.holds_text(holder, &prompt, None);
        b.publish(&fleet);
        b.chat(&text(1));
        let dest = b.dest().unwrap();
        assert_eq!(dest.split(',').count(), 3);
        assert!(
            dest.starts_with(&format!("10.0.0.{}:8000,", holder + 1)),
            "{dest}"
        );
        assert_eq!(b.host.requests("prefix"), 1);
        let predicted = (blocks * TOKENS_PER_BLOCK).to_string();
        assert_eq!(b.state(STATE_PREDICTED), Some(predicted));
        assert_eq!(b.state(STATE_ENDPOINT), b.dest());
    }
}

#[test]
fn a_longest_prompt_that_becomes_known_changes_no_block() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 3);
    fleet.holds_text(1, &text(1), None);
    let body = serde_json::json!({"model": MODEL, "prompt": text(1), "truncate_prompt_tokens": -1});
    for (max_model_len, reason) in [(0, "truncated"), (100_000, "prefix")] {
        fleet.set_profile(Profile {
            max_model_len,
            ..fleet.profile.clone()
        });
        b.publish(&fleet);
        b.headers("POST", "/v1/completions", Some("application/json"), None);
        let mut r = b.send(&body.to_string());
        assert_eq!(b.host.requests(reason), 1, "{max_model_len}");
        r.on_end(&mut b.vm, &b.host);
    }
}

#[test]
fn a_salt_is_a_namespace_of_its_own() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 3);
    fleet.holds_text(0, &text(1), Some("s"));
    b.publish(&fleet);
    for (salt, reason) in [(None, "load"), (Some("s"), "prefix"), (Some("t"), "load")] {
        let body = serde_json::json!({"model": MODEL, "prompt": text(1), "cache_salt": salt});
        b.headers("POST", "/v1/completions", Some("application/json"), None);
        let before = b.host.requests(reason);
        let mut r = b.send(&body.to_string());
        assert_eq!(b.host.requests(reason), before + 1, "{salt:?}");
        r.on_end(&mut b.vm, &b.host);
    }
}

#[test]
fn token_ids_are_looked_up_in_their_own_family() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 3);
    let ids: Vec<u32> = (0..1_000).collect();
    assert_eq!(fleet.holds_ids(2, &ids), 15);
    b.publish(&fleet);
    b.headers("POST", "/v1/completions", Some("application/json"), None);
    b.send(&serde_json::json!({"model": MODEL, "prompt": ids}).to_string());
    assert_eq!(b.state(STATE_PREDICTED).as_deref(), Some("960"));
    assert!(b.dest().unwrap().starts_with("10.0.0.3:8000"));
    assert_eq!(b.host.shared(crate::sync::TOKEN_ID_POOLS_KEY).bytes, b"p\n");
}

#[test]
fn whatever_is_missing_is_a_reason_and_load_decides_where_it_can() {
    let good = serde_json::json!({"model": MODEL, "messages": [{"role": "user", "content": "x"}]});
    let good = good.to_string();
    type Prepare = fn(&mut Bench, &mut Fleet);
    let cases: [(&str, &str, bool, Prepare); 11] = [
        ("no_head", &good, false, |_, _| ()),
        ("load", &good, true, |b, f| b.publish(f)),
        ("invalid_json", "{\"model\":", true, |b, f| b.publish(f)),
        (
            "unknown_model",
            "{\"model\":\"x\",\"messages\":[]}",
            true,
            |b, f| b.publish(f),
        ),
        ("unknown_model", &good, false, |b, f| {
            b.publish(f);
            b.property("xds.cluster_name", b"other");
        }),
        ("no_table", &good, true, |b, f| {
            b.profile(f);
            let head = f.head.encode().unwrap();
            b.host
                .set_shared(pools::KEY, &pools::encode(None, &head), 0)
                .unwrap();
        }),
        ("stale_table", &good, true, |b, f| {
            b.publish(f);
            b.vm.freshness.observe(&b.host);
            b.host.advance_ms(b.config.stale_after_ms);
        }),
        ("profile_missing", &good, true, |b, f| {
            b.publish(f);
            b.host.set_shared(&profiles::key("p"), &[], 0).unwrap();
        }),
        ("profile_broken", &good, true, |b, f| {
            f.set_profile(Profile {
                chat_template: Some("{% if %}".to_owned()),
                ..f.profile.clone()
            });
            b.publish(f);
        }),
        ("predicted_only", &good, true, |b, f| {
            f.set_profile(Fleet::predicted_only());
            b.publish(f);
        }),
        ("no_replica", &good, false, |b, f| {
            for r in &mut f.head.replicas {
                r.state = ReplicaState::Down;
            }
            b.publish(f);
        }),
    ];
    for (reason, body, named, prepare) in cases {
        let mut b = bench();
        let mut fleet = Fleet::new(1, 8, 3);
        prepare(&mut b, &mut fleet);
        b.send(body);
        assert_eq!(b.host.requests(reason), 1, "{reason}");
        assert_eq!(b.dest().is_some(), named, "{reason}");
        assert_eq!(b.state(STATE_REASON).as_deref(), Some(reason));
        let looked_up = matches!(reason, "load" | "no_replica");
        assert_eq!(b.state(STATE_PREDICTED).is_some(), looked_up, "{reason}");
    }
}

#[test]
fn bytes_that_are_no_head_or_page_are_as_good_as_none() {
    let mut b = bench();
    b.host.set_shared(pools::KEY, b"garbage", 0).unwrap();
    b.chat("x");
    assert_eq!(b.host.requests("no_head"), 1);
    let mut fleet = Fleet::new(1, 1, 3);
    fleet.holds_text(0, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    b.host
        .set_shared(&Slot::A.page_key(0), b"garbage", 0)
        .unwrap();
    b.chat(&text(1));
    assert_eq!(b.host.requests("load"), 1);
}

#[test]
fn only_live_replicas_are_named_and_warming_ones_get_no_credit() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 8, 3);
    fleet.holds_text(0, &format!("user: {}", text(1)), None);
    fleet.head.replicas[0].state = ReplicaState::Warming;
    fleet.head.replicas[1].state = ReplicaState::Draining;
    b.publish(&fleet);
    for _ in 0..20 {
        let mut r = b.chat(&text(1));
        let dest = b.dest().unwrap();
        assert!(
            dest.contains("10.0.0.1") && dest.contains("10.0.0.3"),
            "{dest}"
        );
        assert!(!dest.contains("10.0.0.2"), "{dest}");
        r.on_end(&mut b.vm, &b.host);
    }
    assert_eq!(b.host.requests("load"), 20);
}

#[test]
fn chunked_bodies_are_waited_on_up_to_the_cap_only() {
    let mut b = bench();
    b.config.max_chunked_body_bytes = 1_000;
    b.publish(&Fleet::new(1, 1, 3));
    let mut r = Request::default();
    assert_eq!(
        r.on_request_headers(&mut b.vm, &b.host, &b.config, false),
        Flow::Pause
    );
    assert_eq!(
        r.on_request_body(&mut b.vm, &b.host, &b.config, 600, false),
        Flow::Pause
    );
    assert_eq!(
        r.on_request_body(&mut b.vm, &b.host, &b.config, 1_000, false),
        Flow::Pause
    );
    assert_eq!(
        r.on_request_body(&mut b.vm, &b.host, &b.config, 1_001, false),
        Flow::Continue
    );
    assert!(b.dest().is_some());
    b.host.headers_gone.set(true);
    assert_eq!(
        r.on_request_body(&mut b.vm, &b.host, &b.config, 500, true),
        Flow::Continue
    );
    assert_eq!(
        r.on_request_trailers(&mut b.vm, &b.host, &b.config),
        Flow::Continue
    );
    assert_eq!(b.host.requests("chunked_too_large"), 1);
}

#[test]
fn without_room_for_a_piece_only_a_body_in_one_piece_is_looked_at() {
    let mut b = bench();
    b.publish(&Fleet::new(1, 1, 3));
    assert_eq!(b.config.max_chunked_body_bytes, 0);
    b.send(r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#);
    assert_eq!(b.host.requests("load"), 1);
    let mut r = Request::default();
    assert_eq!(
        r.on_request_headers(&mut b.vm, &b.host, &b.config, false),
        Flow::Pause
    );
    assert_eq!(
        r.on_request_body(&mut b.vm, &b.host, &b.config, 1, false),
        Flow::Continue
    );
    assert_eq!(b.host.requests("chunked_too_large"), 1);
    // Frames are small: HTTP/2 has room.
    b.property("request.protocol", b"HTTP/2");
    let mut r = Request::default();
    assert_eq!(
        r.on_request_headers(&mut b.vm, &b.host, &b.config, false),
        Flow::Pause
    );
    assert_eq!(
        r.on_request_body(&mut b.vm, &b.host, &b.config, 900_000, false),
        Flow::Pause
    );
    assert_eq!(
        r.on_request_body(&mut b.vm, &b.host, &b.config, 920_000, false),
        Flow::Continue
    );
}

#[test]
fn trailers_end_a_body_too() {
    let mut b = bench();
    b.property("request.protocol", b"HTTP/2");
    let mut fleet = Fleet::new(1, 8, 3);
    fleet.holds_text(1, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    let body =
        serde_json::json!({"model": MODEL, "messages": [{"role": "user", "content": text(1)}]});
    let body = body.to_string();
    let mut r = Request::default();
    assert_eq!(
        r.on_request_headers(&mut b.vm, &b.host, &b.config, false),
        Flow::Pause
    );
    *b.host.body.borrow_mut() = body.as_bytes().to_vec();
    assert_eq!(
        r.on_request_body(&mut b.vm, &b.host, &b.config, body.len(), false),
        Flow::Pause
    );
    assert_eq!(
        r.on_request_trailers(&mut b.vm, &b.host, &b.config),
        Flow::Continue
    );
    assert_eq!(b.host.requests("prefix"), 1);
    assert!(b.dest().unwrap().starts_with("10.0.0.2:8000"));
}

#[test]
fn an_empty_body_is_no_body() {
    let mut b = bench();
    b.send("");
    assert_eq!(b.host.requests("no_body"), 1);
}

#[test]
fn a_body_of_any_bytes_continues() {
    let mut b = bench();
    b.publish(&Fleet::new(1, 1, 3));
    let bodies = [
        "[]",
        "null",
        "{}",
        "\u{0}",
        "{\"model\":1,\"messages\":7}",
        "{\"model\":\"m\"}",
    ];
    for body in bodies {
        b.send(body).on_end(&mut b.vm, &b.host);
    }
    let counted: u64 = Reason::all().map(|r| b.host.requests(r.as_str())).sum();
    assert_eq!(counted, bodies.len() as u64);
}

/// What an engine was doing when the control plane went away says nothing about it now.
#[test]
fn old_news_of_an_engines_load_does_not_keep_requests_away() {
    let mut b = bench();
    let mut fleet = Fleet::new(1, 4, 2);
    fleet.head.replicas[0].running = 40;
    b.publish(&fleet);
    let firsts = |b: &mut Bench| {
        let mut firsts = Vec::new();
        for n in 0..20 {
            b.chat(&text(n)).on_end(&mut b.vm, &b.host);
            firsts.push(b.dest().unwrap().starts_with("10.0.0.1:"));
        }
        firsts
    };
    assert!(firsts(&mut b).iter().all(|busy| !busy));
    b.host.advance_ms(4_000);
    assert!(firsts(&mut b).contains(&true));
}
