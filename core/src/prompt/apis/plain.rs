//! Interfaces that take text or token ids, and the pooling ones, which take those or messages.

use minijinja::value::{Value, ValueKind};

use super::{Input, Map, elements, has};
use crate::prompt::request::field;
use crate::prompt::{Api, Skip};

/// Fields that a chat has in the pooling interfaces and in `/tokenize`. Others are ignored there.
const CHAT_FIELDS: [&str; 7] = [
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "add_generation_prompt",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "truncation_side",
];

/// `/v1/completions`.
pub(super) fn completion(body: &Value, max: usize) -> Result<Vec<Input<'static>>, Skip> {
    if field(body, "prompt_embeds").is_some() {
        return Err(Skip::PromptEmbeds);
    }
    let prompt = field(body, "prompt").ok_or(Skip::InvalidRequest)?;
    texts_or_ids(&prompt, special_tokens(body, true), max)
}

/// A string, a list of strings, token ids, or a list of lists of them.
fn texts_or_ids(input: &Value, special: bool, max: usize) -> Result<Vec<Input<'static>>, Skip> {
    let text = |text: Value| Input::Text {
        text,
        special_tokens: special,
    };
    if input.as_str().is_some() {
        return Ok(vec![text(input.clone())]);
    }
    let first = elements(input)?.next().ok_or(Skip::InvalidRequest)?;
    match first.kind() {
        ValueKind::Number => Ok(vec![Input::Ids(input.clone())]),
        ValueKind::String => elements(input)?
            .take(max)
            .map(|item| match item.kind() {
                ValueKind::String => Ok(text(item)),
                _ => Err(Skip::InvalidRequest),
            })
            .collect(),
        ValueKind::Seq => elements(input)?
            .take(max)
            .map(|item| match elements(&item)?.next() {
                Some(first) if first.kind() == ValueKind::Number => Ok(Input::Ids(item)),
                _ => Err(Skip::InvalidRequest),
            })
            .collect(),
        _ => Err(Skip::InvalidRequest),
    }
}

fn special_tokens(body: &Value, default: bool) -> bool {
    field(body, "add_special_tokens").map_or(default, |value| value.is_true())
}

/// What a pooling request is about.
pub(super) enum Pooled {
    /// Texts or token ids.
    Inputs(Vec<Input<'static>>),
    /// Bodies of chats.
    Chats(Vec<Value>),
}

/// `/v1/embeddings`, `/pooling`, `/classify`: `input` or `messages`. In embeddings both may be a
/// list of chats, and `input` a chat.
pub(super) fn pooled(body: &Value, api: Api, max: usize) -> Result<Pooled, Skip> {
    if has(body, "normalize") {
        return Err(Skip::InvalidRequest);
    }
    let messages = match (field(body, "input"), field(body, "messages")) {
        // Which one counts depends on how many fields of each the engine knows.
        (Some(_), Some(_)) => return Err(Skip::Unsupported),
        (Some(input), None) => match texts_or_ids(&input, special_tokens(body, true), max) {
            Ok(inputs) => return Ok(Pooled::Inputs(inputs)),
            Err(_) if api == Api::Embeddings => input,
            Err(skip) => return Err(skip),
        },
        (None, Some(messages)) => messages,
        // A request for a plug-in of the engine.
        (None, None) if has(body, "data") => return Err(Skip::Unsupported),
        (None, None) => return Err(Skip::InvalidRequest),
    };
    let first = elements(&messages)?.next();
    let is_batch = first.is_some_and(|first| first.kind() == ValueKind::Seq);
    if is_batch && api == Api::Embeddings {
        let chats = elements(&messages)?.take(max);
        return Ok(Pooled::Chats(chats.map(|m| pooled_chat(body, m)).collect()));
    }
    Ok(Pooled::Chats(vec![pooled_chat(body, messages)]))
}

/// Neither tools nor documents, and no room for an answer unless asked for.
fn pooled_chat(body: &Value, messages: Value) -> Value {
    let chat = Map::default().with("messages", messages);
    let chat = match field(body, "add_generation_prompt") {
        Some(_) => chat,
        None => chat.with("add_generation_prompt", false),
    };
    chat.copy(body, &CHAT_FIELDS).value()
}

/// `/tokenize` with a prompt.
pub(super) fn is_text_to_tokenize(body: &Value) -> bool {
    field(body, "prompt").is_some_and(|prompt| prompt.as_str().is_some())
}

pub(super) fn text_to_tokenize(body: &Value) -> Result<Input<'static>, Skip> {
    if field(body, "messages").is_some() {
        return Err(Skip::Unsupported);
    }
    Ok(Input::Text {
        text: field(body, "prompt").ok_or(Skip::InvalidRequest)?,
        special_tokens: special_tokens(body, true),
    })
}

/// `/tokenize` with messages: no `tool_choice`, `documents` or `reasoning_effort`.
pub(super) fn chat_to_tokenize(body: &Value) -> Result<Value, Skip> {
    let messages = field(body, "messages").ok_or(Skip::InvalidRequest)?;
    let chat = Map::default().with("messages", messages);
    let chat = chat.copy(body, &CHAT_FIELDS[..5]);
    Ok(chat.copy(body, &["tools", "kv_transfer_params"]).value())
}
