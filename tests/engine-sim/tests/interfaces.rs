//! Interfaces beside chat and text completions: `/v1/messages`, `/v1/responses`, `/v1/embeddings`.
#![allow(clippy::unwrap_used, clippy::expect_used)] // how tests fail

#[path = "support.rs"]
mod support;

use engine_sim::Config;
use serde_json::{Value, json};
use support::{post, start};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn rules() -> String {
    "You are a careful assistant. Answer briefly, name your source. ".repeat(6)
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]})
}

/// The events of a stream: kind and data, which tells the kind again.
fn events(text: &str) -> Vec<Value> {
    let event = |text: &str| {
        let (kind, data) = text.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(kind.strip_prefix("event: "), data["type"].as_str());
        data
    };
    text.split("\n\n")
        .filter(|text| !text.is_empty())
        .map(event)
        .collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = events.iter().filter_map(|e| e["type"].as_str()).collect();
    kinds.dedup();
    kinds
}

/// A conversation in three interfaces is one prompt: the second finds all that the first computed.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_conversation_is_the_same_prompt() {
    let turns = json!([{"role": "user", "content": "Where is my parcel?"},
        {"role": "assistant", "content": "In Lyon."}, {"role": "user", "content": "And now?"}]);
    let mut messages = vec![json!({"role": "system", "content": rules()})];
    messages.extend(turns.as_array().unwrap().clone());
    let function = json!({"name": "track", "description": "Find a parcel"});
    let with = |key: &str| {
        let mut tool = function.clone();
        tool[key] = schema();
        tool
    };
    let chat = json!({"model": "sim", "messages": messages, "max_tokens": 9,
        "tools": [{"type": "function", "function": with("parameters")}]});
    let anthropic = json!({"model": "sim", "system": [{"type": "text", "text": rules()}], "messages": turns,
        "max_tokens": 9, "tools": [with("input_schema")]});
    let mut tool = with("parameters");
    tool["type"] = json!("function");
    let response = json!({"model": "sim", "instructions": rules(), "input": turns, "max_output_tokens": 9, "tools": [tool]});
    let engine = start(Config::default());
    let count = post(&engine, CHAT, &chat).await.json()["usage"]["prompt_tokens"]
        .as_u64()
        .unwrap();
    let most = count / 16 * 16;
    let usage = post(&engine, MESSAGES, &anthropic).await.json()["usage"].clone();
    let told = |usage: &Value, field: &str| usage[field].as_u64().unwrap();
    assert_eq!(told(&usage, "cache_read_input_tokens"), most);
    assert_eq!(
        told(&usage, "input_tokens") + told(&usage, "cache_creation_input_tokens"),
        count - most
    );
    let usage = post(&engine, RESPONSES, &response).await.json()["usage"].clone();
    assert_eq!(told(&usage["input_tokens_details"], "cached_tokens"), most);
    assert_eq!(told(&usage, "input_tokens"), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_streamed_as_they_are_answered() {
    let engine = start(Config::default());
    let mut body = json!({"model": "sim", "system": rules(), "max_tokens": 60,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Größe? 🚀"}]}]});
    let whole = post(&engine, MESSAGES, &body).await.json();
    body["stream"] = json!(true);
    let events = events(&post(&engine, MESSAGES, &body).await.text);
    assert_eq!(
        kinds(&events),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let text: String = events
        .iter()
        .filter_map(|e| e["delta"]["text"].as_str())
        .collect();
    assert_eq!(json!(text), whole["content"][0]["text"]);
    let delta = &events[events.len() - 2];
    assert_eq!(delta["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(
        delta["usage"]["output_tokens"],
        whole["usage"]["output_tokens"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_call_tools_and_take_results() {
    let engine = start(Config::default());
    let mut body = json!({"model": "sim", "system": rules(), "max_tokens": 400,
        "messages": [{"role": "user", "content": "Look it up."}],
        "tools": [{"name": "track", "input_schema": schema()}]});
    let answer = post(&engine, MESSAGES, &body).await.json();
    assert_eq!(answer["stop_reason"], "tool_use");
    let used = answer["content"][0].clone();
    assert!(used["input"]["number"].is_string());
    body["stream"] = json!(true);
    let streamed = events(&post(&engine, MESSAGES, &body).await.text);
    let input = streamed
        .iter()
        .find_map(|e| e["delta"]["partial_json"].as_str())
        .unwrap();
    assert_eq!(serde_json::from_str::<Value>(input).unwrap(), used["input"]);
    body["stream"] = json!(false);
    let result = json!({"type": "tool_result", "tool_use_id": used["id"], "content": "Lyon"});
    let turns = body["messages"].as_array_mut().unwrap();
    turns.push(json!({"role": "assistant", "content": [used]}));
    turns.push(json!({"role": "user", "content": [result]}));
    let second = post(&engine, MESSAGES, &body).await.json();
    assert_eq!(second["stop_reason"], "end_turn");
    // The last generated token was never computed.
    let generated = answer["usage"]["output_tokens"].as_u64().unwrap();
    assert!(second["usage"]["cache_read_input_tokens"].as_u64().unwrap() + 16 > generated + 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_refused_in_anthropics_form() {
    let engine = start(Config::default());
    let user = json!([{"role": "user", "content": "x"}]);
    for (body, status, kind) in [
        (
            json!({"model": "sim", "messages": user}),
            400,
            "invalid_request_error",
        ),
        (
            json!({"model": "other", "max_tokens": 5, "messages": user}),
            404,
            "not_found_error",
        ),
        (
            json!({"model": "sim", "max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]}),
            400,
            "invalid_request_error",
        ),
    ] {
        let answer = post(&engine, MESSAGES, &body).await;
        assert_eq!(answer.status, status, "{body}");
        assert_eq!(answer.json()["type"], "error");
        assert_eq!(answer.json()["error"]["type"], kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_are_streamed_and_go_on_from_stored_ones() {
    let engine = start(Config::default());
    let body = json!({"model": "sim", "instructions": rules(), "input": "Where is my parcel?", "max_output_tokens": 60, "stream": true});
    let stream = events(&post(&engine, RESPONSES, &body).await.text);
    assert_eq!(
        kinds(&stream),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
    assert!(
        stream
            .iter()
            .enumerate()
            .all(|(n, e)| e["sequence_number"] == n)
    );
    let text: String = stream.iter().filter_map(|e| e["delta"].as_str()).collect();
    let first = &stream.last().unwrap()["response"];
    assert_eq!(first["output"][0]["content"][0]["text"], json!(text));
    let said = json!({"role": "user", "content": "And now?"});
    let on = json!({"model": "sim", "instructions": rules(), "input": [said], "previous_response_id": first["id"], "max_output_tokens": 9});
    let again = json!({"model": "sim", "instructions": rules(), "max_output_tokens": 9,
        "input": [{"role": "user", "content": "Where is my parcel?"}, first["output"][0], said]});
    let (on, again) = (
        post(&engine, RESPONSES, &on).await.json(),
        post(&engine, RESPONSES, &again).await.json(),
    );
    let total = first["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(
        on["usage"]["input_tokens_details"]["cached_tokens"],
        (total - 1) / 16 * 16
    );
    assert_eq!(on["usage"]["input_tokens"], again["usage"]["input_tokens"]);
    assert_eq!(on["output"][0]["content"], again["output"][0]["content"]);
    let unknown = json!({"model": "sim", "input": "?", "previous_response_id": "resp_x"});
    assert_eq!(post(&engine, RESPONSES, &unknown).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooling_engine_embeds_and_does_nothing_else() {
    let engine = start(Config {
        pooling: true,
        ..Config::default()
    });
    let body = json!({"model": "sim", "input": [rules(), rules()]});
    let answer = post(&engine, "/v1/embeddings", &body).await;
    let data = answer.json()["data"].clone();
    assert_eq!(data[0]["embedding"], data[1]["embedding"]);
    assert_eq!(data[0]["embedding"].as_array().unwrap().len(), 16);
    let again = post(&engine, "/v1/embeddings", &body).await;
    let cached: Vec<u64> = again
        .cached
        .split(',')
        .map(|n| n.parse().unwrap())
        .collect();
    assert!(cached.iter().all(|&n| n > 32), "{cached:?}");
    assert_eq!(post(&engine, CHAT, &support::chat("x")).await.status, 404);
    let generating = start(Config::default());
    assert_eq!(post(&generating, "/v1/embeddings", &body).await.status, 404);
}
