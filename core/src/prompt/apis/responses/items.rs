//! Items of a conversation, one after the other.

use minijinja::value::{Value, ValueKind};

use super::super::{Map, elements, has, is_one_of, optional_str, required_str};
use super::Message;
use super::tools::flat_name;
use crate::prompt::Skip;
use crate::prompt::request::field;

const STATUSES: [&str; 3] = ["in_progress", "completed", "incomplete"];
const UNFINISHED: [&str; 2] = ["in_progress", "incomplete"];

/// Adds an item to the conversation; `true` if it says that it is not finished.
pub(super) fn add(messages: &mut Vec<Message>, item: &Value) -> Result<bool, Skip> {
    let given = item.get_attr("type").unwrap_or_default();
    let kind = given.as_str();
    if kind.is_none() && !given.is_undefined() && !given.is_none() {
        return Err(Skip::InvalidRequest);
    }
    match kind {
        None | Some("message" | "item_reference") => message(messages, item, kind),
        Some("reasoning") => reasoning(messages, item),
        Some("function_call") => {
            add_call(messages, function_call(item)?);
            Ok(false)
        }
        Some("custom_tool_call") => {
            add_call(messages, custom_call(item)?);
            Ok(false)
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            messages.push(Message::Other(output(item)?));
            Ok(false)
        }
        Some("additional_tools") => {
            messages.push(Message::Other(additional_tools(item)?));
            Ok(false)
        }
        Some(_) => Err(Skip::InvalidRequest),
    }
}

fn message(messages: &mut Vec<Message>, item: &Value, kind: Option<&str>) -> Result<bool, Skip> {
    let role = required_str(item, "role")?;
    let content = item.get_attr("content").unwrap_or_default();
    let is_assistant = role.as_str() == Some("assistant");
    let status = field(item, "status");
    let unfinished = status.is_some_and(|s| is_one_of(&s, &UNFINISHED));
    if is_assistant
        && kind == Some("message")
        && let Some(text) = output_text(item, &content)?
    {
        add_text(messages, text);
        return Ok(unfinished);
    }
    // Whatever has an id is taken for a reference to an item, and then for a message all the same.
    let is_reference =
        kind != Some("message") && field(item, "id").is_some_and(|id| id.as_str().is_some());
    if !is_reference {
        let is_typed = kind == Some("message") || !has(item, "type");
        let role_fits = is_assistant || is_one_of(&role, &["user", "system", "developer"]);
        if !is_typed || !role_fits {
            return Err(Skip::InvalidRequest);
        }
        check_content(&content)?;
    }
    let unfinished = unfinished && kind != Some("item_reference");
    if is_assistant && let Some(text) = first_text(&content)? {
        add_text(messages, text);
        return Ok(unfinished);
    }
    messages.push(if is_assistant {
        Message::Assistant {
            content: Some(content).filter(|content| !content.is_undefined() && !content.is_none()),
            reasoning: field(item, "reasoning"),
            calls: Vec::new(),
            rest: Map::default().copy(item, &["name", "task"]),
        }
    } else {
        Message::Other(item.clone())
    });
    Ok(unfinished)
}

/// A developer's message without content; what the engine makes of tools in it, we do not know.
fn additional_tools(item: &Value) -> Result<Value, Skip> {
    let tools = field(item, "tools").ok_or(Skip::InvalidRequest)?;
    let is_developer = required_str(item, "role")?.as_str() == Some("developer");
    if elements(&tools)?.next().is_some() || !is_developer {
        return Err(Skip::Unsupported);
    }
    let message = Map::default().with("role", "developer");
    Ok(message.with("tools", tools).value())
}

/// The text of a message's content, or of its first part.
fn first_text(content: &Value) -> Result<Option<Value>, Skip> {
    if content.as_str().is_some() {
        return Ok(Some(content.clone()));
    }
    if content.kind() != ValueKind::Seq {
        return Ok(None);
    }
    match elements(content)?.next() {
        None => Ok(None),
        Some(part) if part.kind() == ValueKind::Map => optional_str(&part, "text"),
        Some(_) => Err(Skip::InvalidRequest),
    }
}

/// The text of an assistant's message as the engine itself wrote it: its first part. `None` if the
/// message is of another shape.
fn output_text(item: &Value, content: &Value) -> Result<Option<Value>, Skip> {
    if content.kind() != ValueKind::Seq {
        return Ok(None);
    }
    let id_fits = !has(item, "id") || field(item, "id").is_some_and(|id| id.as_str().is_some());
    let status = item.get_attr("status").unwrap_or_default();
    let status_fits = status.is_undefined() || is_one_of(&status, &STATUSES);
    let phase = field(item, "phase");
    let phase_fits = phase.is_none_or(|p| is_one_of(&p, &["commentary", "final_answer"]));
    if !id_fits || !status_fits || !phase_fits {
        return Ok(None);
    }
    let mut parts = elements(content)?;
    if !parts.all(|part| is_output_part(&part)) {
        return Ok(None);
    }
    let first = elements(content)?.next().ok_or(Skip::InvalidRequest)?;
    // A refusal has no text, and the engine fails.
    required_str(&first, "text").map(Some)
}

fn is_output_part(part: &Value) -> bool {
    let kind = field(part, "type");
    let string = |name: &str| field(part, name).is_some_and(|value| value.as_str().is_some());
    let list = |name: &str| {
        !has(part, name) || field(part, name).is_some_and(|v| v.kind() == ValueKind::Seq)
    };
    match kind.as_ref().and_then(|kind| kind.as_str()) {
        Some("output_text") => string("text") && list("annotations"),
        Some("refusal") => string("refusal"),
        _ => false,
    }
}

/// A string, or parts that a client may send.
///
/// # Errors
/// [`Skip::InvalidRequest`] for anything else.
fn check_content(content: &Value) -> Result<(), Skip> {
    if content.as_str().is_some() {
        return Ok(());
    }
    for part in elements(content)? {
        match required_str(&part, "type")?.as_str() {
            Some("input_text") => drop(required_str(&part, "text")?),
            Some("input_image") => drop(optional_str(&part, "image_url")?),
            _ => return Err(Skip::InvalidRequest),
        }
    }
    Ok(())
}

/// Into the message before it, if that is an assistant's and has no text yet.
fn add_text(messages: &mut Vec<Message>, text: Value) {
    if let Some(Message::Assistant { content, .. }) = messages.last_mut()
        && content.is_none()
    {
        *content = Some(text);
        return;
    }
    messages.push(Message::Assistant {
        content: Some(text),
        reasoning: None,
        calls: Vec::new(),
        rest: Map::default(),
    });
}

fn add_call(messages: &mut Vec<Message>, call: Value) {
    if let Some(Message::Assistant { calls, .. }) = messages.last_mut() {
        calls.push(call);
        return;
    }
    messages.push(Message::Assistant {
        content: None,
        reasoning: None,
        calls: vec![call],
        rest: Map::default(),
    });
}

fn reasoning(messages: &mut Vec<Message>, item: &Value) -> Result<bool, Skip> {
    if has(item, "id") {
        required_str(item, "id")?;
    }
    let first = |name: &str, kind: &str| -> Result<Option<Value>, Skip> {
        let Some(list) = field(item, name) else {
            return Ok(None);
        };
        let texts = elements(&list)?.map(|part| {
            let part_kind = required_str(&part, "type")?;
            let text = required_str(&part, "text")?;
            let fits = part_kind.as_str() == Some(kind);
            fits.then_some(text).ok_or(Skip::InvalidRequest)
        });
        let texts = texts.collect::<Result<Vec<_>, Skip>>()?;
        Ok(texts.into_iter().next())
    };
    let status = field(item, "status");
    let encrypted = optional_str(item, "encrypted_content")?;
    if field(item, "summary").is_none()
        || encrypted.is_some_and(|text| text.is_true())
        || status.as_ref().is_some_and(|s| !is_one_of(s, &STATUSES))
    {
        return Err(Skip::InvalidRequest);
    }
    let summary = first("summary", "summary_text")?;
    let text = first("content", "reasoning_text")?.or(summary);
    let text = text.unwrap_or_else(|| Value::from(""));
    let unfinished = status.is_some_and(|s| is_one_of(&s, &UNFINISHED));
    if let Some(Message::Assistant { reasoning, .. }) = messages.last_mut()
        && reasoning.is_none()
    {
        *reasoning = Some(text);
        return Ok(unfinished);
    }
    messages.push(Message::Assistant {
        content: None,
        reasoning: Some(text),
        calls: Vec::new(),
        rest: Map::default(),
    });
    Ok(unfinished)
}

fn function_call(item: &Value) -> Result<Value, Skip> {
    let id = required_str(item, "call_id")?;
    let name = required_str(item, "name")?;
    let arguments = required_str(item, "arguments")?;
    optional_str(item, "id")?;
    if field(item, "status").is_some_and(|s| !is_one_of(&s, &STATUSES)) {
        return Err(Skip::InvalidRequest);
    }
    let namespace = optional_str(item, "namespace")?.filter(|n| n.is_true());
    let name = match namespace {
        Some(namespace) => flat_name(&namespace, &name),
        None => name,
    };
    Ok(call(id, name, arguments))
}

/// A tool that takes free text is a function with one argument.
fn custom_call(item: &Value) -> Result<Value, Skip> {
    let id = required_str(item, "call_id")?;
    let name = required_str(item, "name")?;
    let input = required_str(item, "input")?;
    Ok(call(id, name, Map::default().with("input", input).value()))
}

fn call(id: Value, name: Value, arguments: Value) -> Value {
    let function = Map::default()
        .with("name", name)
        .with("arguments", arguments);
    Map::default()
        .with("id", id)
        .with("function", function.value())
        .with("type", "function")
        .value()
}

fn output(item: &Value) -> Result<Value, Skip> {
    let output = field(item, "output").ok_or(Skip::InvalidRequest)?;
    check_content(&output)?;
    let id = optional_str(item, "call_id")?;
    Ok(Map::default()
        .with("role", "tool")
        .with("content", output)
        .with("tool_call_id", id.unwrap_or_else(|| Value::from(())))
        .value())
}
