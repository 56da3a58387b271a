//! From merged messages to text.

use super::super::Turn;
use super::super::deepseek::{
    ASSISTANT, BOS, EOS, THINK, THINK_END, Tags, USER, write_calls, write_schemas,
};
use super::V4_TAGS;
use super::blocks::{Message, merge, sort_results};
use crate::prompt::Skip;
use crate::prompt::tojson::dumps;

const SYSTEM: &str = "<｜System｜>";
const LATEST_REMINDER: &str = "<｜latest_reminder｜>";

/// Index of the last message that asks for an answer.
fn last_user(messages: &[Message], v41: bool) -> Option<usize> {
    let mut indexed = messages.iter().enumerate().rev();
    let asks = |(at, message): &(usize, &Message)| match message.role() {
        "user" | "developer" => true,
        "system" => v41 && *at > 0,
        _ => false,
    };
    indexed.find(asks).map(|(at, _)| at)
}

/// Reasoning before the last user message goes, and so do developer messages there.
fn drop_reasoning(messages: Vec<Message>, v41: bool) -> Vec<Message> {
    let last = last_user(&messages, v41);
    let mut kept = Vec::with_capacity(messages.len());
    for (at, mut message) in messages.into_iter().enumerate() {
        let earlier = last.is_some_and(|last| at < last);
        match message.role() {
            _ if !earlier => {}
            "user" | "system" | "latest_reminder" | "direct_search_results" => {}
            "assistant" => message.turn.reasoning = None,
            _ => continue,
        }
        kept.push(message);
    }
    kept
}

/// Writes a conversation's text.
pub(super) struct Writer {
    pub(super) out: String,
    pub(super) v41: bool,
    pub(super) tags: Tags,
    /// What is said about effort in front, when thinking.
    pub(super) effort: String,
    pub(super) thinking: bool,
    pub(super) drops: bool,
    pub(super) last_user: Option<usize>,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            out: BOS.to_owned(),
            v41: false,
            tags: V4_TAGS,
            effort: String::new(),
            thinking: true,
            drops: true,
            last_user: None,
        }
    }
}

impl Writer {
    pub(super) fn render(mut self, turns: Vec<Turn>, drops: bool) -> Result<String, Skip> {
        let mut messages = merge(turns, self.v41);
        sort_results(&mut messages)?;
        let has_tools = messages.iter().any(|message| message.turn.tools.is_some());
        self.drops = drops && !has_tools;
        if self.thinking && self.drops {
            messages = drop_reasoning(messages, self.v41);
        }
        self.last_user = last_user(&messages, self.v41);
        for at in 0..messages.len() {
            self.message(&messages, at)?;
        }
        Ok(self.out)
    }

    fn message(&mut self, messages: &[Message], at: usize) -> Result<(), Skip> {
        let Some(message) = messages.get(at) else {
            return Ok(());
        };
        let first = at == 0;
        let system = message.role() == "system";
        if self.v41 && (system || (first && self.thinking)) {
            self.out.push_str(SYSTEM);
        }
        if first && self.thinking {
            self.out.push_str(&self.effort);
        }
        self.body(messages, at, message)?;
        let next = messages.get(at + 1).map(Message::role);
        if next.is_some_and(|role| role != "assistant" && role != "latest_reminder") {
            return Ok(());
        }
        self.transition(message, at, next)
    }

    fn body(&mut self, messages: &[Message], at: usize, message: &Message) -> Result<(), Skip> {
        let turn = &message.turn;
        match message.role() {
            "system" => {
                self.out.push_str(turn.text());
                self.tools(turn)?;
                self.response_format(turn)
            }
            "developer" => {
                if turn.text().is_empty() {
                    return Err(Skip::InvalidRequest);
                }
                self.out.push_str(USER);
                self.out.push_str(turn.text());
                self.tools(turn)?;
                self.response_format(turn)
            }
            "user" => {
                self.out.push_str(USER);
                message.write_blocks(&mut self.out);
                Ok(())
            }
            "latest_reminder" => {
                self.out.push_str(LATEST_REMINDER);
                self.out.push_str(turn.text());
                Ok(())
            }
            "assistant" => {
                let before = at.checked_sub(1).and_then(|before| messages.get(before));
                let answers_task = before.is_some_and(|message| message.turn.task.is_some());
                let latest = self.last_user.is_none_or(|last| at > last);
                if self.thinking && !answers_task && (!self.drops || latest) {
                    self.out.push_str(turn.reasoning());
                    self.out.push_str(THINK_END);
                }
                self.out.push_str(turn.text());
                if let Some(calls) = &turn.tool_calls {
                    write_calls(&mut self.out, calls, self.tags)?;
                }
                if !turn.is_open {
                    self.out.push_str(EOS);
                }
                Ok(())
            }
            _ => Err(Skip::InvalidRequest),
        }
    }

    /// What stands between a message and the answer to it.
    fn transition(&mut self, message: &Message, at: usize, next: Option<&str>) -> Result<(), Skip> {
        if let Some(task) = &message.turn.task {
            let task = task.as_str().unwrap_or_default();
            if ![
                "action",
                "query",
                "authority",
                "domain",
                "title",
                "read_url",
            ]
            .contains(&task)
            {
                return Err(Skip::InvalidRequest);
            }
            if task == "action" {
                self.out.push_str(ASSISTANT);
                let mark = if self.thinking { THINK } else { THINK_END };
                self.out.push_str(mark);
            }
            self.out.push_str(&format!("<｜{task}｜>"));
            return Ok(());
        }
        let opens = match message.role() {
            "user" | "developer" => true,
            "system" if self.v41 => at > 0,
            "system" => next != Some("latest_reminder"),
            _ => false,
        };
        if opens {
            self.out.push_str(ASSISTANT);
            let latest = self.last_user.is_none_or(|last| at >= last);
            let mark = if self.thinking && (!self.drops || latest) {
                THINK
            } else {
                THINK_END
            };
            self.out.push_str(mark);
        }
        Ok(())
    }

    fn response_format(&mut self, turn: &Turn) -> Result<(), Skip> {
        let Some(format) = &turn.response_format else {
            return Ok(());
        };
        self.out.push_str("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n");
        dumps(&mut self.out, format).map_err(|_| Skip::Unsupported)
    }

    fn tools(&mut self, turn: &Turn) -> Result<(), Skip> {
        let Some(tools) = &turn.tools else {
            return Ok(());
        };
        let Tags {
            calls,
            invoke,
            parameter,
        } = self.tags;
        self.out.push_str(&format!(
            r#"

## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜{calls}>" block like the following:

<｜DSML｜{calls}>
<｜DSML｜{invoke} name="$TOOL_NAME">
<｜DSML｜{parameter} name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜{parameter}>
...
</｜DSML｜{invoke}>
<｜DSML｜{invoke} name="$TOOL_NAME2">
...
</｜DSML｜{invoke}>
</｜DSML｜{calls}>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"#
        ));
        write_schemas(&mut self.out, tools)?;
        self.out.push_str(
            "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n",
        );
        Ok(())
    }
}
