//! `/v1/responses` -> the shape of chat completions.
//!
//! One assistant message may be spread over several items (reasoning, text, tool calls); they are
//! put together again. What the engine's request models do with the items (several hundred shapes
//! in a union) is reproduced for those that it can render; others it refuses.

use minijinja::value::{Value, ValueKind};

use super::{Map, elements, has, is_one_of, optional, optional_str, required_str};
use crate::prompt::request::{field, pairs};
use crate::prompt::{Rules, Skip};

const STATUSES: [&str; 3] = ["in_progress", "completed", "incomplete"];
const UNFINISHED: [&str; 2] = ["in_progress", "incomplete"];
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// Joins the name of a group of tools to that of a tool in it.
const NAMESPACE_SEPARATOR: &str = "__";

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

/// Adds an item to the conversation; `true` if it says that it is not finished.
fn add(messages: &mut Vec<Message>, item: &Value) -> Result<bool, Skip> {
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

fn flat_name(namespace: &Value, name: &Value) -> Value {
    let namespace = namespace.as_str().unwrap_or_default();
    let name = name.as_str().unwrap_or_default();
    Value::from(format!("{namespace}{NAMESPACE_SEPARATOR}{name}"))
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

/// Functions in the shape of chat completions; the engine's own tools are not shown to the model.
/// `None` if there are no tools at all.
fn tools(body: &Value) -> Result<Option<Value>, Skip> {
    if !has(body, "tools") {
        return Ok(None);
    }
    let given = field(body, "tools").ok_or(Skip::InvalidRequest)?;
    let (mut shown, mut any) = (Vec::new(), false);
    for tool in elements(&given)? {
        any = true;
        let kind = required_str(&tool, "type")?;
        match kind.as_str() {
            Some("function") => shown.push(function(&tool, required_str(&tool, "name")?)),
            Some("custom") => shown.push(custom(&tool)?),
            Some("namespace") => {
                let namespace = required_str(&tool, "name")?;
                required_str(&tool, "description")?;
                let inner = field(&tool, "tools").ok_or(Skip::InvalidRequest)?;
                for tool in elements(&inner)? {
                    let name = required_str(&tool, "name")?;
                    match required_str(&tool, "type")?.as_str() {
                        Some("function") => {
                            shown.push(function(&tool, flat_name(&namespace, &name)))
                        }
                        Some("custom") => {}
                        _ => return Err(Skip::InvalidRequest),
                    }
                }
            }
            _ => {}
        }
    }
    Ok(any.then(|| Value::from(shown)))
}

fn function(tool: &Value, name: Value) -> Value {
    let function = Map::default().with("name", name);
    let names = ["description", "parameters", "strict", "defer_loading"];
    as_tool(function.copy(tool, &names))
}

fn as_tool(function: Map) -> Value {
    Map::default()
        .with("type", "function")
        .with("function", function.value())
        .value()
}

fn custom(tool: &Value) -> Result<Value, Skip> {
    if let Some(format) = field(tool, "format") {
        let kind = required_str(&format, "type")?;
        if kind.as_str() != Some("text") {
            return Err(Skip::InvalidRequest);
        }
    }
    let input = Map::default()
        .with("type", "string")
        .with("description", "The freeform text payload for this tool.");
    let parameters = Map::default()
        .with("type", "object")
        .with(
            "properties",
            Map::default().with("input", input.value()).value(),
        )
        .with("required", vec![Value::from("input")])
        .with("additionalProperties", false);
    let function = Map::default()
        .with("name", required_str(tool, "name")?)
        .copy(tool, &["description"])
        .with("parameters", parameters.value());
    Ok(as_tool(function))
}

/// The engine refuses a choice among tools that are not there.
fn tool_choice(body: &Value, has_tools: bool) -> Result<(), Skip> {
    if !has(body, "tool_choice") {
        return Ok(());
    }
    let choice = field(body, "tool_choice").ok_or(Skip::InvalidRequest)?;
    let fits = match choice.as_str() {
        Some("auto" | "none") => true,
        Some("required") => has_tools,
        Some(_) => false,
        None => {
            let named = field(&choice, "type");
            let named = named.is_some_and(|kind| is_one_of(&kind, &["function", "custom"]));
            pairs(&choice).next().is_some() && (has_tools || !named)
        }
    };
    fits.then_some(()).ok_or(Skip::InvalidRequest)
}
