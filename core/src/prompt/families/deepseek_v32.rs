//! DeepSeek V3.2 (vLLM 0.32: `tokenizers/deepseek_v32.py`, `deepseek_v32_encoding.py`).
//!
//! Thinking is off unless `thinking` or `enable_thinking` is given; the request's tools stand in a
//! system message of their own, in front.

use super::deepseek::{
    ASSISTANT, BOS, EOS, THINK, THINK_END, Tags, USER, write_calls, write_schemas,
};
use super::{Request, Turn};
use crate::prompt::Skip;

const TAGS: Tags = Tags {
    calls: "function_calls",
    invoke: "invoke",
    parameter: "parameter",
};

const TOOLS: &str = r#"## Tools
You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>
String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).
If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:
<｜DSML｜function_calls>
...
</｜DSML｜function_calls>
<function_results>
...
</function_results>
<think>...thinking about results</think>
Here are the functions available in JSONSchema format:
<functions>
"#;
const TOOLS_END: &str = "\n</functions>\n";

/// # Errors
/// [`Skip::InvalidRequest`] for conversations that the engine refuses.
pub(super) fn render(request: &Request) -> Result<String, Skip> {
    let thinking = request.is_set("thinking") || request.is_set("enable_thinking");
    let mut turns = request.turns.clone();
    let drops = turns.last().is_some_and(|turn| turn.role == "user");
    if let Some(tools) = &request.tools {
        let system = Turn {
            role: "system".to_owned(),
            tools: Some(tools.clone()),
            ..Turn::default()
        };
        turns.insert(0, system);
    }
    if thinking && drops {
        drop_reasoning(&mut turns)?;
    }
    let mut writer = Writer {
        out: BOS.to_owned(),
        last_user: last_user(&turns),
        thinking,
        turns: &turns,
    };
    for (at, turn) in turns.iter().enumerate() {
        writer.turn(at, turn)?;
    }
    Ok(writer.out)
}

/// Index of the last message that asks for an answer.
fn last_user(turns: &[Turn]) -> Option<usize> {
    turns
        .iter()
        .rposition(|turn| turn.role == "user" || turn.role == "developer")
}

/// Reasoning goes that stands before the last user message. So do messages of other roles, which
/// the engine then misses and refuses the request.
fn drop_reasoning(turns: &mut [Turn]) -> Result<(), Skip> {
    let Some(last) = last_user(turns) else {
        return Ok(());
    };
    for turn in turns.iter_mut().take(last) {
        match turn.role.as_str() {
            "user" | "system" | "tool" => {}
            "assistant" => turn.reasoning = None,
            _ => return Err(Skip::InvalidRequest),
        }
    }
    Ok(())
}

struct Writer<'t> {
    out: String,
    turns: &'t [Turn],
    last_user: Option<usize>,
    thinking: bool,
}

impl Writer<'_> {
    fn turn(&mut self, at: usize, turn: &Turn) -> Result<(), Skip> {
        match turn.role.as_str() {
            "system" => {
                self.out.push_str(turn.text());
                self.tools(turn)
            }
            "developer" => {
                if turn.text().is_empty() {
                    return Err(Skip::InvalidRequest);
                }
                self.out.push_str(USER);
                self.tools(turn)?;
                self.out.push_str("\n\n# The user's message is: ");
                self.out.push_str(turn.text());
                self.open(self.last_user == Some(at));
                Ok(())
            }
            "user" => {
                self.out.push_str(USER);
                self.out.push_str(turn.text());
                self.open(self.last_user == Some(at));
                Ok(())
            }
            "tool" => self.tool_result(at, turn),
            "assistant" => self.assistant(at, turn),
            _ => Err(Skip::InvalidRequest),
        }
    }

    fn tools(&mut self, turn: &Turn) -> Result<(), Skip> {
        if let Some(tools) = &turn.tools {
            self.out.push_str("\n\n");
            self.out.push_str(TOOLS);
            write_schemas(&mut self.out, tools)?;
            self.out.push_str(TOOLS_END);
        }
        Ok(())
    }

    fn open(&mut self, latest: bool) {
        self.out.push_str(ASSISTANT);
        self.think(latest);
    }

    fn think(&mut self, latest: bool) {
        let mark = if latest && self.thinking {
            THINK
        } else {
            THINK_END
        };
        self.out.push_str(mark);
    }

    fn tool_result(&mut self, at: usize, turn: &Turn) -> Result<(), Skip> {
        let before = self.turns.get(..at).unwrap_or_default();
        let asking = before.iter().rposition(|turn| turn.role != "tool");
        // A result in front of everything is looked up in the last message: indices count from the
        // end below zero.
        let assistant = match asking {
            Some(asking) => before.get(asking).filter(|turn| turn.role == "assistant"),
            None if at == 0 => self.turns.last(),
            None => None,
        };
        let calls = assistant.and_then(|turn| turn.tool_calls.as_ref());
        let calls = calls.and_then(minijinja::Value::len).unwrap_or(0);
        let nth = at - asking.map_or(0, |asking| asking + 1) + 1;
        if nth > calls {
            return Err(Skip::InvalidRequest);
        }
        if nth == 1 {
            self.out.push_str("\n\n<function_results>");
        }
        self.out.push_str("\n<result>");
        self.out.push_str(turn.text());
        self.out.push_str("</result>");
        if nth == calls {
            self.out.push_str("\n</function_results>\n\n");
            self.think(self.last_user.is_none_or(|last| at >= last));
        }
        Ok(())
    }

    fn assistant(&mut self, at: usize, turn: &Turn) -> Result<(), Skip> {
        if self.thinking && self.last_user.is_none_or(|last| at > last) {
            if turn.reasoning().is_empty() && turn.tool_calls.is_none() {
                return Err(Skip::InvalidRequest);
            }
            self.out.push_str(turn.reasoning());
            self.out.push_str(THINK_END);
        }
        self.out.push_str(turn.text());
        if let Some(calls) = &turn.tool_calls {
            write_calls(&mut self.out, calls, TAGS)?;
        }
        self.out.push_str(EOS);
        Ok(())
    }
}
