use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

#[cfg(not(target_arch = "wasm32"))]
mod properties;

/// The body in pieces of `size` bytes.
pub(super) fn scan(framing: Framing, body: &[u8], size: usize) -> Usage {
    let mut scanner = UsageScanner::new(framing);
    for piece in body.chunks(size.max(1)) {
        scanner.feed(piece);
    }
    scanner.usage()
}

fn events(data: &[Value]) -> String {
    let event = |value: &Value| format!("event: x\ndata: {value}\n\n");
    data.iter().map(event).collect::<String>() + "data: [DONE]\n\n"
}

#[test]
fn what_vllm_writes_is_read_in_pieces_of_any_size() {
    let lines = include_str!("../../../tests/vectors/usage/vllm-0.32.jsonl").lines();
    for line in lines {
        let case: Value = serde_json::from_str(line).unwrap();
        let framing = if case["framing"] == "json" {
            Framing::Json
        } else {
            Framing::Events
        };
        let expected = Usage {
            prompt_tokens: case["prompt_tokens"].as_u64(),
            cached: match &case["cached"] {
                Value::Number(n) => Cached::Tokens(n.as_u64().unwrap()),
                Value::String(s) if s == "null" => Cached::Null,
                Value::String(s) if s == "no_figure" => Cached::NoFigure,
                _ => Cached::NoUsage,
            },
        };
        let body = case["body"].as_str().unwrap().as_bytes();
        for size in [1, 2, 3, 7, 64, 1 << 20] {
            assert_eq!(
                scan(framing, body, size),
                expected,
                "{} by {size}",
                case["name"]
            );
        }
    }
}

#[test]
fn the_last_count_holds_and_null_takes_no_counts_place() {
    let usage =
        |cached: Value| json!({"usage": {"prompt_tokens_details": {"cached_tokens": cached}}});
    let cached = |data: &[Value]| scan(Framing::Events, events(data).as_bytes(), 5).cached;
    assert_eq!(
        cached(&[usage(json!(1)), usage(json!(16))]),
        Cached::Tokens(16)
    );
    assert_eq!(
        cached(&[usage(json!(1)), usage(Value::Null)]),
        Cached::Tokens(1)
    );
    assert_eq!(cached(&[usage(Value::Null)]), Cached::Null);
    assert_eq!(cached(&[usage(json!("7"))]), Cached::Null);
    assert_eq!(cached(&[usage(json!([7]))]), Cached::Null);
    assert_eq!(cached(&[usage(json!(-7))]), Cached::Null);
    assert_eq!(cached(&[usage(json!(7.5))]), Cached::Null);
    assert_eq!(cached(&[json!({"usage": {}})]), Cached::NoFigure);
    assert_eq!(cached(&[json!({"usage": null})]), Cached::NoUsage);
}

#[test]
fn keys_elsewhere_say_nothing() {
    let usage =
        json!({"prompt_tokens_details": {"cached_tokens": 1}, "cache_read_input_tokens": 2});
    for body in [
        json!({"choices": [{"usage": usage}]}),
        json!({"choices": {"usage": usage}}),
        json!([{"usage": usage}]),
        json!({"cached_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}),
        json!({"text": usage.to_string(), "usage_": usage, "message": {"message": {"usage": usage}}}),
    ] {
        let text = body.to_string();
        assert_eq!(
            scan(Framing::Json, text.as_bytes(), 9),
            Usage::default(),
            "{text}"
        );
    }
    // Behind the first value there is nothing more.
    let text = format!("{{}} {{\"usage\":{usage}}}");
    assert_eq!(scan(Framing::Json, text.as_bytes(), 100), Usage::default());
}

#[test]
fn event_streams_of_other_hands() {
    let data = r#"{ "usage" : { "prompt_tokens" : 5 , "prompt_tokens_details" : { "cached_tokens" : 4 } } }"#;
    let expected = Usage {
        prompt_tokens: Some(5),
        cached: Cached::Tokens(4),
    };
    for stream in [
        format!("data:{data}\r\n\r\n"),
        format!(": a comment\nid: 7\ndata: {data}\n\n"),
        format!("data: [1, 2\n\ndata: {{\"broken\ndata: {data}"),
        format!("\n\n\ndata: {data}\n"),
    ] {
        for size in [1, 4, 1_000] {
            assert_eq!(
                scan(Framing::Events, stream.as_bytes(), size),
                expected,
                "{stream}"
            );
        }
    }
    for stream in ["datum: {}", "xdata: {}", "dat", "data", ""] {
        let stream = stream.replace("{}", data);
        assert_eq!(
            scan(Framing::Events, stream.as_bytes(), 3),
            Usage::default()
        );
    }
}

#[test]
fn a_number_at_the_limit() {
    let body =
        |n: &str| format!(r#"{{"usage":{{"prompt_tokens_details":{{"cached_tokens":{n}}}}}}}"#);
    let cached = |n: &str| scan(Framing::Json, body(n).as_bytes(), 3).cached;
    assert_eq!(cached("18446744073709551615"), Cached::Tokens(u64::MAX));
    assert_eq!(cached("18446744073709551616"), Cached::Null);
    assert_eq!(cached(&"9".repeat(100_000)), Cached::Null);
}

#[test]
fn the_answers_name_is_read_in_pieces_of_any_size() {
    let whole = json!({"id": "resp_0a1b", "object": "response", "output": [{"id": "msg_1"}]});
    let created =
        json!({"type": "response.created", "response": {"id": "resp_0a1b", "output": []}});
    let item = json!({"type": "response.output_item.added", "item": {"id": "msg_1"}});
    let done = json!({"type": "response.completed", "response": {"id": "resp_other"}});
    for (framing, body) in [
        (Framing::Json, whole.to_string()),
        (Framing::Events, events(&[item, created, done])),
    ] {
        for size in [1, 2, 5, 1_000] {
            let mut scanner = UsageScanner::new(framing);
            for piece in body.as_bytes().chunks(size) {
                scanner.feed(piece);
            }
            assert_eq!(scanner.id(), Some(&b"resp_0a1b"[..]), "by {size}");
        }
    }
    for odd in [
        json!({"id": ""}),
        json!({"id": "x".repeat(129)}),
        json!({"id": "a\"b"}),
        json!({"id": 7}),
        json!({"choices": [{"id": "x"}], "idx": "y"}),
    ] {
        let mut scanner = UsageScanner::new(Framing::Json);
        scanner.feed(odd.to_string().as_bytes());
        assert_eq!(scanner.id(), None, "{odd}");
    }
}
