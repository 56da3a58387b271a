//! A message's content: one string, or a list of parts, media among them.
//!
//! Source: vLLM 0.32, `renderers/chat_utils.py`.

use minijinja::value::{Value, ValueKind};

use super::media::{Item, Modality, Stand};
use super::request::{field, pairs};
use super::{Rules, Skip};

/// Part types that are text, whatever they are called.
const TEXT_PARTS: [&str; 5] = ["text", "input_text", "output_text", "refusal", "thinking"];
/// Part types that the engine replaces by placeholders.
const MEDIA_PARTS: [(&str, Modality); 9] = [
    ("image_url", Modality::Image),
    ("input_image", Modality::Image),
    ("image_pil", Modality::Image),
    ("image_embeds", Modality::Image),
    ("audio_embeds", Modality::Audio),
    ("video_embeds", Modality::Video),
    ("audio_url", Modality::Audio),
    ("input_audio", Modality::Audio),
    ("video_url", Modality::Video),
];
/// Keys that vLLM takes for its own in a part; any other goes along to the template.
const KNOWN_PART_KEYS: [&str; 18] = [
    "text",
    "type",
    "image_url",
    "input_audio",
    "file",
    "refusal",
    "prompt_cache_breakpoint",
    "audio_url",
    "video_url",
    "image_pil",
    "uuid",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "data",
    "thinking",
    "closed",
    "name",
];
/// A line of system text that changes with every request and that vLLM drops.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// How content is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentStyle<'r> {
    /// A list of parts, not one string.
    pub(super) as_parts: bool,
    /// What depends on the engine's version.
    pub(super) rules: &'r Rules,
    /// What stands for media.
    pub(super) stand: Stand<'r>,
}

/// A message's content for the template.
pub(super) enum Content {
    /// One string.
    Text(Value),
    /// A list of parts.
    Parts(Vec<Value>),
}

impl Content {
    /// Content as the client sent it, null aside. Media in it is added to `media`.
    ///
    /// # Errors
    /// [`Skip::InvalidRequest`] for what the engine refuses, [`Skip::PromptEmbeds`].
    pub(super) fn of(
        content: &Value,
        system: bool,
        style: ContentStyle,
        media: &mut Vec<Item>,
    ) -> Result<Self, Skip> {
        let without_header = system && style.rules.chat_drops_billing_header;
        if content.as_str().is_some() {
            let kept = if without_header {
                without_billing_header(content)
            } else {
                Some(content.clone())
            };
            return Ok(match (kept, style.as_parts) {
                (Some(text), false) => Self::Text(text),
                (Some(text), true) => Self::Parts(vec![text_part(text, None, style.rules)]),
                (None, false) => Self::Text(Value::from("")),
                (None, true) => Self::Parts(Vec::new()),
            });
        }
        if content.kind() != ValueKind::Seq {
            return Err(Skip::InvalidRequest);
        }
        let parts = content.try_iter().map_err(|_| Skip::InvalidRequest)?;
        let parts = parts.filter_map(|part| Part::of(&part, without_header).transpose());
        if style.as_parts {
            let parts = parts.map(|part| Ok(part?.into_value(style, media)));
            return Ok(Self::Parts(parts.collect::<Result<_, Skip>>()?));
        }
        let mut texts = Texts::default();
        for part in parts {
            texts.add(part?, style, media);
        }
        texts.joined().map(|text| Self::Text(Value::from(text)))
    }

    /// Tool results made only of text are one string, in either format.
    pub(super) fn join_if_text(&mut self) {
        let Self::Parts(parts) = self else { return };
        let is_text =
            |part: &Value| field(part, "type").is_some_and(|t| t.as_str() == Some("text"));
        if parts.iter().all(is_text) {
            let texts: Vec<Value> = parts
                .iter()
                .filter_map(|part| field(part, "text"))
                .collect();
            let texts: Vec<&str> = texts.iter().filter_map(|text| text.as_str()).collect();
            *self = Self::Text(Value::from(texts.join("\n")));
        }
    }

    /// The value for the template.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => Value::from(parts),
        }
    }
}

/// Content as one string in the making. An empty text leaves no line behind.
#[derive(Default)]
struct Texts {
    lines: Vec<String>,
    /// What stands for media that is put in front, by kind, in order of first appearance.
    in_front: Vec<(Modality, Vec<String>)>,
}

impl Texts {
    fn add(&mut self, part: Part, style: ContentStyle, media: &mut Vec<Item>) {
        match part {
            Part::Text(text, _) | Part::ToolReference(text) => {
                let text = text.as_str().unwrap_or_default();
                if !text.is_empty() {
                    self.lines.push(text.to_owned());
                }
            }
            Part::Media(modality, part) => {
                let stand = style.stand.text(modality, media);
                media.push(Item::of(modality, &part));
                if style.stand.interleave {
                    self.lines.push(stand);
                    return;
                }
                match self.in_front.iter_mut().find(|(m, _)| *m == modality) {
                    Some((_, stands)) => stands.push(stand),
                    None => self.in_front.push((modality, vec![stand])),
                }
            }
        }
    }

    /// The lines, after what stands for media and is not among them already.
    fn joined(self) -> Result<String, Skip> {
        let text = self.lines.join("\n");
        let mut counted: Vec<(String, usize)> = Vec::new();
        for stand in self.in_front.into_iter().flat_map(|(_, stands)| stands) {
            match counted.iter_mut().find(|(known, _)| *known == stand) {
                Some((_, count)) => *count += 1,
                None => counted.push((stand, 1)),
            }
        }
        let mut lines = Vec::new();
        for (stand, count) in counted {
            let there = text.matches(stand.as_str()).count();
            let missing = count.checked_sub(there).ok_or(Skip::InvalidRequest)?;
            lines.extend(core::iter::repeat_n(stand, missing));
        }
        if !text.is_empty() {
            lines.push(text);
        }
        Ok(lines.join("\n"))
    }
}

/// One part of a message's content.
enum Part {
    /// Text, and the part it came from if that was an object.
    Text(Value, Option<Value>),
    /// The name of a tool.
    ToolReference(Value),
    /// Media, and the part.
    Media(Modality, Value),
}

impl Part {
    /// `None` for a part that the engine passes over.
    fn of(part: &Value, without_header: bool) -> Result<Option<Self>, Skip> {
        let kept = |text: Value, applies: bool| {
            if applies && without_header {
                without_billing_header(&text)
            } else {
                Some(text)
            }
        };
        if part.as_str().is_some() {
            return Ok(kept(part.clone(), true).map(|text| Self::Text(text, None)));
        }
        if part.kind() != ValueKind::Map {
            return Err(Skip::InvalidRequest);
        }
        let kind = field(part, "type");
        let has = |key: &str| part.get_attr(key).is_ok_and(|value| !value.is_undefined());
        // With a uuid, or without a type, the keys tell what it is.
        if kind.is_none() || field(part, "uuid").is_some() {
            let found = MEDIA_PARTS.iter().find(|(key, _)| has(key));
            let found = found.ok_or(Skip::InvalidRequest)?;
            return Ok(Some(Self::Media(found.1, part.clone())));
        }
        let kind = kind.as_ref().and_then(|kind| kind.as_str());
        let kind = kind.ok_or(Skip::InvalidRequest)?;
        if let Some((key, modality)) = MEDIA_PARTS.iter().find(|(name, _)| *name == kind) {
            let key = if *key == "input_image" {
                "image_url"
            } else {
                *key
            };
            if !has(key) {
                return Err(Skip::InvalidRequest);
            }
            return Ok(Some(Self::Media(*modality, part.clone())));
        }
        if kind == "prompt_embeds" {
            return Err(Skip::PromptEmbeds);
        }
        if kind == "tool_reference" {
            let name = field(part, "name").filter(|name| name.as_str().is_some());
            return Ok(Some(Self::ToolReference(name.ok_or(Skip::InvalidRequest)?)));
        }
        if !TEXT_PARTS.contains(&kind) {
            return Err(Skip::InvalidRequest);
        }
        let key = if kind == "refusal" || kind == "thinking" {
            kind
        } else {
            "text"
        };
        let text = match field(part, key) {
            Some(text) if text.as_str().is_some() => text,
            None if kind == key && kind != "thinking" => return Ok(None),
            _ => return Err(Skip::InvalidRequest),
        };
        let text = kept(text, kind == "text");
        Ok(text.map(|text| Self::Text(text, Some(part.clone()))))
    }

    fn into_value(self, style: ContentStyle, media: &mut Vec<Item>) -> Value {
        match self {
            Self::Text(text, part) => text_part(text, part.as_ref(), style.rules),
            Self::ToolReference(name) => {
                Value::from_pairs([("type", Value::from("tool_reference")), ("name", name)])
            }
            Self::Media(modality, part) => {
                let replaced = style.stand.replaces(media.len());
                media.push(Item::of(modality, &part));
                match replaced {
                    Some(text) => text_part(Value::from(text), None, style.rules),
                    None => {
                        let kind = (Value::from("type"), Value::from(modality.as_str()));
                        with_extra([kind], Some(&part), style.rules)
                    }
                }
            }
        }
    }
}

/// `{"type": "text", "text": ...}` and whatever unknown keys the part had.
fn text_part(text: Value, part: Option<&Value>, rules: &Rules) -> Value {
    let known = [("type", Value::from("text")), ("text", text)];
    with_extra(
        known.map(|(key, value)| (Value::from(key), value)),
        part,
        rules,
    )
}

fn with_extra<const N: usize>(
    known: [(Value, Value); N],
    part: Option<&Value>,
    rules: &Rules,
) -> Value {
    let part = part.filter(|_| rules.parts_keep_unknown_keys);
    let extra = part.into_iter().flat_map(pairs);
    let extra =
        extra.filter(|(key, _)| !KNOWN_PART_KEYS.contains(&key.as_str().unwrap_or_default()));
    Value::from_pairs(known.into_iter().chain(extra))
}

/// System text without the header line; `None` if nothing is left of it.
fn without_billing_header(text: &Value) -> Option<Value> {
    match text.as_str() {
        Some(t) if t.starts_with(BILLING_HEADER) => {
            let (_, rest) = t.split_once('\n')?;
            (!rest.is_empty()).then(|| Value::from(rest))
        }
        _ => Some(text.clone()),
    }
}
