//! gpt-oss: OpenAI's Harmony format (vLLM 0.32: `entrypoints/openai/parser/harmony_utils.py`,
//! `entrypoints/openai/responses/harmony.py`; oss-harmony 0.0.11).
//!
//! The engine makes token ids piece by piece; their bytes are this text. Marks inside of what people
//! say are text to it, with the same bytes. The system message shows the engine's date.

use minijinja::value::{Value, ValueKind};

use super::items;
use crate::prompt::clock::Clock;
use crate::prompt::compiled::Chat;
use crate::prompt::request::field;
use crate::prompt::{Api, Profile, Skip};

mod chat;
mod responses;
mod typescript;

/// What the engine's environment says about Harmony.
pub(super) struct Settings {
    /// `VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS`: instructions go to the system message.
    system_instructions: bool,
    /// `VLLM_SYSTEM_START_DATE`, or the engine's date.
    date: String,
}

/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses, [`Skip::Unsupported`] for what depends on
/// more than the request.
pub(super) fn render(
    profile: &Profile,
    chat: &Chat,
    (start_date, system_instructions): (Option<&str>, bool),
    now_unix_s: i64,
) -> Result<String, Skip> {
    let clock = Clock::at(now_unix_s, profile.utc_offset_minutes);
    let date = start_date.filter(|date| !date.is_empty());
    let settings = Settings {
        system_instructions,
        date: date.map_or_else(|| clock.strftime("%Y-%m-%d"), str::to_owned),
    };
    let conversation = match chat.api {
        Api::ChatCompletions | Api::Messages => {
            let tools = chat.tools(profile)?;
            chat::conversation(&chat.body, tools.as_ref(), &settings)?
        }
        Api::Responses => responses::conversation(chat.original, &settings)?,
        // They go by the template.
        _ => return Err(Skip::Unsupported),
    };
    Ok(conversation.write(&settings))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Channel {
    Analysis,
    Commentary,
    Final,
}

enum Message {
    System {
        effort: &'static str,
        instructions: Option<String>,
    },
    Developer {
        instructions: Option<String>,
        tools: Vec<Tool>,
    },
    User(String),
    Assistant(Channel, String),
    Call {
        name: String,
        arguments: String,
    },
    Result {
        name: String,
        text: String,
    },
}

struct Tool {
    name: String,
    description: String,
    parameters: Option<Value>,
}

#[derive(Default)]
struct Conversation(Vec<Message>);

impl Conversation {
    /// The system message and, if there is something to say, the developer message.
    fn preamble(
        &mut self,
        settings: &Settings,
        effort: Option<&Value>,
        instructions: Option<String>,
        tools: Vec<Tool>,
    ) -> Result<(), Skip> {
        let effort = match effort.map(Value::as_str) {
            None | Some(Some("medium")) => "medium",
            Some(Some("low")) => "low",
            Some(Some("high")) => "high",
            _ => return Err(Skip::InvalidRequest),
        };
        let (system, developer) = if settings.system_instructions {
            (instructions, None)
        } else {
            (None, instructions)
        };
        self.0.push(Message::System {
            effort,
            instructions: system,
        });
        let says = developer.as_ref().is_some_and(|text| !text.is_empty());
        if says || !tools.is_empty() {
            self.0.push(Message::Developer {
                instructions: developer,
                tools,
            });
        }
        Ok(())
    }

    /// Instructions in the middle of a conversation.
    fn instruct(&mut self, role: &str, instructions: String, settings: &Settings) {
        self.0
            .push(if role == "system" && settings.system_instructions {
                Message::System {
                    effort: "medium",
                    instructions: Some(instructions),
                }
            } else {
                Message::Developer {
                    instructions: Some(instructions).filter(|_| !settings.system_instructions),
                    tools: Vec::new(),
                }
            });
    }

    /// A call's name stands in its header, which the engine reads back: no marks there.
    fn call(&mut self, name: &str, arguments: &str) -> Result<(), Skip> {
        if name.contains("<|") {
            return Err(Skip::Unsupported);
        }
        self.0.push(Message::Call {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        });
        Ok(())
    }

    fn write(&self, settings: &Settings) -> String {
        let is_final = |m: &Message| matches!(m, Message::Assistant(Channel::Final, _));
        let last_final = self.0.iter().rposition(is_final).unwrap_or(0);
        let has_tools =
            |m: &Message| matches!(m, Message::Developer { tools, .. } if !tools.is_empty());
        let has_tools = self.0.iter().any(has_tools);
        let mut out = String::new();
        for (at, message) in self.0.iter().enumerate() {
            let analysis = matches!(message, Message::Assistant(Channel::Analysis, _));
            if analysis && at < last_final {
                continue;
            }
            message.write(&mut out, settings, has_tools);
        }
        out.push_str("<|start|>assistant");
        out
    }
}

impl Message {
    fn write(&self, out: &mut String, settings: &Settings, has_tools: bool) {
        match self {
            Self::System {
                effort,
                instructions,
            } => {
                out.push_str("<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n");
                if let Some(instructions) = instructions {
                    out.push_str(instructions);
                    out.push('\n');
                }
                out.push_str(&format!(
                    "Knowledge cutoff: 2024-06\nCurrent date: {}\n\nReasoning: {effort}\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.",
                    settings.date
                ));
                if has_tools {
                    out.push_str(
                        "\nCalls to these tools must go to the commentary channel: 'functions'.",
                    );
                }
            }
            Self::Developer {
                instructions,
                tools,
            } => {
                out.push_str("<|start|>developer<|message|>");
                if let Some(instructions) = instructions {
                    out.push_str("# Instructions\n\n");
                    out.push_str(instructions);
                    if !tools.is_empty() {
                        out.push_str("\n\n");
                    }
                }
                typescript::write_tools(out, tools);
            }
            Self::User(text) => {
                out.push_str("<|start|>user<|message|>");
                out.push_str(text);
            }
            Self::Assistant(channel, text) => {
                let channel = match channel {
                    Channel::Analysis => "analysis",
                    Channel::Commentary => "commentary",
                    Channel::Final => "final",
                };
                out.push_str(&format!(
                    "<|start|>assistant<|channel|>{channel}<|message|>"
                ));
                out.push_str(text);
            }
            Self::Call { name, arguments } => {
                out.push_str(&format!(
                    "<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>"
                ));
                out.push_str(arguments);
                out.push_str("<|call|>");
                return;
            }
            Self::Result { name, text } => {
                out.push_str(&format!(
                    "<|start|>functions.{name}<|channel|>commentary to=assistant<|message|>"
                ));
                out.push_str(text);
            }
        }
        out.push_str("<|end|>");
    }
}

/// Text parts, strings or not, run together; `None` if there is no text at all.
fn flat_text(content: Option<&Value>) -> Result<Option<String>, Skip> {
    let Some(content) = content else {
        return Ok(None);
    };
    if let Some(text) = content.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let mut text: Option<String> = None;
    for part in items(content) {
        let part = if part.as_str().is_some() {
            Some(part)
        } else {
            field(&part, "text")
        };
        if let Some(part) = part {
            let part = part.as_str().ok_or(Skip::InvalidRequest)?;
            text.get_or_insert_with(String::new).push_str(part);
        }
    }
    Ok(text)
}

/// Content of a message as such: parts without text are nothing.
fn contents(content: Option<&Value>) -> Result<Vec<String>, Skip> {
    let Some(content) = content else {
        return Ok(vec![String::new()]);
    };
    if let Some(text) = content.as_str() {
        return Ok(vec![text.to_owned()]);
    }
    if content.kind() != ValueKind::Seq {
        return Err(Skip::InvalidRequest);
    }
    let text = |part: Value| {
        if part.kind() != ValueKind::Map {
            return Err(Skip::InvalidRequest);
        }
        let text = part.get_attr("text").unwrap_or_default();
        match text.as_str() {
            Some(text) => Ok(text.to_owned()),
            None if text.is_undefined() => Ok(String::new()),
            None => Err(Skip::InvalidRequest),
        }
    };
    items(content).map(text).collect()
}
