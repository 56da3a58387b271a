//! `/v1/responses` -> the shape of chat completions.
//!
//! One assistant message may be spread over several items (reasoning, text, tool calls); they are
//! put together again. What the engine's request models do with the items (several hundred shapes
//! in a union) is reproduced for those that it can render; others it refuses.

use minijinja::value::{Value, ValueKind};

use super::{Map, elements, is_one_of, optional, optional_str};
use crate::prompt::request::field;
use crate::prompt::{Rules, Skip};

mod items;
mod tools;

use items::add;
use tools::{tool_choice, tools};

const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// The same request as a chat.
///
/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses, [`Skip::StoredHistory`] where only the
/// engine knows what was said before.
pub(super) fn to_chat(body: &Value, rules: &Rules) -> Result<Value, Skip> {
    if field(body, "prompt").is_some() {
        return Err(Skip::InvalidRequest);
    }
    if optional_str(body, "previous_response_id")?.is_some() {
        return Err(Skip::StoredHistory);
    }
    let input = field(body, "input").ok_or(Skip::InvalidRequest)?;
    let (messages, unfinished) = match input.as_str() {
        Some(_) => (vec![text_message("user", input.clone())], false),
        None => conversation(&input)?,
    };
    let instructions = optional_str(body, "instructions")?;
    let instructions = instructions.filter(|text| text.is_true());
    let system = instructions.map(|text| text_message("system", text));
    let messages: Vec<Value> = system.into_iter().chain(messages).collect();
    let mut chat = Map::default()
        .with("messages", messages)
        .with("add_generation_prompt", !unfinished)
        .with("continue_final_message", unfinished)
        .copy(body, &["chat_template_kwargs", "kv_transfer_params"]);
    let tools = tools(body)?;
    tool_choice(body, tools.is_some())?;
    if let Some(tools) = tools {
        // Older versions show them in another shape.
        if !rules.lenient_arguments {
            return Err(Skip::Unsupported);
        }
        chat = chat.with("tools", tools).copy(body, &["tool_choice"]);
    }
    if let Some(effort) = effort(body)? {
        chat = chat.with("reasoning_effort", effort);
    }
    match body.get_attr("truncation") {
        Ok(choice) if choice.is_undefined() || choice.as_str() == Some("disabled") => {}
        Ok(choice) if choice.is_none() || choice.as_str() == Some("auto") => {
            chat = chat.with("truncate_prompt_tokens", -1);
        }
        _ => return Err(Skip::InvalidRequest),
    }
    Ok(chat.value())
}

fn text_message(role: &'static str, content: Value) -> Value {
    Map::default()
        .with("role", role)
        .with("content", content)
        .value()
}

fn effort(body: &Value) -> Result<Option<Value>, Skip> {
    let Some(reasoning) = optional(body, "reasoning", ValueKind::Map)? else {
        return Ok(None);
    };
    let effort = field(&reasoning, "effort");
    if effort.as_ref().is_some_and(|e| !is_one_of(e, &EFFORTS)) {
        return Err(Skip::InvalidRequest);
    }
    Ok(effort)
}

/// An assistant's message in the making, or any other that is done.
enum Message {
    Assistant {
        content: Option<Value>,
        reasoning: Option<Value>,
        calls: Vec<Value>,
        /// `name` and `task` of an item that was taken as it is.
        rest: Map,
    },
    Other(Value),
}

impl Message {
    fn value(self) -> Value {
        match self {
            Self::Other(value) => value,
            Self::Assistant {
                content,
                reasoning,
                calls,
                rest,
            } => {
                let mut map = rest.with("role", "assistant");
                if let Some(content) = content {
                    map = map.with("content", content);
                }
                if let Some(reasoning) = reasoning {
                    map = map.with("reasoning", reasoning);
                }
                if !calls.is_empty() {
                    map = map.with("tool_calls", calls);
                }
                map.value()
            }
        }
    }
}

/// The messages, and whether the last item was left unfinished.
fn conversation(items: &Value) -> Result<(Vec<Value>, bool), Skip> {
    let mut messages = Vec::new();
    let mut unfinished = false;
    for item in elements(items)? {
        if item.kind() != ValueKind::Map {
            return Err(Skip::InvalidRequest);
        }
        unfinished = add(&mut messages, &item)?;
    }
    Ok((
        messages.into_iter().map(Message::value).collect(),
        unfinished,
    ))
}
