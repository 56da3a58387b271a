//! A request in an order of our own, for where the engine's prompt cannot be told.
//!
//! Two requests whose outlines begin alike have prompts that begin alike, whatever the template: tools
//! and instructions first, then the messages with their roles. What engines make of it is not known, so
//! an outline is only ever compared with the outlines of requests that were sent before.

use minijinja::value::{Value, ValueKind};
use sha2::{Digest, Sha256};

use super::request::{ParsedRequest, field};
use super::{Prompt, PromptText};

/// What comes before the messages, in all interfaces.
const FIRST: [&str; 3] = ["tools", "system", "instructions"];
/// Where the messages, texts or ids are, the first that is there counts.
const MAIN: [&str; 4] = ["messages", "input", "prompt", "documents"];
/// A longer part of a message that is no text, such as an image, stands as its hash, in bytes.
const PART_MAX: usize = 1_024;
/// Elements of a message's content that count.
const PARTS_MAX: usize = 65_536;

/// The outline of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// Its text, or the token ids that the client sent.
    pub prompt: Prompt,
    /// Where each message ends in the text, in bytes, ascending; the last one is the text's end. Empty
    /// where there are no messages.
    pub turns: Vec<usize>,
}

impl ParsedRequest {
    /// The request's outline; `None` if there is nothing to be seen of a prompt.
    #[must_use]
    pub fn outline(&self) -> Option<Outline> {
        let mut text = String::new();
        for name in FIRST {
            if let Some(value) = field(&self.body, name) {
                put_field(&mut text, name, &value);
            }
        }
        let main = MAIN.iter().find_map(|name| field(&self.body, name));
        let Some(main) = main else {
            return (!text.is_empty()).then(|| whole(text));
        };
        if main.kind() != ValueKind::Seq {
            put_content(&mut text, &main);
            return Some(whole(text));
        }
        let mut items = main.try_iter().ok()?;
        let first = items.next()?;
        if let Some(ids) = ids(&first, &main) {
            return Some(Outline {
                prompt: Prompt::TokenIds(ids),
                turns: Vec::new(),
            });
        }
        // Of several texts each is a prompt of its own.
        if first.as_str().is_some() {
            put_content(&mut text, &first);
            return Some(whole(text));
        }
        let mut turns = Vec::new();
        for message in core::iter::once(first).chain(items) {
            put_message(&mut text, &message);
            turns.push(text.len());
        }
        Some(Outline {
            turns,
            ..whole(text)
        })
    }
}

fn whole(text: String) -> Outline {
    Outline {
        prompt: Prompt::Text(PromptText::from(text)),
        turns: Vec::new(),
    }
}

/// Token ids: the list itself, or the first of a list of lists.
fn ids(first: &Value, all: &Value) -> Option<Vec<u32>> {
    let list = match first.kind() {
        ValueKind::Number => all,
        ValueKind::Seq => first,
        _ => return None,
    };
    let id = |value: Value| u32::try_from(value).ok();
    list.try_iter().ok()?.map(id).collect()
}

fn put_field(text: &mut String, name: &str, value: &Value) {
    text.push_str(name);
    text.push('\n');
    put_content(text, value);
}

fn put_message(text: &mut String, message: &Value) {
    if message.kind() != ValueKind::Map {
        put_content(text, message);
        return;
    }
    let role = field(message, "role");
    let role = role.as_ref().and_then(Value::as_str).unwrap_or_default();
    text.push_str("\n<");
    text.push_str(role);
    text.push_str(">\n");
    if let Some(content) = field(message, "content") {
        put_content(text, &content);
    }
    for name in message.try_iter().into_iter().flatten() {
        let Some(name) = name
            .as_str()
            .filter(|name| !["role", "content"].contains(name))
        else {
            continue;
        };
        if let Some(value) = field(message, name) {
            put_field(text, name, &value);
        }
    }
}

/// A string as it is; of a list each part, texts as they are; else as JSON, or its hash.
fn put_content(text: &mut String, content: &Value) {
    if let Some(string) = content.as_str() {
        text.push_str(string);
        text.push('\n');
        return;
    }
    if content.kind() != ValueKind::Seq {
        put_json(text, content);
        return;
    }
    for part in content.try_iter().into_iter().flatten().take(PARTS_MAX) {
        let inner = part.kind() == ValueKind::Map;
        let inner = inner.then(|| field(&part, "text")).flatten();
        match inner.as_ref().and_then(Value::as_str).or(part.as_str()) {
            Some(string) => {
                text.push_str(string);
                text.push('\n');
            }
            None => put_json(text, &part),
        }
    }
}

fn put_json(text: &mut String, value: &Value) {
    let json = serde_json::to_string(value).unwrap_or_default();
    if json.len() <= PART_MAX || is_prose(value) {
        text.push_str(&json);
    } else {
        let hash: [u8; 32] = Sha256::digest(json.as_bytes()).into();
        for byte in hash.iter().take(16) {
            text.push(char::from(b'a' + (byte >> 4)));
            text.push(char::from(b'a' + (byte & 15)));
        }
    }
    text.push('\n');
}

/// Tools and calls of them are part of the prompt's text; data of media are not.
fn is_prose(value: &Value) -> bool {
    [
        "function",
        "input_schema",
        "parameters",
        "arguments",
        "input",
        "output",
    ]
    .iter()
    .any(|name| field(value, name).is_some())
}

#[cfg(test)]
mod tests {
    use super::super::{Api, parse_request};
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn outline(body: &str) -> Option<Outline> {
        parse_request(Api::ChatCompletions, body.as_bytes())
            .unwrap()
            .outline()
    }

    fn text(outline: &Outline) -> &str {
        match &outline.prompt {
            Prompt::Text(text) => &text.text,
            Prompt::TokenIds(_) => "",
        }
    }

    #[test]
    fn a_conversation_that_goes_on_begins_as_before() {
        let first = r#"{"tools": [{"type": "function", "function": {"name": "f"}}],
            "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "A"}"#;
        let calls = r#"{"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}"#;
        let tool =
            r#"{"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "T"}]}"#;
        let before = outline(&format!("{first}]}}")).unwrap();
        let after = outline(&format!("{first}, {calls}, {tool}], \"stream\": true}}")).unwrap();
        assert!(text(&after).starts_with(text(&before)));
        assert_eq!(before.turns.len(), 2);
        assert_eq!(after.turns.len(), 4);
        assert_eq!(after.turns[..2], before.turns);
        assert_eq!(after.turns.last(), Some(&text(&after).len()));
        for part in ["\"name\":\"f\"", "<system>\nS", "<tool>\nT", "tool_calls\n"] {
            assert!(text(&after).contains(part), "{part} in {}", text(&after));
        }
    }

    #[test]
    fn texts_ids_and_nothing() {
        let of = |body| outline(body);
        assert_eq!(text(&of(r#"{"prompt": "Hello"}"#).unwrap()), "Hello\n");
        assert_eq!(text(&of(r#"{"input": ["a", "b"]}"#).unwrap()), "a\n");
        for body in [r#"{"prompt": [1, 2]}"#, r#"{"prompt": [[1, 2], [3]]}"#] {
            assert_eq!(of(body).unwrap().prompt, Prompt::TokenIds(vec![1, 2]));
        }
        let responses = of(r#"{"instructions": "I", "input": [{"role": "user", "content": "x"}]}"#);
        let responses = responses.unwrap();
        assert!(text(&responses).starts_with("instructions\nI\n"));
        assert_eq!(responses.turns.len(), 1);
        for body in ["{}", r#"{"messages": []}"#, r#"{"model": "m"}"#] {
            assert_eq!(of(body), None, "{body}");
        }
        // Whatever is odd is text of some kind.
        for body in [
            r#"{"messages": [null, 3, "x", {"role": 5}, {"content": {"a": [1]}}, [[]]]}"#,
            r#"{"prompt": [-1, 2]}"#,
            r#"{"messages": {"role": "user"}}"#,
            r#"{"prompt": 5, "tools": 7}"#,
        ] {
            let _ = of(body);
        }
    }

    #[test]
    fn media_stand_as_their_hash_and_differ() {
        let of = |data: &str| {
            let url = format!("data:image/png;base64,{}", data.repeat(5_000));
            let part = format!(r#"{{"type": "image_url", "image_url": {{"url": "{url}"}}}}"#);
            let message = format!(r#"{{"role": "user", "content": [{part}]}}"#);
            outline(&format!(r#"{{"messages": [{message}]}}"#)).unwrap()
        };
        assert!(text(&of("A")).len() < 100);
        assert_ne!(of("A"), of("B"));
        assert_eq!(of("A"), of("A"));
    }
}
