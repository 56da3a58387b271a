//! Every interface turned into what the engine renders: chats in the shape of chat completions,
//! texts, and token ids.
//!
//! Source: vLLM 0.32, `entrypoints/` (`openai`, `anthropic`, `pooling`, `serve/tokenize`).

mod anthropic;
mod plain;
mod responses;

use minijinja::value::{Value, ValueKind};

pub(super) use anthropic::{EFFORTS, Probes};

use super::compiled::Chat;
use super::request::field;
use super::work::Work;
use super::{Api, ParsedRequest, Rules, Skip};

/// What one of a request's prompts is made from.
#[derive(Debug)]
pub(super) enum Input<'r> {
    /// Messages, for the chat template.
    Chat(Chat<'r>),
    /// Text as it is.
    Text {
        /// A string.
        text: Value,
        /// The tokenizer adds its special tokens.
        special_tokens: bool,
    },
    /// A sequence of token ids.
    Ids(Value),
}

/// The prompts of a request, `max` at most. Each is a request of its own to the engine.
///
/// # Errors
/// A [`Skip`] where the whole request has none.
pub(super) fn inputs<'r>(
    request: &'r ParsedRequest,
    probes: &Probes,
    rules: &Rules,
    max: usize,
    work: &'r Work,
) -> Result<Vec<Input<'r>>, Skip> {
    let body = &request.body;
    let chat = |body: Value, special_tokens: bool| {
        Input::Chat(Chat {
            api: request.api,
            original: &request.body,
            body,
            special_tokens,
            work,
        })
    };
    let one = |input| Ok(vec![input]);
    check_salt(request)?;
    match request.api {
        Api::ChatCompletions => one(chat(body.clone(), false)),
        Api::Completions => plain::completion(body, max),
        Api::Responses => one(chat(responses::to_chat(body, rules)?, true)),
        Api::Messages => one(chat(anthropic::to_chat(body, probes, rules)?, false)),
        Api::Tokenize if plain::is_text_to_tokenize(body) => one(plain::text_to_tokenize(body)?),
        Api::Tokenize => one(chat(plain::chat_to_tokenize(body)?, false)),
        Api::Embeddings | Api::Pooling => match plain::pooled(body, request.api, max)? {
            plain::Pooled::Inputs(inputs) => Ok(inputs),
            plain::Pooled::Chats(bodies) => {
                Ok(bodies.into_iter().map(|body| chat(body, false)).collect())
            }
        },
    }
}

/// `cache_salt` is a text that is not empty, or null, wherever there is such a field (vLLM 0.32:
/// `check_cache_salt_support`). Requests of `/tokenize` have none, and others are ignored.
fn check_salt(request: &ParsedRequest) -> Result<(), Skip> {
    let salt = field(&request.body, "cache_salt").filter(|_| request.api != Api::Tokenize);
    match salt {
        Some(salt) if salt.as_str().is_none_or(str::is_empty) => Err(Skip::InvalidRequest),
        _ => Ok(()),
    }
}

/// A field that is a string, or null or missing.
///
/// # Errors
/// [`Skip::InvalidRequest`] for any other value.
fn optional_str(map: &Value, name: &str) -> Result<Option<Value>, Skip> {
    optional(map, name, ValueKind::String)
}

/// A field of a kind, or null or missing.
fn optional(map: &Value, name: &str, kind: ValueKind) -> Result<Option<Value>, Skip> {
    match field(map, name) {
        Some(value) if value.kind() != kind => Err(Skip::InvalidRequest),
        other => Ok(other),
    }
}

/// A field that must be a string.
fn required_str(map: &Value, name: &str) -> Result<Value, Skip> {
    optional_str(map, name)?.ok_or(Skip::InvalidRequest)
}

/// The elements of a list.
fn elements(list: &Value) -> Result<minijinja::value::ValueIter, Skip> {
    if list.kind() != ValueKind::Seq {
        return Err(Skip::InvalidRequest);
    }
    list.try_iter().map_err(|_| Skip::InvalidRequest)
}

/// The field is there at all, be it null.
fn has(map: &Value, name: &str) -> bool {
    map.get_attr(name).is_ok_and(|value| !value.is_undefined())
}

/// A map's field is one of some strings.
fn is_one_of(value: &Value, strings: &[&str]) -> bool {
    value.as_str().is_some_and(|text| strings.contains(&text))
}

/// A map under construction.
#[derive(Default)]
struct Map(Vec<(&'static str, Value)>);

impl Map {
    fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    /// Copies fields of another map, those that are there and not null.
    fn copy(mut self, from: &Value, names: &[&'static str]) -> Self {
        for name in names {
            if let Some(value) = field(from, name) {
                self.0.push((name, value));
            }
        }
        self
    }

    fn value(self) -> Value {
        Value::from_pairs(self.0)
    }
}
