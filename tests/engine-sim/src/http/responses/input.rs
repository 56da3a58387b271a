//! A request's instructions and items as the messages of a chat.

use serde_json::{Value, json};

/// The request as a chat that goes on from the messages `before`.
pub(super) fn to_chat(body: &Value, before: Vec<Value>) -> Result<Value, String> {
    let mut messages = Vec::new();
    if let Some(text) = body["instructions"]
        .as_str()
        .filter(|text| !text.is_empty())
    {
        messages.push(json!({"role": "system", "content": text}));
    }
    messages.extend(before);
    let mut unfinished = false;
    match &body["input"] {
        Value::String(text) => messages.push(json!({"role": "user", "content": text})),
        Value::Array(items) => {
            for item in items {
                unfinished = add(&mut messages, item)?;
            }
        }
        _ => return Err("input: a string or a list of items is required".into()),
    }
    let mut chat = json!({"model": body["model"], "messages": messages, "cache_salt": body["cache_salt"],
        "max_tokens": body["max_output_tokens"], "stream": body["stream"],
        "add_generation_prompt": !unfinished, "continue_final_message": unfinished,
        "stream_options": {"include_usage": true}});
    if let Some(tools) = body["tools"].as_array().filter(|tools| !tools.is_empty()) {
        chat["tools"] = tools
            .iter()
            .filter(|t| t["type"] == "function")
            .map(tool)
            .collect();
        chat["tool_choice"] = body["tool_choice"].clone();
    }
    Ok(chat)
}

fn tool(given: &Value) -> Value {
    let mut function = json!({"name": given["name"]});
    for field in ["description", "parameters", "strict", "defer_loading"] {
        function[field] = given[field].clone();
    }
    json!({"type": "function", "function": function})
}

/// Adds an item; `true` if it says that it is not finished.
fn add(messages: &mut Vec<Value>, item: &Value) -> Result<bool, String> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => {
            let role = item["role"]
                .as_str()
                .ok_or("input: a message needs a role")?;
            let unfinished = matches!(item["status"].as_str(), Some("in_progress" | "incomplete"));
            if role != "assistant" {
                messages.push(item.clone());
                return Ok(false);
            }
            let content = match &item["content"] {
                Value::Array(parts) => parts
                    .first()
                    .map_or(Value::Null, |part| part["text"].clone()),
                content => content.clone(),
            };
            messages.push(json!({"role": role, "content": content}));
            Ok(unfinished)
        }
        // This model's template does not show it.
        "reasoning" => Ok(false),
        "function_call" => {
            let call = json!({"id": item["call_id"], "type": "function",
                "function": {"name": item["name"], "arguments": item["arguments"]}});
            match messages.last_mut() {
                Some(last) if last["role"] == "assistant" => {
                    let mut calls = last["tool_calls"].as_array().cloned().unwrap_or_default();
                    calls.push(call);
                    last["tool_calls"] = json!(calls);
                }
                _ => messages.push(json!({"role": "assistant", "tool_calls": [call]})),
            }
            Ok(false)
        }
        "function_call_output" => {
            messages.push(
                json!({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}),
            );
            Ok(false)
        }
        kind => Err(format!(
            "input: this model takes messages and function calls, not {kind}"
        )),
    }
}
