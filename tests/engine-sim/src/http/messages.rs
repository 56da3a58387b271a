//! `/v1/messages`, Anthropic's interface: converted to a chat and back, as vLLM 0.32 does
//! (`entrypoints/anthropic/serving.py`). Text and tools; no images, no thinking.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::answer::{self, Form, Kind};
use super::{ApiError, App, openai, parse};

const BILLING_HEADER: &str = "x-anthropic-billing-header";

pub(super) async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let answered = async {
        let read = move || to_chat(&parse(&body)?).map_err(ApiError::bad_request);
        let (call, outputs) = openai::submit(&app, Kind::Chat, headers, read).await?;
        answer::respond(app, call, outputs, Box::new(Messages::default())).await
    };
    answered.await.unwrap_or_else(refused)
}

/// An error in Anthropic's form.
fn refused(ApiError(status, _, message): ApiError) -> Response {
    let kind = match status.as_u16() {
        400 => "invalid_request_error",
        404 => "not_found_error",
        503 => "overloaded_error",
        _ => "internal_error",
    };
    let body = json!({"type": "error", "error": {"type": kind, "message": message}});
    (status, axum::Json(body)).into_response()
}

/// The request as a chat.
fn to_chat(body: &Value) -> Result<Value, String> {
    if body["model"].as_str().is_none_or(str::is_empty) || body["max_tokens"].is_null() {
        return Err("model and max_tokens are required".into());
    }
    let mut messages = Vec::new();
    let system = match &body["system"] {
        Value::String(text) => text.clone(),
        blocks => texts(blocks)
            .filter(|t| !t.starts_with(BILLING_HEADER))
            .collect(),
    };
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    let given = body["messages"]
        .as_array()
        .ok_or("messages: a list is required")?;
    for message in given {
        add(&mut messages, message)?;
    }
    let mut chat = json!({"model": body["model"], "messages": messages, "max_tokens": body["max_tokens"],
        "cache_salt": body["cache_salt"], "stream": body["stream"]});
    if body["stream"] == true {
        chat["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    }
    if let Some(tools) = body["tools"].as_array() {
        chat["tools"] = tools.iter().map(tool).collect();
        let none = body["tool_choice"]["type"] == "none";
        chat["tool_choice"] = json!(if none { "none" } else { "auto" });
    }
    Ok(chat)
}

fn tool(given: &Value) -> Value {
    let mut function = json!({"name": given["name"], "description": given["description"],
        "parameters": given["input_schema"]});
    for optional in ["strict", "defer_loading"] {
        function[optional] = given[optional].clone();
    }
    json!({"type": "function", "function": function})
}

/// The texts of a list of blocks.
fn texts(blocks: &Value) -> impl Iterator<Item = &str> {
    let blocks = blocks.as_array().into_iter().flatten();
    blocks
        .filter(|b| b["type"] == "text")
        .filter_map(|b| b["text"].as_str())
}

/// Adds what becomes of a message: the results of tools go before its text.
fn add(messages: &mut Vec<Value>, message: &Value) -> Result<(), String> {
    let role = message["role"]
        .as_str()
        .ok_or("messages: each needs a role")?;
    let content = &message["content"];
    let Some(blocks) = content.as_array() else {
        messages.push(json!({"role": role, "content": content}));
        return Ok(());
    };
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block["type"].as_str().unwrap_or_default() {
            "text" if block["text"] != "" => {
                parts.push(json!({"type": "text", "text": block["text"]}))
            }
            "text" => {}
            "tool_use" => {
                let arguments = block["input"].to_string();
                calls.push(json!({"id": block["id"], "type": "function",
                    "function": {"name": block["name"], "arguments": arguments}}));
            }
            "tool_result" => {
                let text = match &block["content"] {
                    Value::String(text) => text.clone(),
                    blocks => texts(blocks).collect::<Vec<_>>().join("\n"),
                };
                messages.push(
                    json!({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}),
                );
            }
            kind => {
                return Err(format!(
                    "messages: this model takes text and tools, not {kind}"
                ));
            }
        }
    }
    if parts.is_empty() && calls.is_empty() {
        return Ok(());
    }
    let mut out = json!({"role": role});
    match parts.as_slice() {
        [] => {}
        [one] => out["content"] = one["text"].clone(),
        _ => out["content"] = json!(parts),
    }
    if !calls.is_empty() {
        out["tool_calls"] = json!(calls);
    }
    messages.push(out);
    Ok(())
}

/// `input_tokens` are those neither found cached nor put there.
fn usage(chat: &Value) -> Value {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let details = &chat["prompt_tokens_details"];
    let (read, created) = (
        count(&details["cached_tokens"]),
        count(&details["created_cache_tokens"]),
    );
    let fresh = count(&chat["prompt_tokens"]).saturating_sub(read + created);
    json!({"input_tokens": fresh, "output_tokens": chat["completion_tokens"],
        "cache_creation_input_tokens": created, "cache_read_input_tokens": read})
}

fn stop_reason(finish: &Value) -> &'static str {
    match finish.as_str() {
        Some("length") => "max_tokens",
        Some("tool_calls") => "tool_use",
        _ => "end_turn",
    }
}

fn event(kind: &str, mut data: Value) -> String {
    data["type"] = json!(kind);
    format!("event: {kind}\ndata: {data}\n\n")
}

/// Where a stream is.
#[derive(Default)]
struct Messages {
    started: bool,
    /// Blocks ended, so the number of the open one.
    index: usize,
    /// A text block is open.
    in_text: bool,
    finish: Value,
}

impl Messages {
    fn close(&mut self) -> String {
        if !std::mem::take(&mut self.in_text) {
            return String::new();
        }
        self.index += 1;
        event("content_block_stop", json!({"index": self.index - 1}))
    }

    fn block(&mut self, block: &Value, delta: &Value) -> String {
        event(
            "content_block_start",
            json!({"index": self.index, "content_block": block}),
        ) + &event(
            "content_block_delta",
            json!({"index": self.index, "delta": delta}),
        )
    }

    fn text(&mut self, text: &Value) -> String {
        let delta = json!({"type": "text_delta", "text": text});
        if self.in_text {
            return event(
                "content_block_delta",
                json!({"index": self.index, "delta": delta}),
            );
        }
        self.in_text = true;
        self.block(&json!({"type": "text", "text": ""}), &delta)
    }

    fn tool(&mut self, call: &Value) -> String {
        let function = &call["function"];
        let block =
            json!({"type": "tool_use", "id": call["id"], "name": function["name"], "input": {}});
        let delta = json!({"type": "input_json_delta", "partial_json": function["arguments"]});
        let begun = self.close() + &self.block(&block, &delta);
        self.index += 1;
        begun + &event("content_block_stop", json!({"index": self.index - 1}))
    }
}

impl Form for Messages {
    fn whole(&mut self, chat: Value) -> Value {
        let choice = &chat["choices"][0];
        let message = &choice["message"];
        let mut content = Vec::new();
        if message["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
        {
            content.push(json!({"type": "text", "text": message["content"]}));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
            content.push(json!({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": input}));
        }
        json!({"id": chat["id"], "type": "message", "role": "assistant", "content": content, "model": chat["model"],
            "stop_reason": stop_reason(&choice["finish_reason"]), "usage": usage(&chat["usage"])})
    }

    fn chunk(&mut self, chunk: &Value) -> String {
        if !std::mem::replace(&mut self.started, true) {
            let usage =
                json!({"input_tokens": chunk["usage"]["prompt_tokens"], "output_tokens": 0});
            return event(
                "message_start",
                json!({"message": {"id": chunk["id"], "type": "message", "role": "assistant",
                "content": [], "model": chunk["model"], "stop_reason": null, "stop_sequence": null, "usage": usage}}),
            );
        }
        let choice = &chunk["choices"][0];
        if choice.is_null() {
            let delta = json!({"stop_reason": stop_reason(&self.finish), "stop_sequence": null});
            let data = json!({"delta": delta, "usage": usage(&chunk["usage"])});
            return self.close() + &event("message_delta", data);
        }
        if !choice["finish_reason"].is_null() {
            self.finish = choice["finish_reason"].clone();
        }
        let delta = &choice["delta"];
        let mut out = String::new();
        if delta["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
        {
            out += &self.text(&delta["content"]);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            out += &self.tool(call);
        }
        out
    }

    fn end(&mut self) -> String {
        event("message_stop", json!({}))
    }
}
