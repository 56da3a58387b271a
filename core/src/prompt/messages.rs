//! What vLLM (0.32) and transformers do to `messages` before the template sees them.
//!
//! Every message is rebuilt from the keys that vLLM knows, in its order; content becomes one string
//! or a list of parts; tool calls are validated (which sorts their keys) and their arguments turned
//! from JSON text into objects.

use minijinja::value::{Value, ValueKind};

use super::content::{Content, ContentStyle};
use super::media::Item;
use super::request::{Fields, field, pairs};
use super::work::Work;
use super::{Rules, Skip};

/// A message as the template sees it: keys in order.
pub(super) struct Message {
    role: Value,
    content: Value,
    rest: Vec<(&'static str, Value)>,
}

/// How messages are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style<'r> {
    /// How their content is.
    pub(super) content: ContentStyle<'r>,
    /// What reading arguments may cost.
    pub(super) work: &'r Work,
    /// The engine's request models put the keys of tool calls into their order.
    pub(super) validated: bool,
    /// `reasoning_content` is another name of `reasoning`.
    pub(super) reasoning_content: bool,
}

/// The conversation as vLLM hands it to transformers.
///
/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses, [`Skip::PromptEmbeds`].
pub(super) fn normalise(
    messages: &Value,
    style: Style,
    media: &mut Vec<Item>,
) -> Result<Vec<Message>, Skip> {
    if messages.kind() != ValueKind::Seq {
        return Err(Skip::InvalidRequest);
    }
    let iter = messages.try_iter().map_err(|_| Skip::InvalidRequest)?;
    let list = iter
        .map(|message| Message::of(&message, style, media))
        .collect::<Result<Vec<_>, _>>()?;
    if list.is_empty() {
        Err(Skip::InvalidRequest)
    } else {
        Ok(list)
    }
}

impl Message {
    fn of(message: &Value, style: Style, media: &mut Vec<Item>) -> Result<Self, Skip> {
        let fields = Fields::of(message);
        let role = fields.get("role").ok_or(Skip::InvalidRequest)?;
        let kind = role.as_str().ok_or(Skip::InvalidRequest)?;
        let nothing = Value::from(Vec::<Value>::new());
        let content = match fields.get("content") {
            Some(content) => content,
            // Only an assistant may have nothing to say.
            None if style.validated && kind != "assistant" && fields.any("content").is_some() => {
                return Err(Skip::InvalidRequest);
            }
            None => &nothing,
        };
        let mut content = Content::of(content, kind == "system", style.content, media)?;
        let mut rest = Vec::new();
        if kind == "assistant" {
            if let Some(calls) = fields.get("tool_calls") {
                rest.extend(tool_calls(calls, style)?.map(|calls| ("tool_calls", calls)));
            }
            let mut reasoning = fields.get("reasoning");
            if reasoning.is_none() && style.reasoning_content {
                reasoning = fields.get("reasoning_content");
            }
            if let Some(reasoning) = reasoning {
                if reasoning.as_str().is_none() {
                    return Err(Skip::InvalidRequest);
                }
                rest.push(("reasoning", reasoning.clone()));
                rest.push(("reasoning_content", reasoning.clone()));
            }
        } else if kind == "tool" {
            let id = if style.validated {
                fields.get("tool_call_id")
            } else {
                fields.any("tool_call_id")
            };
            rest.extend(id.map(|id| ("tool_call_id", id.clone())));
            content.join_if_text();
        }
        for name in ["name", "task"] {
            let text = fields.get(name).filter(|v| v.as_str().is_some());
            rest.extend(text.map(|v| (name, v.clone())));
        }
        if kind == "developer" {
            let tools = fields.get("tools").map(developer_tools);
            rest.push(("tools", tools.unwrap_or_else(|| Value::from(()))));
        }
        Ok(Self {
            role: role.clone(),
            content: content.into_value(),
            rest,
        })
    }

    pub(super) fn is_role(&self, role: &str) -> bool {
        self.role.as_str() == Some(role)
    }

    /// The value for the template.
    ///
    /// Newer versions of transformers put `thinking` first if there is reasoning, and drop what is
    /// null.
    pub(super) fn into_value(mut self, rules: &Rules) -> Value {
        let mut thinking = None;
        if rules.transformers_normalises {
            let reasoning = self.rest.iter().find(|(name, _)| *name == "reasoning");
            thinking = reasoning.map(|(_, reasoning)| ("thinking", reasoning.clone()));
            self.rest.retain(|(_, value)| !value.is_none());
        }
        let head = [("role", self.role), ("content", self.content)];
        Value::from_pairs(thinking.into_iter().chain(head).chain(self.rest))
    }

    /// Appends a mark to the message's text: to its last part with text.
    ///
    /// Gives the text as it was; `None` if there is none.
    pub(super) fn mark(&mut self, mark: &str) -> Option<String> {
        if let Some(text) = self.content.as_str().map(str::to_owned) {
            self.content = Value::from(format!("{text}{mark}"));
            return Some(text);
        }
        let mut parts: Vec<Value> = self.content.try_iter().ok()?.collect();
        let part = parts
            .iter_mut()
            .rev()
            .find(|part| field(part, "text").is_some())?;
        let text = field(part, "text")?.as_str()?.to_owned();
        let marked = Value::from(format!("{text}{mark}"));
        *part = Value::from_pairs(pairs(part).map(|(key, value)| {
            let value = if key.as_str() == Some("text") {
                marked.clone()
            } else {
                value
            };
            (key, value)
        }));
        self.content = Value::from(parts);
        Some(text)
    }
}

/// `developer` becomes `system`, and then all system messages one, in front.
pub(super) fn without_developer(messages: Vec<Message>) -> Vec<Message> {
    let (mut systems, mut others, mut scattered) = (Vec::new(), Vec::new(), false);
    for (n, mut message) in messages.into_iter().enumerate() {
        if message.is_role("developer") {
            message.role = Value::from("system");
            message.rest.retain(|(name, _)| *name != "tools");
        }
        if message.is_role("system") {
            scattered |= n > 0;
            systems.push(message);
        } else {
            others.push(message);
        }
    }
    if scattered {
        let texts: Vec<String> = systems
            .iter()
            .map(|m| joined(&m.content))
            .filter(|text| !text.is_empty())
            .collect();
        let content = Value::from(texts.join("\n\n"));
        systems = vec![Message {
            role: Value::from("system"),
            content,
            rest: Vec::new(),
        }];
    }
    systems.extend(others);
    systems
}

fn joined(content: &Value) -> String {
    match content.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let parts = content.try_iter().into_iter().flatten();
            let texts: Vec<String> = parts
                .filter_map(|part| field(&part, "text")?.as_str().map(str::to_owned))
                .collect();
            texts.join("\n")
        }
    }
}

/// Tool calls with keys as the engine's validation orders them; `None` if there are none.
fn tool_calls(calls: &Value, style: Style) -> Result<Option<Value>, Skip> {
    if calls.kind() != ValueKind::Seq {
        return Err(Skip::InvalidRequest);
    }
    let iter = calls.try_iter().map_err(|_| Skip::InvalidRequest)?;
    let calls = iter
        .map(|call| tool_call(&call, style))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((!calls.is_empty()).then(|| Value::from(calls)))
}

fn tool_call(call: &Value, style: Style) -> Result<Value, Skip> {
    let function = field(call, "function").filter(|f| f.kind() == ValueKind::Map);
    let function = function.ok_or(Skip::InvalidRequest)?;
    if field(call, "type").is_some_and(|kind| kind.as_str() != Some("function")) {
        return Err(Skip::InvalidRequest);
    }
    let arguments = arguments(field(&function, "arguments"), style)?;
    let (inner, outer): (&[_], &[_]) = if style.validated {
        (&["arguments", "name"], &["id", "function", "type"])
    } else {
        (&["name", "arguments"], &["id", "function", "type"])
    };
    let function = reordered(&function, inner, &[("arguments", arguments)]);
    Ok(reordered(call, outer, &[("function", function)]))
}

/// Arguments are a JSON object as text; the template gets the object. What is not one becomes `{}`.
///
/// # Errors
/// [`Skip::Unsupported`] where an older engine passes it on as it is, [`Skip::TooComplex`].
fn arguments(given: Option<Value>, style: Style) -> Result<Value, Skip> {
    let parsed = match &given {
        Some(value) => match value.as_str() {
            Some(text) => match style.work.read_json(text.as_bytes()) {
                Err(Skip::InvalidJson) if only_python_reads(text) => {
                    return Err(Skip::Unsupported);
                }
                Err(Skip::InvalidJson) => None,
                read => Some(read?),
            },
            None => Some(value.clone()),
        },
        None => None,
    };
    let parsed = parsed.filter(|value| !value.is_none());
    let is_odd = parsed
        .as_ref()
        .is_some_and(|value| value.kind() != ValueKind::Map);
    if is_odd && !style.content.rules.lenient_arguments {
        return Err(Skip::Unsupported);
    }
    let object = parsed.filter(|value| value.kind() == ValueKind::Map);
    Ok(object.unwrap_or_else(|| Value::from_pairs(core::iter::empty::<(Value, Value)>())))
}

/// Python's `json` may take it, though it is no JSON: `NaN`, `Infinity`, lone surrogates.
fn only_python_reads(text: &str) -> bool {
    ["NaN", "Infinity", "\\ud", "\\uD"]
        .iter()
        .any(|sign| text.contains(sign))
}

/// Tools in a developer message keep all their keys, those that validation knows first. If one is
/// not as validation wants it, the message passes as one of another kind, tools untouched.
pub(super) fn developer_tools(tools: &Value) -> Value {
    let all: Vec<Value> = tools.try_iter().into_iter().flatten().collect();
    if !all.iter().all(is_function_tool) {
        return tools.clone();
    }
    let tools = all.iter().map(|tool| {
        let function = field(tool, "function").map(|function| {
            reordered(
                &function,
                &["name", "description", "parameters", "strict"],
                &[],
            )
        });
        let function: Vec<_> = function.into_iter().map(|f| ("function", f)).collect();
        reordered(tool, &["function", "type"], &function)
    });
    tools.collect()
}

fn is_function_tool(tool: &Value) -> bool {
    let is = |map: &Value, key: &str, kind: ValueKind| {
        let value = map.get_attr(key).unwrap_or_default();
        value.is_undefined() || value.kind() == kind
    };
    let function = field(tool, "function").unwrap_or_default();
    field(tool, "type").is_some_and(|kind| kind.as_str() == Some("function"))
        && field(&function, "name").is_some_and(|name| name.as_str().is_some())
        && is(&function, "description", ValueKind::String)
        && is(&function, "parameters", ValueKind::Map)
        && field(&function, "strict").is_none_or(|strict| strict.kind() == ValueKind::Bool)
}

/// A map with some keys first and some values replaced.
fn reordered(map: &Value, first: &[&str], replaced: &[(&str, Value)]) -> Value {
    let value_of = |key: &str| {
        let replacement = replaced.iter().find(|(name, _)| *name == key);
        let given = || map.get_attr(key).ok().filter(|value| !value.is_undefined());
        replacement.map(|(_, value)| value.clone()).or_else(given)
    };
    let head = first
        .iter()
        .filter_map(|key| Some((Value::from(*key), value_of(key)?)));
    let tail = pairs(map).filter(|(key, _)| !first.contains(&key.as_str().unwrap_or_default()));
    Value::from_pairs(head.chain(tail))
}
