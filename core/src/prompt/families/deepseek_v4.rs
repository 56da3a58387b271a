//! DeepSeek V4 and V4.1 (vLLM 0.32: `tokenizers/deepseek_v4.py`, `deepseek_v41.py` and their
//! encodings).
//!
//! Thinking is on unless it is switched off; tools belong to the first system message; tool results
//! become blocks of a user message, in the order of the calls. V4.1 has other tags, a budget for
//! reasoning in figures, and system messages in the middle that count as the user's.

use minijinja::value::{Value, ValueKind};

use super::deepseek::Tags;
use super::{Request, Turn, items};
use crate::prompt::request::field;
use crate::prompt::{Skip, messages};

mod blocks;
mod writer;

use writer::Writer;

const V4_TAGS: Tags = Tags {
    calls: "tool_calls",
    invoke: "invoke",
    parameter: "parameter",
};
const V41_TAGS: Tags = Tags {
    calls: " calls",
    invoke: " invoke",
    parameter: " parameter",
};

const EFFORT_HIGH: &str = "Reasoning Effort: Absolute maximum with no shortcuts permitted.\nYou MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\nExplicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";
const EFFORT_MAX: &str = "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\nYou MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.\nDo not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.\n\n";

/// DeepSeek V4's text.
///
/// # Errors
/// [`Skip::InvalidRequest`] for conversations that the engine refuses.
pub(super) fn render_v4(request: &Request) -> Result<String, Skip> {
    let mut thinking = thinks(request);
    let effort = match request.kwarg("reasoning_effort").map(Value::as_str) {
        None | Some(None) => EFFORT_HIGH,
        Some(Some("none")) => {
            thinking = false;
            ""
        }
        Some(Some("max")) => EFFORT_MAX,
        Some(Some("low" | "minimal" | "medium")) => "",
        Some(Some(_)) => EFFORT_HIGH,
    };
    let mut turns = request.turns.clone();
    for turn in &mut turns {
        if turn.role != "tool" {
            turn.content = Value::from(flattened(&turn.content)?);
        }
    }
    attach_tools(&mut turns, request.tools.as_ref());
    let writer = Writer {
        v41: false,
        tags: V4_TAGS,
        effort: effort.to_owned(),
        thinking,
        ..Writer::default()
    };
    writer.render(turns, drops_thinking(request))
}

/// DeepSeek V4.1's text. It is made from the messages as they came, `body`'s.
///
/// # Errors
/// [`Skip::InvalidRequest`] for conversations that the engine refuses.
pub(super) fn render_v41(request: &Request, body: &Value) -> Result<String, Skip> {
    let mut thinking = thinks(request);
    let budget = match request.kwarg("reasoning_effort") {
        None => 75,
        Some(effort) => match effort.as_str() {
            Some("none") => {
                thinking = false;
                75
            }
            Some("low") => 50,
            Some("high" | "xhigh") => 75,
            Some("max") => 100,
            _ => budget(effort).ok_or(Skip::InvalidRequest)?,
        },
    };
    let given = field(body, "messages").ok_or(Skip::InvalidRequest)?;
    let mut turns = Vec::with_capacity(request.turns.len());
    for (turn, given) in request.turns.iter().zip(items(&given)) {
        turns.push(as_given(turn, &given)?);
    }
    attach_tools(&mut turns, request.tools.as_ref());
    let effort = format!(
        "Reasoning Effort: {budget} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
    );
    let writer = Writer {
        v41: true,
        tags: V41_TAGS,
        effort,
        thinking,
        ..Writer::default()
    };
    writer.render(turns, drops_thinking(request))
}

fn thinks(request: &Request) -> bool {
    let (thinking, enabled) = (request.kwarg("thinking"), request.kwarg("enable_thinking"));
    match (thinking, enabled) {
        (None, None) => true,
        (thinking, enabled) => [thinking, enabled]
            .into_iter()
            .flatten()
            .any(Value::is_true),
    }
}

fn drops_thinking(request: &Request) -> bool {
    request
        .kwarg("drop_thinking")
        .is_none_or(|drops| drops.is_true())
}

/// A whole number from 1 to 100.
fn budget(effort: &Value) -> Option<i64> {
    let number = effort.kind() == ValueKind::Number && effort.is_integer();
    let budget = effort.as_i64().filter(|_| number)?;
    (1..=100).contains(&budget).then_some(budget)
}

/// The request's tools go to the first system message; without one they get one in front.
fn attach_tools(turns: &mut Vec<Turn>, tools: Option<&Value>) {
    let Some(tools) = tools else { return };
    match turns.iter_mut().find(|turn| turn.role == "system") {
        Some(system) => system.tools = Some(tools.clone()),
        None => turns.insert(
            0,
            Turn {
                role: "system".to_owned(),
                tools: Some(tools.clone()),
                ..Turn::default()
            },
        ),
    }
}

/// Text parts with an empty line between them.
fn flattened(content: &Value) -> Result<String, Skip> {
    if let Some(text) = content.as_str() {
        return Ok(text.to_owned());
    }
    let mut texts = Vec::new();
    for part in items(content) {
        let text = field(&part, "text").filter(|_| is_type(&part, &["text"]));
        let text = text.and_then(|text| text.as_str().map(str::to_owned));
        texts.push(text.ok_or(Skip::InvalidRequest)?);
    }
    Ok(texts.join("\n\n"))
}

fn is_type(part: &Value, types: &[&str]) -> bool {
    field(part, "type").is_some_and(|kind| types.contains(&kind.as_str().unwrap_or_default()))
}

/// V4.1 reads a message's content, and a few keys more, as they came.
fn as_given(turn: &Turn, given: &Value) -> Result<Turn, Skip> {
    if !["system", "developer", "user", "assistant", "tool"].contains(&turn.role.as_str()) {
        return Err(Skip::InvalidRequest);
    }
    if turn.role == "user" && field(given, "content_blocks").is_some() {
        return Err(Skip::Unsupported);
    }
    let content = field(given, "content").unwrap_or_default();
    let text = match content.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let mut texts = Vec::new();
            for part in items(&content) {
                if !is_type(&part, &["text", "input_text", "output_text"]) {
                    return Err(Skip::InvalidRequest);
                }
                let text = part.get_attr("text").unwrap_or_default();
                match text.as_str() {
                    Some(text) => texts.push(text.to_owned()),
                    None if text.is_undefined() => texts.push(String::new()),
                    None => return Err(Skip::InvalidRequest),
                }
            }
            texts.join("\n\n")
        }
    };
    let tools = field(given, "tools").filter(Value::is_true);
    Ok(Turn {
        content: Value::from(text),
        tools: tools.map(|tools| messages::developer_tools(&tools)),
        response_format: field(given, "response_format").filter(Value::is_true),
        is_open: field(given, "wo_eos").is_some_and(|open| open.is_true()),
        ..turn.clone()
    })
}
