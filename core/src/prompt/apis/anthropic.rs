//! `/v1/messages`, Anthropic's interface -> the shape of chat completions.

use std::collections::HashMap;

use minijinja::value::{Value, ValueKind};

use super::{Map, elements, has, is_one_of, optional, optional_str, required_str};
use crate::prompt::request::{field, pairs};
use crate::prompt::{Rules, Skip, python};

/// A text that changes with every request and that vLLM drops.
const BILLING_HEADER: &str = "x-anthropic-billing-header";
/// Efforts that a request can ask for.
pub(in crate::prompt) const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];
const BLOCKS: [&str; 9] = [
    "text",
    "image",
    "tool_use",
    "tool_result",
    "tool_reference",
    "thinking",
    "redacted_thinking",
    "tool_addition",
    "tool_removal",
];
/// Thinking budgets begin here, in tokens.
const BUDGET_MIN: i64 = 1024;

/// What the engine finds out about its templates when it starts.
#[derive(Debug, Default)]
pub(in crate::prompt) struct Probes {
    /// A template refuses system messages that are not the first: they go into the first.
    pub(in crate::prompt) merge_inline_system: bool,
    /// The effort that stands for "thinking disabled".
    pub(in crate::prompt) disabled_effort: String,
}

/// The same request as a chat.
///
/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses, [`Skip::Unsupported`] for a tool call
/// without an id, for which the engine makes one up.
pub(super) fn to_chat(body: &Value, probes: &Probes, rules: &Rules) -> Result<Value, Skip> {
    if !required_str(body, "model")?.is_true() || field(body, "max_tokens").is_none() {
        return Err(Skip::InvalidRequest);
    }
    let given = field(body, "messages").ok_or(Skip::InvalidRequest)?;
    let given = elements(&given)?
        .map(|message| Given::of(&message))
        .collect::<Result<Vec<_>, _>>()?;
    if !rules.messages_have_thinking && needs_newer(body, &given) {
        return Err(Skip::Unsupported);
    }
    let mut messages = Vec::new();
    messages.extend(system(body, &given, probes.merge_inline_system)?);
    for message in &given {
        message.convert(probes.merge_inline_system, &mut messages)?;
    }
    let mut chat = Map::default()
        .with("messages", messages)
        .copy(body, &["chat_template_kwargs", "kv_transfer_params"]);
    if let Some(effort) = effort(body, probes)? {
        chat = chat.with("reasoning_effort", effort);
    }
    if let Some(choice) = tool_choice(body)? {
        chat = chat.with("tool_choice", choice);
    }
    if let Some(tools) = tools(body, &given)? {
        chat = chat.with("tools", tools);
    }
    Ok(chat.value())
}

/// The request has what older versions ignore, refuse or take in another way.
fn needs_newer(body: &Value, messages: &[Given]) -> bool {
    let system_is_list = field(body, "system").is_some_and(|s| s.kind() == ValueKind::Seq);
    field(body, "thinking").is_some()
        || field(body, "output_config").is_some()
        || messages.iter().any(|message| message.is("system"))
        || (system_is_list && matches!(system(body, &[], false), Ok(None)))
}

/// A message as the client sent it, looked through.
struct Given {
    role: Value,
    content: Value,
    /// Its blocks, if its content is not a string.
    blocks: Vec<Value>,
}

impl Given {
    fn of(message: &Value) -> Result<Self, Skip> {
        let role = required_str(message, "role")?;
        if !is_one_of(&role, &["user", "assistant", "system"]) {
            return Err(Skip::InvalidRequest);
        }
        let content = field(message, "content").ok_or(Skip::InvalidRequest)?;
        let blocks = match content.as_str() {
            Some(_) => Vec::new(),
            None => blocks(&content, role.as_str() == Some("system"))?,
        };
        Ok(Self {
            role,
            content,
            blocks,
        })
    }

    fn is(&self, role: &str) -> bool {
        self.role.as_str() == Some(role)
    }

    /// A system message's text without billing headers; `None` if there is nothing to say.
    fn system_text(&self) -> Option<Value> {
        let text = match self.content.as_str() {
            Some(text) if text.starts_with(BILLING_HEADER) => None,
            Some(_) => Some(self.content.clone()),
            None => {
                let texts: Vec<Value> = self.blocks.iter().filter_map(system_block).collect();
                Some(concatenated(&texts))
            }
        };
        text.filter(|text| text.is_true())
    }

    /// Adds what becomes of it to the chat's messages: tool results go before it.
    fn convert(&self, merge_inline_system: bool, out: &mut Vec<Value>) -> Result<(), Skip> {
        let message = Map::default().with("role", self.role.clone());
        if self.is("system") {
            if let Some(text) = self.system_text().filter(|_| !merge_inline_system) {
                out.push(message.with("content", text).value());
            }
            return Ok(());
        }
        if self.content.as_str().is_some() {
            out.push(message.with("content", self.content.clone()).value());
            return Ok(());
        }
        let mut parts = Parts::default();
        for block in &self.blocks {
            parts.add(block, self.is("user"), out)?;
        }
        let Parts {
            mut content,
            calls,
            reasoning,
        } = parts;
        if self.is("user") && content.is_empty() {
            return Ok(());
        }
        let mut message = message;
        if !reasoning.is_empty() {
            message = message.with("reasoning", concatenated(&reasoning));
        }
        if !calls.is_empty() {
            message = message.with("tool_calls", calls);
        }
        let single = content.first().filter(|_| content.len() == 1);
        if let Some(text) = single.and_then(|part| field(part, "text")) {
            message = message.with("content", text);
        } else if !content.is_empty() {
            message = message.with("content", core::mem::take(&mut content));
        }
        out.push(message.value());
        Ok(())
    }
}

/// What a message's blocks become.
#[derive(Default)]
struct Parts {
    content: Vec<Value>,
    calls: Vec<Value>,
    reasoning: Vec<Value>,
}

impl Parts {
    fn add(&mut self, block: &Value, user: bool, out: &mut Vec<Value>) -> Result<(), Skip> {
        let kind = required_str(block, "type")?;
        match kind.as_str().unwrap_or_default() {
            "text" => {
                let text = field(block, "text").filter(|text| text.is_true());
                self.content.extend(text.map(text_part));
            }
            "image" => {
                let source = field(block, "source").filter(|source| source.is_true());
                self.content.extend(source.map(|_| image_part()));
            }
            "thinking" => self.reasoning.extend(field(block, "thinking")),
            // Only an assistant's are looked at.
            "tool_use" if user => {}
            "tool_use" => self.calls.push(tool_call(block)?),
            "tool_result" if user => tool_result(block, out)?,
            "tool_result" => {
                let content = field(block, "content").filter(|content| content.is_true());
                let content = content.map(|content| python::to_str(&content)).transpose();
                let content = content.map_err(|_| Skip::Unsupported)?.unwrap_or_default();
                let text = Value::from(format!("Tool result: {content}"));
                self.content.push(text_part(text));
            }
            _ => {}
        }
        Ok(())
    }
}

fn text_part(text: Value) -> Value {
    Map::default()
        .with("type", "text")
        .with("text", text)
        .value()
}

/// Where the image comes from has no effect on the text, and the interface has no identifier.
fn image_part() -> Value {
    let url = Map::default().with("url", "image");
    Map::default()
        .with("type", "image_url")
        .with("image_url", url.value())
        .value()
}

fn tool_call(block: &Value) -> Result<Value, Skip> {
    let id = field(block, "id").filter(|id| id.is_true());
    let id = id.ok_or(Skip::Unsupported)?;
    let empty = || Value::from("");
    let input = field(block, "input").unwrap_or_else(|| Map::default().value());
    let function = Map::default()
        .with("name", field(block, "name").unwrap_or_else(empty))
        .with("arguments", input);
    Ok(Map::default()
        .with("id", id)
        .with("type", "function")
        .with("function", function.value())
        .value())
}

/// A tool's result: its text, then its images as a user's message, then names of tools.
fn tool_result(block: &Value, out: &mut Vec<Value>) -> Result<(), Skip> {
    let (mut texts, mut images, mut references) = (Vec::new(), Vec::new(), Vec::new());
    let content = field(block, "content");
    if let Some(text) = content
        .as_ref()
        .filter(|content| content.as_str().is_some())
    {
        texts.push(text.clone());
    } else if let Some(content) = content {
        for item in elements(&content)? {
            let kind = field(&item, "type");
            match kind.as_ref().and_then(|kind| kind.as_str()) {
                Some("text") if !has(&item, "text") => texts.push(Value::from("")),
                Some("text") => texts.push(required_str(&item, "text")?),
                Some("image") => {
                    let source = field(&item, "source");
                    let is_url = |kind: Value| kind.as_str() == Some("url");
                    let url = source.as_ref().and_then(|source| field(source, "url"));
                    let by_url = source
                        .and_then(|source| field(&source, "type"))
                        .is_some_and(is_url);
                    if !by_url || url.is_some_and(|url| url.is_true()) {
                        images.push(image_part());
                    }
                }
                Some("tool_reference") => {
                    let name = |key| field(&item, key).filter(|name: &Value| name.is_true());
                    if let Some(name) = name("tool_name").or_else(|| name("name")) {
                        let reference = Map::default().with("type", "tool_reference");
                        references.push(reference.with("name", name).value());
                    }
                }
                _ => {}
            }
        }
    }
    let id = field(block, "tool_use_id").unwrap_or_else(|| Value::from(""));
    let texts: Vec<&str> = texts.iter().filter_map(|text| text.as_str()).collect();
    let message = |content: Value| {
        Map::default()
            .with("role", "tool")
            .with("tool_call_id", id.clone())
            .with("content", content)
            .value()
    };
    out.push(message(Value::from(texts.join("\n"))));
    if !images.is_empty() {
        let user = Map::default().with("role", "user");
        out.push(user.with("content", images).value());
    }
    if !references.is_empty() {
        out.push(message(Value::from(references)));
    }
    Ok(())
}

/// Blocks whose fields are of the right kinds.
fn blocks(list: &Value, in_system_message: bool) -> Result<Vec<Value>, Skip> {
    elements(list)?
        .map(|block| {
            let kind = required_str(&block, "type")?;
            if !is_one_of(&kind, &BLOCKS) {
                return Err(Skip::InvalidRequest);
            }
            for name in [
                "text",
                "id",
                "tool_use_id",
                "name",
                "tool_name",
                "thinking",
                "signature",
                "data",
            ] {
                optional_str(&block, name)?;
            }
            for name in ["source", "input"] {
                optional(&block, name, ValueKind::Map)?;
            }
            if let Some(content) = field(&block, "content").filter(|c| c.as_str().is_none())
                && elements(&content)?.any(|item| item.kind() != ValueKind::Map)
            {
                return Err(Skip::InvalidRequest);
            }
            let changes_tools = is_one_of(&kind, &["tool_addition", "tool_removal"]);
            if changes_tools && !in_system_message {
                return Err(Skip::InvalidRequest);
            }
            Ok(block)
        })
        .collect()
}

/// A block's text, unless it is empty or a billing header.
fn system_block(block: &Value) -> Option<Value> {
    let is_text = field(block, "type").is_some_and(|kind| kind.as_str() == Some("text"));
    let text = field(block, "text").filter(|_| is_text)?;
    let is_header = text
        .as_str()
        .is_some_and(|text| text.starts_with(BILLING_HEADER));
    (!is_header).then_some(text)
}

fn concatenated(texts: &[Value]) -> Value {
    let texts: Vec<&str> = texts.iter().filter_map(|text| text.as_str()).collect();
    Value::from(texts.concat())
}

/// The system message at the front, with those from further back if the template wants it so.
fn system(body: &Value, messages: &[Given], merge: bool) -> Result<Option<Value>, Skip> {
    let mut texts = Vec::new();
    if let Some(system) = field(body, "system") {
        match system.as_str() {
            Some("") => {}
            Some(_) => texts.push(system),
            None => texts.extend(blocks(&system, false)?.iter().filter_map(system_block)),
        }
    }
    texts.retain(|text| text.is_true());
    if merge {
        let inline = messages.iter().filter(|message| message.is("system"));
        texts.extend(inline.filter_map(Given::system_text));
    }
    let message = Map::default().with("role", "system");
    Ok((!texts.is_empty()).then(|| message.with("content", concatenated(&texts)).value()))
}

fn effort(body: &Value, probes: &Probes) -> Result<Option<Value>, Skip> {
    let config = optional(body, "output_config", ValueKind::Map)?;
    let effort = config.and_then(|config| field(&config, "effort"));
    if effort.as_ref().is_some_and(|e| !is_one_of(e, &EFFORTS)) {
        return Err(Skip::InvalidRequest);
    }
    let Some(thinking) = optional(body, "thinking", ValueKind::Map)? else {
        return Ok(effort);
    };
    match required_str(&thinking, "type")?.as_str() {
        Some("disabled") => Ok(Some(Value::from(probes.disabled_effort.as_str()))),
        // The budget has no effect on the text.
        Some("enabled") => {
            let number = |map: &Value, name| field(map, name).and_then(|n| i64::try_from(n).ok());
            let budget = number(&thinking, "budget_tokens");
            let max = number(body, "max_tokens").unwrap_or(i64::MAX);
            let fits = budget.is_some_and(|budget| (BUDGET_MIN..max).contains(&budget));
            // The first half of a split request is sent on with another limit.
            let remote = field(body, "kv_transfer_params");
            let remote = remote.and_then(|params| field(&params, "do_remote_decode"));
            let fits = fits || remote.is_some_and(|remote| remote.is_true());
            fits.then_some(effort).ok_or(Skip::InvalidRequest)
        }
        Some("adaptive") => Ok(effort),
        _ => Err(Skip::InvalidRequest),
    }
}

fn tool_choice(body: &Value) -> Result<Option<Value>, Skip> {
    let Some(choice) = optional(body, "tool_choice", ValueKind::Map)? else {
        return Ok(None);
    };
    let name = optional_str(&choice, "name")?;
    match required_str(&choice, "type")?.as_str() {
        Some("auto") => Ok(Some(Value::from("auto"))),
        Some("any") => Ok(Some(Value::from("required"))),
        Some("none") => Ok(Some(Value::from("none"))),
        Some("tool") => {
            let name = name
                .filter(|name| name.is_true())
                .ok_or(Skip::InvalidRequest)?;
            let function = Map::default().with("name", name).value();
            let choice = Map::default().with("type", "function");
            Ok(Some(choice.with("function", function).value()))
        }
        _ => Err(Skip::InvalidRequest),
    }
}

/// A tool's definition and its name.
struct Tool {
    name: Value,
    definition: Value,
    /// Cleared where a system message adds the tool.
    deferred: Option<Value>,
    removed: bool,
}

impl Tool {
    fn of(definition: Value) -> Result<Self, Skip> {
        let name = required_str(&definition, "name")?;
        optional_str(&definition, "description")?;
        let schema = field(&definition, "input_schema");
        if schema.is_none_or(|schema| schema.kind() != ValueKind::Map) {
            return Err(Skip::InvalidRequest);
        }
        let deferred = optional(&definition, "defer_loading", ValueKind::Bool)?;
        Ok(Self {
            name,
            definition,
            deferred,
            removed: false,
        })
    }

    fn value(self) -> Value {
        let schema = field(&self.definition, "input_schema").unwrap_or_default();
        let schema = if has(&schema, "type") {
            schema
        } else {
            let kind = (Value::from("type"), Value::from("object"));
            Value::from_pairs(pairs(&schema).chain([kind]))
        };
        let mut function = Map::default()
            .with("name", self.name)
            .copy(&self.definition, &["description"])
            .with("parameters", schema)
            .copy(&self.definition, &["strict"]);
        if let Some(deferred) = self.deferred {
            function = function.with("defer_loading", deferred);
        }
        Map::default()
            .with("type", "function")
            .with("function", function.value())
            .value()
    }
}

/// The tools in effect at the end of the conversation.
fn tools(body: &Value, messages: &[Given]) -> Result<Option<Value>, Skip> {
    let mut given = None;
    if let Some(tools) = field(body, "tools") {
        let tools = elements(&tools)?.map(Tool::of);
        given = Some(tools.collect::<Result<Vec<_>, _>>()?);
    }
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    let mut changes = blocks
        .filter_map(|block| {
            let kind = field(block, "type")?;
            is_one_of(&kind, &["tool_addition", "tool_removal"]).then_some((kind, block))
        })
        .peekable();
    if changes.peek().is_none() {
        let tools = given.map(|tools| tools.into_iter().map(Tool::value).collect::<Vec<_>>());
        return Ok(tools.map(Value::from));
    }
    let mut tools = Tools::default();
    for tool in given.unwrap_or_default() {
        tools.put(tool);
    }
    for (kind, block) in changes {
        tools.change(kind.as_str() == Some("tool_removal"), block)?;
    }
    let tools = tools.list.into_iter().filter(|tool| !tool.removed);
    Ok(Some(Value::from(
        tools.map(Tool::value).collect::<Vec<_>>(),
    )))
}

/// Tools by name, in order.
#[derive(Default)]
struct Tools {
    list: Vec<Tool>,
    places: HashMap<Value, usize>,
}

impl Tools {
    /// Of several with the same name the last counts, in the place of the first.
    fn put(&mut self, tool: Tool) {
        match self.get(&tool.name) {
            Some(known) => *known = tool,
            None => {
                self.places.insert(tool.name.clone(), self.list.len());
                self.list.push(tool);
            }
        }
    }

    fn get(&mut self, name: &Value) -> Option<&mut Tool> {
        self.list.get_mut(*self.places.get(name)?)
    }

    fn change(&mut self, removal: bool, block: &Value) -> Result<(), Skip> {
        let change = optional(block, "tool", ValueKind::Map)?.ok_or(Skip::InvalidRequest)?;
        match required_str(&change, "type")?.as_str() {
            Some("tool_definition") if !removal => {
                let definition = field(&change, "definition").ok_or(Skip::InvalidRequest)?;
                self.put(Tool::of(definition)?);
            }
            Some("tool_reference") => {
                let name = required_str(&change, "name")?;
                let tool = self.get(&name).ok_or(Skip::InvalidRequest)?;
                tool.removed = removal;
                if !removal {
                    tool.deferred = None;
                }
            }
            _ => return Err(Skip::InvalidRequest),
        }
        Ok(())
    }
}
