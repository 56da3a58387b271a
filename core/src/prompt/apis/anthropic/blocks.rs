//! Blocks of a message, and what becomes of them.

use minijinja::value::{Value, ValueKind};

use super::super::{Map, elements, has, is_one_of, optional, optional_str, required_str};
use crate::prompt::request::field;
use crate::prompt::{Skip, python};

/// A text that changes with every request and that vLLM drops.
pub(super) const BILLING_HEADER: &str = "x-anthropic-billing-header";
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

/// What a message's blocks become.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) content: Vec<Value>,
    pub(super) calls: Vec<Value>,
    pub(super) reasoning: Vec<Value>,
}

impl Parts {
    pub(super) fn add(
        &mut self,
        block: &Value,
        user: bool,
        out: &mut Vec<Value>,
    ) -> Result<(), Skip> {
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
pub(super) fn blocks(list: &Value, in_system_message: bool) -> Result<Vec<Value>, Skip> {
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
pub(super) fn system_block(block: &Value) -> Option<Value> {
    let is_text = field(block, "type").is_some_and(|kind| kind.as_str() == Some("text"));
    let text = field(block, "text").filter(|_| is_text)?;
    let is_header = text
        .as_str()
        .is_some_and(|text| text.starts_with(BILLING_HEADER));
    (!is_header).then_some(text)
}

pub(super) fn concatenated(texts: &[Value]) -> Value {
    let texts: Vec<&str> = texts.iter().filter_map(|text| text.as_str()).collect();
    Value::from(texts.concat())
}
