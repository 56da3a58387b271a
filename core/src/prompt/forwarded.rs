//! Token ids that one half of a split engine forwards to the other (vLLM 0.27 and later):
//! `kv_transfer_params.prompt_token_ids` stands for the messages, unless they need to be rendered.

use minijinja::value::{Value, ValueKind};

use super::compiled::Chat;
use super::request::field;
use super::{Api, Rules, Skip};

/// Parts that are no media.
const TEXT_PARTS: [&str; 6] = [
    "text",
    "input_text",
    "output_text",
    "refusal",
    "thinking",
    "tool_reference",
];
/// Keys that make a part media, whatever its type.
const MEDIA_KEYS: [&str; 10] = [
    "input_image",
    "image_url",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "prompt_embeds",
    "image_pil",
    "audio_url",
    "input_audio",
    "video_url",
];

/// The ids that the engine takes instead of the messages.
///
/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses.
pub(super) fn token_ids(chat: &Chat, rules: &Rules) -> Result<Option<Value>, Skip> {
    if !rules.forwarded_token_ids || matches!(chat.api, Api::Embeddings | Api::Pooling) {
        return Ok(None);
    }
    let Some(params) = field(&chat.body, "kv_transfer_params") else {
        return Ok(None);
    };
    if params.kind() != ValueKind::Map {
        return Err(Skip::InvalidRequest);
    }
    let Some(ids) = field(&params, "prompt_token_ids") else {
        return Ok(None);
    };
    let echo = field(&chat.body, "echo").is_some_and(|echo| echo.is_true());
    if echo || has_media(&chat.body) {
        return Ok(None);
    }
    if ids.kind() != ValueKind::Seq || ids.len() == Some(0) {
        return Err(Skip::InvalidRequest);
    }
    Ok(Some(ids))
}

fn has_media(body: &Value) -> bool {
    let messages = field(body, "messages");
    let messages = messages
        .iter()
        .filter_map(|messages| messages.try_iter().ok());
    messages.flatten().any(|message| {
        let content = field(&message, "content").filter(|c| c.kind() == ValueKind::Seq);
        let parts = content.iter().filter_map(|content| content.try_iter().ok());
        parts.flatten().any(|part| is_media(&part))
    })
}

fn is_media(part: &Value) -> bool {
    if part.kind() != ValueKind::Map {
        return false;
    }
    let has = |key: &&str| part.get_attr(key).is_ok_and(|value| !value.is_undefined());
    let kind = part.get_attr("type").unwrap_or_default();
    let is_text =
        kind.is_undefined() || kind.as_str().is_some_and(|kind| TEXT_PARTS.contains(&kind));
    MEDIA_KEYS.iter().any(has) || !is_text
}
