//! Chat completions (and what is turned into them) -> Harmony messages.

use std::collections::HashMap;

use super::{Channel, Conversation, Message, Settings, Skip, Tool, Value, contents, field};
use super::{flat_text, items};

pub(super) fn conversation(
    body: &Value,
    tools: Option<&Value>,
    settings: &Settings,
) -> Result<Conversation, Skip> {
    let messages = field(body, "messages").ok_or(Skip::InvalidRequest)?;
    let messages: Vec<Value> = items(&messages).collect();
    if messages.iter().any(has_foreign_parts) {
        return Err(Skip::Unsupported);
    }
    let mut rest = messages.as_slice();
    let mut instructions = None;
    if let Some((first, others)) = messages.split_first()
        && matches!(role(first)?.as_str(), "system" | "developer")
    {
        instructions = flat_text(field(first, "content").as_ref())?;
        rest = others;
    }
    let tools = tools
        .into_iter()
        .flat_map(items)
        .map(|tool| definition(&tool));
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    let mut conversation = Conversation::default();
    let effort = field(body, "reasoning_effort");
    conversation.preamble(settings, effort.as_ref(), instructions, tools)?;
    let names = call_names(rest)?;
    for message in rest {
        add(&mut conversation, message, &names, settings)?;
    }
    Ok(conversation)
}

/// Parts that chat completions do not know make the engine's validation pass the whole content on
/// unread, and then it is lost in some places and refused in others.
fn has_foreign_parts(message: &Value) -> bool {
    let calls = || field(message, "tool_calls").is_some_and(|calls| calls.is_true());
    match role(message).unwrap_or_default().as_str() {
        "user" => return false,
        "assistant" if !calls() => return false,
        _ => {}
    }
    let foreign = |part: Value| match field(&part, "type").as_ref().and_then(|kind| kind.as_str()) {
        Some("text") => field(&part, "text").is_none_or(|text| text.as_str().is_none()),
        Some("image_url" | "input_audio" | "audio_url" | "video_url") => false,
        _ => true,
    };
    let Some(content) = field(message, "content").filter(|content| content.as_str().is_none())
    else {
        return false;
    };
    // Other keys that are not as they should be do the same.
    let is_odd = |key: &str| field(message, key).is_some_and(|value| value.as_str().is_none());
    field(message, "tools").is_some()
        || is_odd("name")
        || is_odd("task")
        || items(&content).any(foreign)
}

fn role(message: &Value) -> Result<String, Skip> {
    let role = field(message, "role").ok_or(Skip::InvalidRequest)?;
    role.as_str().map(str::to_owned).ok_or(Skip::InvalidRequest)
}

fn definition(tool: &Value) -> Result<Tool, Skip> {
    let function = field(tool, "function").ok_or(Skip::InvalidRequest)?;
    let text = |key: &str| {
        let value = field(&function, key);
        value.and_then(|value| value.as_str().map(str::to_owned))
    };
    Ok(Tool {
        name: text("name").ok_or(Skip::InvalidRequest)?,
        description: text("description").unwrap_or_default(),
        parameters: field(&function, "parameters"),
    })
}

/// Id of a call -> its name, over the whole conversation; the last of equal ids counts.
fn call_names(messages: &[Value]) -> Result<HashMap<String, String>, Skip> {
    let mut names = HashMap::new();
    for message in messages {
        let calls = message.get_attr("tool_calls").unwrap_or_default();
        if calls.is_none() {
            return Err(Skip::InvalidRequest);
        }
        for call in items(&calls) {
            let (id, name) = (field(&call, "id"), field(&call, "function"));
            let name = name.and_then(|function| field(&function, "name"));
            let (Some(id), Some(name)) = (id, name) else {
                return Err(Skip::InvalidRequest);
            };
            let (Some(id), Some(name)) = (id.as_str(), name.as_str()) else {
                return Err(Skip::InvalidRequest);
            };
            names.insert(id.to_owned(), name.to_owned());
        }
    }
    Ok(names)
}

fn add(
    conversation: &mut Conversation,
    message: &Value,
    names: &HashMap<String, String>,
    settings: &Settings,
) -> Result<(), Skip> {
    let content = field(message, "content");
    match role(message)?.as_str() {
        "assistant" => return assistant(conversation, message),
        "tool" => {
            let id = field(message, "tool_call_id");
            let name = id.and_then(|id| names.get(id.as_str()?).cloned());
            conversation.0.push(Message::Result {
                name: name.unwrap_or_default(),
                text: flat_text(content.as_ref())?.unwrap_or_default(),
            });
        }
        role @ ("system" | "developer") => {
            contents(content.as_ref())?;
            if let Some(text) = flat_text(content.as_ref())? {
                conversation.instruct(role, text, settings);
            }
        }
        "user" => {
            let text = contents(content.as_ref())?.concat();
            conversation.0.push(Message::User(text));
        }
        _ => return Err(Skip::InvalidRequest),
    }
    Ok(())
}

fn assistant(conversation: &mut Conversation, message: &Value) -> Result<(), Skip> {
    let content = field(message, "content");
    let reasoning = field(message, "reasoning").or_else(|| field(message, "reasoning_content"));
    let reasoning = match &reasoning {
        Some(text) => text.as_str().ok_or(Skip::InvalidRequest)?,
        None => "",
    };
    let calls = field(message, "tool_calls").filter(Value::is_true);
    let calls_tools = calls.is_some();
    if calls_tools {
        let text = flat_text(content.as_ref())?.unwrap_or_default();
        if !text.is_empty() {
            let said = Message::Assistant(Channel::Commentary, text);
            conversation.0.push(said);
        }
    }
    if !reasoning.is_empty() {
        let thought = Message::Assistant(Channel::Analysis, reasoning.to_owned());
        conversation.0.push(thought);
    }
    for call in calls.iter().flat_map(items) {
        let function = field(&call, "function").ok_or(Skip::InvalidRequest)?;
        let name = field(&function, "name").ok_or(Skip::InvalidRequest)?;
        let arguments = field(&function, "arguments").ok_or(Skip::InvalidRequest)?;
        conversation.call(
            name.as_str().ok_or(Skip::InvalidRequest)?,
            arguments.as_str().ok_or(Skip::InvalidRequest)?,
        )?;
    }
    if !calls_tools {
        let texts = contents(content.as_ref())?;
        if texts.first().is_some_and(|first| !first.is_empty()) {
            let said = Message::Assistant(Channel::Final, texts.concat());
            conversation.0.push(said);
        }
    }
    Ok(())
}
