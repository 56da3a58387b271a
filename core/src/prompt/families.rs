//! Models whose chats the engine renders by code instead of a template. One module each.
//!
//! | module | the engine's code (vLLM 0.32) |
//! |---|---|
//! | `deepseek_v32` | `tokenizers/deepseek_v32.py`, `deepseek_v32_encoding.py` |
//! | `deepseek_v4` | `tokenizers/deepseek_v4.py`, `deepseek_v41.py` and their encodings |
//! | `harmony` | `entrypoints/openai/parser/harmony_utils.py`, `entrypoints/openai/responses/harmony.py` |
//!
//! Those of DeepSeek see what `messages`, `tools` and `kwargs` make of a request, as
//! templates do; Harmony reads the request itself.

use minijinja::value::{Value, ValueKind};

use super::compiled::Chat;
use super::content::ContentStyle;
use super::kwargs::{self, Kwargs};
use super::media::Stand;
use super::profile::Profile;
use super::request::field;
use super::{Renderer, Skip, messages};

mod deepseek;
mod deepseek_v32;
mod deepseek_v4;
mod harmony;

#[cfg(test)]
mod tests;

/// The text of a chat; `None` where the template is to render it.
///
/// `defaults` are the server's template variables.
///
/// # Errors
/// As [`super::CompiledProfile::render`].
pub(super) fn render(
    profile: &Profile,
    chat: &Chat,
    defaults: &[(Value, Value)],
    now_unix_s: i64,
) -> Result<Option<String>, Skip> {
    let text = match &profile.renderer {
        Renderer::Template => return Ok(None),
        Renderer::DeepseekV32 => {
            deepseek_v32::render(&Request::of(profile, chat, defaults, false)?)
        }
        Renderer::DeepseekV4 => {
            deepseek_v4::render_v4(&Request::of(profile, chat, defaults, true)?)
        }
        Renderer::DeepseekV41 => {
            let request = Request::of(profile, chat, defaults, true)?;
            deepseek_v4::render_v41(&request, &chat.body)
        }
        Renderer::Harmony {
            system_start_date,
            system_instructions,
        } => {
            let settings = (system_start_date.as_deref(), *system_instructions);
            harmony::render(profile, chat, settings, now_unix_s)
        }
    };
    text.map(Some)
}

/// The text of a completion that is to fill the gap between `prompt` and `suffix`; `None` if the
/// engine refuses that.
pub(super) fn fill_in_the_middle(
    renderer: &Renderer,
    prompt: &str,
    suffix: &str,
) -> Option<String> {
    match renderer {
        Renderer::DeepseekV4 | Renderer::DeepseekV41 => {
            Some(deepseek::fill_in_the_middle(prompt, suffix))
        }
        _ => None,
    }
}

/// A chat as the engine's renderers by code get it.
struct Request {
    turns: Vec<Turn>,
    tools: Option<Value>,
    kwargs: Kwargs,
}

impl Request {
    fn of(
        profile: &Profile,
        chat: &Chat,
        defaults: &[(Value, Value)],
        as_parts: bool,
    ) -> Result<Self, Skip> {
        let body = &chat.body;
        if field(body, "chat_template").is_some() {
            return Err(Skip::RequestTemplate);
        }
        let kwargs = kwargs::merge(body, &[], defaults, chat.keeps_unset(defaults), profile)?;
        let tools = chat.tools(profile)?;
        let messages = field(body, "messages").ok_or(Skip::InvalidRequest)?;
        let content = ContentStyle {
            as_parts,
            rules: &profile.rules,
            stand: Stand::of(profile),
        };
        let mut media = Vec::new();
        let turns = messages::normalise(&messages, chat.style(content), &mut media)?;
        if !media.is_empty() {
            return Err(Skip::Multimodal);
        }
        let turns = turns
            .into_iter()
            .map(|m| Turn::of(&m.into_value(&profile.rules)));
        Ok(Self {
            turns: turns.collect(),
            tools,
            kwargs,
        })
    }

    /// A template variable that the request or the server gives.
    fn kwarg(&self, name: &str) -> Option<&Value> {
        let mut variables = self.kwargs.variables.iter();
        let found = variables.find(|(known, _)| known.as_str() == Some(name));
        found.map(|(_, value)| value)
    }

    /// The same as Python would take it for a condition.
    fn is_set(&self, name: &str) -> bool {
        self.kwarg(name).is_some_and(Value::is_true)
    }
}

/// One message, with the keys that these renderers know.
#[derive(Clone, Debug, Default)]
struct Turn {
    role: String,
    /// A string, or parts.
    content: Value,
    /// Of a developer message, not empty.
    tools: Option<Value>,
    /// Not empty; arguments are objects.
    tool_calls: Option<Value>,
    tool_call_id: Option<Value>,
    reasoning: Option<Value>,
    task: Option<Value>,
    /// Only where a renderer reads messages as they came.
    response_format: Option<Value>,
    /// The same; the message is not over.
    is_open: bool,
}

impl Turn {
    fn of(message: &Value) -> Self {
        let role = field(message, "role");
        Self {
            role: role
                .and_then(|role| role.as_str().map(str::to_owned))
                .unwrap_or_default(),
            content: field(message, "content").unwrap_or_default(),
            tools: field(message, "tools").filter(Value::is_true),
            tool_calls: field(message, "tool_calls").filter(Value::is_true),
            tool_call_id: field(message, "tool_call_id"),
            reasoning: field(message, "reasoning"),
            task: field(message, "task"),
            response_format: None,
            is_open: false,
        }
    }

    /// Content that is a string; nothing where it is none.
    fn text(&self) -> &str {
        self.content.as_str().unwrap_or_default()
    }

    fn reasoning(&self) -> &str {
        let reasoning = self.reasoning.as_ref();
        reasoning.and_then(|text| text.as_str()).unwrap_or_default()
    }
}

/// The items of a list; none of anything else.
fn items(list: &Value) -> impl Iterator<Item = Value> {
    let list = (list.kind() == ValueKind::Seq).then(|| list.try_iter().ok());
    list.flatten().into_iter().flatten()
}
