//! JSON body -> [`ParsedRequest`], once, straight into template values.

use minijinja::Value;

use super::work::{BODY_BYTES_MAX, VALUES_MAX};
use super::{Api, Skip, json};

/// A request body, read but not yet rendered.
#[derive(Clone, Debug)]
pub struct ParsedRequest {
    /// The interface it came by.
    pub api: Api,
    /// `model`, if it is a string.
    pub model: Option<String>,
    /// `cache_salt`, if it is a string that is not empty: part of the seed of the block hashes.
    pub cache_salt: Option<String>,
    /// `session_id`, if it is a string: a tie-breaker between replicas.
    pub session_id: Option<String>,
    /// `user`, if it is a string: who asks, which some take for a session.
    pub user: Option<String>,
    /// `previous_response_id`, if it is a string: the history is kept by the engine that answered
    /// before, and only by that.
    pub previous_response_id: Option<String>,
    /// `stream`.
    pub stream: bool,
    /// Size of the body.
    pub(super) bytes: usize,
    /// What the values of JSON text in the body's strings may cost.
    pub(super) values_left: u32,
    /// The whole body: a map.
    pub(super) body: Value,
}

/// Reads a body. Unknown fields and odd values are kept for [`super::CompiledProfile::render`],
/// which knows what they mean to the engine.
///
/// # Errors
/// [`Skip::InvalidJson`] if it is not JSON, or nested deeper than 128; [`Skip::InvalidRequest`] if
/// it is not an object; [`Skip::TooComplex`] if reading it would take too long.
pub fn parse_request(api: Api, body: &[u8]) -> Result<ParsedRequest, Skip> {
    let bytes = body.len();
    if bytes > BODY_BYTES_MAX {
        return Err(Skip::TooComplex);
    }
    let mut values_left = VALUES_MAX;
    let body = json::read(body, &mut values_left)?;
    if body.kind() != minijinja::value::ValueKind::Map {
        return Err(Skip::InvalidRequest);
    }
    let string = |name: &str| {
        let value = field(&body, name)?;
        value.as_str().filter(|s| !s.is_empty()).map(str::to_owned)
    };
    Ok(ParsedRequest {
        api,
        model: string("model"),
        cache_salt: string("cache_salt"),
        session_id: string("session_id"),
        user: string("user"),
        previous_response_id: string("previous_response_id").filter(|_| api == Api::Responses),
        stream: field(&body, "stream").is_some_and(|v| v.is_true()),
        bytes,
        values_left,
        body,
    })
}

/// A field of a map that is there and not null.
pub(super) fn field(map: &Value, name: &str) -> Option<Value> {
    let value = map.get_attr(name).ok()?;
    (!value.is_undefined() && !value.is_none()).then_some(value)
}

/// A map's fields, taken out of it once: looking for many of them in so small a map is faster by
/// comparing than by hashing each name.
pub(super) struct Fields(Vec<(Value, Value)>);

impl Fields {
    /// The fields of a map; none of any other value.
    pub(super) fn of(map: &Value) -> Self {
        Self(pairs(map).collect())
    }

    /// A field that is there, be it null.
    pub(super) fn any(&self, name: &str) -> Option<&Value> {
        let mut fields = self.0.iter();
        let found = fields.find(|(key, _)| key.as_str() == Some(name));
        found.map(|(_, value)| value).filter(|v| !v.is_undefined())
    }

    /// A field that is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.any(name).filter(|value| !value.is_none())
    }
}

/// Keys and values of a map, in order; nothing for any other value.
pub(super) fn pairs(map: &Value) -> impl Iterator<Item = (Value, Value)> {
    let pairs = map.as_object().and_then(|object| object.try_iter_pairs());
    pairs.into_iter().flatten()
}
