//! Responses -> Harmony messages.

use std::collections::HashMap;

use super::{Channel, Conversation, Message, Settings, Skip, Tool, Value, contents, field};
use super::{flat_text, items};

/// Tools that the server has itself. Without a tool server nothing is said about them.
const BUILTIN: [&str; 3] = ["web_search_preview", "code_interpreter", "container"];

pub(super) fn conversation(body: &Value, settings: &Settings) -> Result<Conversation, Skip> {
    for elsewhere in ["previous_response_id", "previous_input_messages", "prompt"] {
        if field(body, elsewhere).is_some() {
            return Err(Skip::Unsupported);
        }
    }
    let input = field(body, "input").ok_or(Skip::InvalidRequest)?;
    let list: Vec<Value> = items(&input).collect();
    let mut rest = list.as_slice();
    let mut instructions = match field(body, "instructions") {
        Some(text) => Some(text.as_str().ok_or(Skip::InvalidRequest)?.to_owned()),
        None => None,
    };
    if instructions.is_none()
        && let Some((first, others)) = list.split_first()
        && field(first, "role").is_some_and(|r| matches!(r.as_str(), Some("system" | "developer")))
    {
        instructions = flat_text(field(first, "content").as_ref())?;
        rest = others;
    }
    let reasoning = field(body, "reasoning");
    let effort = reasoning.and_then(|reasoning| field(&reasoning, "effort"));
    let mut conversation = Conversation::default();
    conversation.preamble(settings, effort.as_ref(), instructions, tools(body)?)?;
    if let Some(text) = input.as_str() {
        conversation.0.push(Message::User(text.to_owned()));
    }
    let mut names = HashMap::new();
    for item in rest {
        add(&mut conversation, item, &mut names, settings)?;
    }
    Ok(conversation)
}

fn tools(body: &Value) -> Result<Vec<Tool>, Skip> {
    let mut found = Vec::new();
    for tool in field(body, "tools").iter().flat_map(items) {
        let kind = text(&tool, "type")?;
        if BUILTIN.contains(&kind.as_str()) {
            continue;
        }
        if kind != "function" {
            return Err(Skip::Unsupported);
        }
        let description = field(&tool, "description");
        found.push(Tool {
            name: text(&tool, "name")?,
            description: description
                .and_then(|text| text.as_str().map(str::to_owned))
                .unwrap_or_default(),
            parameters: field(&tool, "parameters"),
        });
    }
    Ok(found)
}

fn text(map: &Value, key: &str) -> Result<String, Skip> {
    let value = field(map, key).ok_or(Skip::InvalidRequest)?;
    let text = value.as_str().map(str::to_owned);
    text.ok_or(Skip::InvalidRequest)
}

fn add(
    conversation: &mut Conversation,
    item: &Value,
    names: &mut HashMap<String, String>,
    settings: &Settings,
) -> Result<(), Skip> {
    let kind = match field(item, "type") {
        Some(kind) => kind.as_str().ok_or(Skip::InvalidRequest)?.to_owned(),
        None => "message".to_owned(),
    };
    let content = field(item, "content");
    match kind.as_str() {
        "message" => match text(item, "role")?.as_str() {
            role @ ("system" | "developer") => {
                let text = flat_text(content.as_ref())?.unwrap_or_default();
                if !text.is_empty() {
                    conversation.instruct(role, text, settings);
                }
            }
            "assistant" => {
                let text = contents(Some(&content.ok_or(Skip::InvalidRequest)?))?.concat();
                let said = Message::Assistant(Channel::Final, text);
                conversation.0.push(said);
            }
            "user" => {
                let text = contents(Some(&content.ok_or(Skip::InvalidRequest)?))?.concat();
                conversation.0.push(Message::User(text));
            }
            _ => return Err(Skip::InvalidRequest),
        },
        "function_call_output" => {
            let name = names.get(&text(item, "call_id")?).cloned();
            let output = field(item, "output").ok_or(Skip::InvalidRequest)?;
            conversation.0.push(Message::Result {
                name: name.ok_or(Skip::InvalidRequest)?,
                text: output.as_str().ok_or(Skip::Unsupported)?.to_owned(),
            });
        }
        "reasoning" => {
            let parts: Vec<Value> = content.iter().flat_map(items).collect();
            if !parts.is_empty() {
                let texts = parts.iter().map(|part| text(part, "text"));
                let thought = texts.collect::<Result<Vec<_>, _>>()?.join("\n");
                let thought = Message::Assistant(Channel::Analysis, thought);
                conversation.0.push(thought);
            }
        }
        "function_call" => {
            let name = text(item, "name")?;
            conversation.call(&name, &text(item, "arguments")?)?;
            names.insert(text(item, "call_id")?, name);
        }
        _ => return Err(Skip::Unsupported),
    }
    Ok(())
}
