//! `/v1/messages`, Anthropic's interface -> the shape of chat completions.

use minijinja::value::{Value, ValueKind};

use super::{Map, elements, is_one_of, optional, required_str};
use crate::prompt::request::field;
use crate::prompt::{Rules, Skip};

mod blocks;
mod tools;

use blocks::{BILLING_HEADER, Parts, blocks, concatenated, system_block};
use tools::{tool_choice, tools};

/// Efforts that a request can ask for.
pub(in crate::prompt) const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];
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
