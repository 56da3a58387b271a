//! The model's chat template (`model/chat_template.jinja`) by hand, with what vLLM does to messages before
//! it renders them. Checked against Python's Jinja2 (`vectors/chat-template.jsonl`).

use serde_json::{Map, Value, json};

use crate::python_json::dumps;

/// A chat request's part that becomes the prompt.
#[derive(Debug)]
pub(crate) struct Chat {
    messages: Vec<Message>,
    tools: Vec<Value>,
    pub(crate) add_generation_prompt: bool,
    pub(crate) continue_final_message: bool,
}

#[derive(Debug, PartialEq)]
struct Message {
    role: String,
    content: String,
    /// Name and arguments.
    calls: Vec<(String, Value)>,
}

impl Chat {
    /// Reads `messages`, `tools` and the generation flags of a request body.
    ///
    /// # Errors
    /// What vLLM would answer 400 for: the text says why.
    pub(crate) fn of_body(body: &Value) -> Result<Self, String> {
        let raw = body["messages"]
            .as_array()
            .ok_or("messages: a list is required")?;
        if raw.is_empty() {
            return Err("messages: at least one is required".into());
        }
        let messages = raw.iter().map(message).collect::<Result<Vec<_>, _>>()?;
        let flag = |name: &str, default| body[name].as_bool().unwrap_or(default);
        let chat = Self {
            messages: merge_developer(messages),
            tools: tools(&body["tools"])?,
            add_generation_prompt: flag("add_generation_prompt", true),
            continue_final_message: flag("continue_final_message", false),
        };
        if chat.add_generation_prompt && chat.continue_final_message {
            return Err(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
                    .into(),
            );
        }
        Ok(chat)
    }

    /// Role of the last message.
    pub(crate) fn last_role(&self) -> &str {
        self.messages.last().map_or("", |m| m.role.as_str())
    }

    /// The functions on offer, as the template sees them.
    pub(crate) fn tools(&self) -> &[Value] {
        &self.tools
    }

    /// The prompt.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        let system = self.messages.first().filter(|m| m.role == "system");
        if !self.tools.is_empty() {
            out += "<|im_start|>system\n";
            if let Some(system) = system {
                out += &system.content;
                out += "\n\n";
            }
            out +=
                "# Tools\n\nThese functions may be called; their signatures, one a line:\n<tools>";
            for tool in &self.tools {
                out += "\n";
                out += &dumps(tool);
            }
            out += "\n</tools>\n\nTo call one, answer with its name and arguments as JSON:\n<tool_call>\n{\"name\": <name>, \"arguments\": <arguments>}\n</tool_call><|im_end|>\n";
        } else if let Some(system) = system {
            turn(&mut out, "system", &system.content);
        }
        for (i, message) in self.messages.iter().enumerate() {
            self.message(&mut out, i, message);
        }
        if self.continue_final_message {
            self.cut_final(&mut out);
        } else if self.add_generation_prompt {
            out += "<|im_start|>assistant\n";
        }
        out
    }

    fn message(&self, out: &mut String, i: usize, message: &Message) {
        match message.role.as_str() {
            "user" => turn(out, "user", &message.content),
            "system" if i > 0 => turn(out, "system", &message.content),
            "assistant" => {
                let mut text = message.content.clone();
                for (name, arguments) in &message.calls {
                    if !text.is_empty() {
                        text += "\n";
                    }
                    text += &call_text(name, &dumps(arguments));
                }
                turn(out, "assistant", &text);
            }
            "tool" => {
                let is_tool = |at: Option<usize>| {
                    at.and_then(|at| self.messages.get(at))
                        .is_some_and(|m| m.role == "tool")
                };
                if !is_tool(i.checked_sub(1)) {
                    *out += "<|im_start|>user";
                }
                *out += "\n<tool_response>\n";
                *out += &message.content;
                *out += "\n</tool_response>";
                if !is_tool(Some(i + 1)) {
                    *out += "<|im_end|>\n";
                }
            }
            _ => {}
        }
    }

    /// `continue_final_message`: the prompt ends with the last message's text.
    fn cut_final(&self, out: &mut String) {
        let Some(last) = self.messages.last() else {
            return;
        };
        if let Some(at) = out.rfind(last.content.as_str()) {
            out.truncate(at + last.content.len());
        }
    }
}

/// How a tool call looks in the model's text.
pub(crate) fn call_text(name: &str, arguments: &str) -> String {
    format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
}

fn turn(out: &mut String, role: &str, content: &str) {
    *out += "<|im_start|>";
    *out += role;
    *out += "\n";
    *out += content;
    *out += "<|im_end|>\n";
}

fn message(raw: &Value) -> Result<Message, String> {
    let role = raw["role"]
        .as_str()
        .ok_or("messages: each needs a role")?
        .to_owned();
    let mut content = content(&raw["content"])?;
    if role == "system" && content.starts_with("x-anthropic-billing-header") {
        content = content
            .split_once('\n')
            .map_or(String::new(), |(_, rest)| rest.to_owned());
    }
    let calls = match &raw["tool_calls"] {
        Value::Array(calls) if role == "assistant" => {
            calls.iter().map(call).collect::<Result<_, _>>()?
        }
        _ => Vec::new(),
    };
    Ok(Message {
        role,
        content,
        calls,
    })
}

/// Strings as they are; text parts joined by newlines; null is empty.
fn content(raw: &Value) -> Result<String, String> {
    let parts = match raw {
        Value::Null => return Ok(String::new()),
        Value::String(s) => return Ok(s.clone()),
        Value::Array(parts) => parts,
        _ => return Err("content: a string or a list of parts is required".into()),
    };
    let texts: Result<Vec<&str>, String> = parts
        .iter()
        .map(|part| match (part.as_str(), part["type"].as_str()) {
            (Some(text), _) => Ok(text),
            (None, Some("text" | "input_text" | "output_text")) => part["text"]
                .as_str()
                .ok_or_else(|| "content: a text part needs text".to_owned()),
            (None, Some("refusal")) => part["refusal"]
                .as_str()
                .ok_or_else(|| "content: a refusal part needs refusal".to_owned()),
            (None, kind) => Err(format!(
                "content: this model takes text only, not {}",
                kind.unwrap_or("parts without a type")
            )),
        })
        .collect();
    Ok(texts?.join("\n"))
}

/// Arguments come as JSON text; what is no object becomes an empty one.
fn call(raw: &Value) -> Result<(String, Value), String> {
    let name = raw["function"]["name"]
        .as_str()
        .ok_or("tool_calls: each needs a function name")?;
    let arguments = match &raw["function"]["arguments"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    };
    let arguments = if arguments.is_object() {
        arguments
    } else {
        json!({})
    };
    Ok((name.to_owned(), arguments))
}

/// The template never mentions `developer`: such messages become system ones, and then all of them one.
fn merge_developer(mut messages: Vec<Message>) -> Vec<Message> {
    if !messages.iter().any(|m| m.role == "developer") {
        return messages;
    }
    let is_system = |m: &Message| m.role == "system" || m.role == "developer";
    let text: Vec<_> = messages
        .iter()
        .filter(|m| is_system(m))
        .map(|m| m.content.clone())
        .collect();
    messages.retain(|m| !is_system(m));
    messages.insert(
        0,
        Message {
            role: "system".into(),
            content: text.join("\n\n"),
            calls: Vec::new(),
        },
    );
    messages
}

/// Tools as vLLM dumps them again: known keys in its order, absent description and parameters as null.
fn tools(raw: &Value) -> Result<Vec<Value>, String> {
    let raw = match raw {
        Value::Null => return Ok(Vec::new()),
        Value::Array(tools) if !tools.is_empty() => tools,
        _ => return Err("tools: a list of at least one is required".into()),
    };
    raw.iter()
        .map(|tool| {
            let given = &tool["function"];
            let mut function = Map::new();
            function.insert(
                "name".into(),
                json!(
                    given["name"]
                        .as_str()
                        .ok_or("tools: each needs a function with a name")?
                ),
            );
            function.insert("description".into(), given["description"].clone());
            function.insert("parameters".into(), given["parameters"].clone());
            for optional in ["strict", "defer_loading"] {
                if !given[optional].is_null() {
                    function.insert(optional.into(), given[optional].clone());
                }
            }
            Ok(json!({"type": tool["type"].as_str().unwrap_or("function"), "function": function}))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_jinja2() {
        let mut checked = 0;
        for line in include_str!("../vectors/chat-template.jsonl").lines() {
            let vector: Value = serde_json::from_str(line).unwrap();
            let chat = Chat::of_body(&vector["body"]).unwrap();
            assert_eq!(
                chat.render(),
                vector["prompt"].as_str().unwrap(),
                "{}",
                vector["name"]
            );
            checked += 1;
        }
        assert!(checked >= 20, "{checked}");
    }

    #[test]
    fn refuses_what_vllm_refuses() {
        let check = |body: Value| Chat::of_body(&body).unwrap_err();
        check(json!({}));
        check(json!({"messages": []}));
        check(json!({"messages": [{"content": "no role"}]}));
        check(json!({"messages": [{"role": "user", "content": 5}]}));
        check(json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}));
        check(json!({"messages": [{"role": "user", "content": "x"}], "tools": []}));
        check(
            json!({"messages": [{"role": "user", "content": "x"}], "continue_final_message": true}),
        );
    }
}
