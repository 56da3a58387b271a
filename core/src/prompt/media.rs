//! Images, audio and video in a chat, and where they stand in its text.
//!
//! In the text an item is a placeholder, which the engine repeats as often as the item has tokens;
//! the k-th placeholder of a kind is the k-th item. Where the text does not bear that out, or the
//! placeholder is not known, the text is the engine's only up to the first item, and never a byte
//! further.

use std::collections::BTreeMap;

use minijinja::value::Value;

use super::profile::Profile;
use super::request::field;
use super::{MediaItem, PromptText};

/// Texts that stand for an item whose text is not known; of the private use area, so that nobody
/// else writes them and no normaliser changes them.
pub(super) const UNKNOWN: [&str; 2] = ["\u{e000}media\u{e002}", "\u{e001}media\u{e002}"];

/// A kind of media.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Modality {
    /// A picture.
    Image,
    /// Sound.
    Audio,
    /// Moving pictures.
    Video,
}

impl Modality {
    /// As vLLM calls it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }
}

/// An item of a request, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Item {
    /// Its kind.
    pub(super) modality: Modality,
    /// The client's `uuid`.
    uuid: Option<String>,
}

impl Item {
    pub(super) fn of(modality: Modality, part: &Value) -> Self {
        let uuid = field(part, "uuid").and_then(|uuid| uuid.as_str().map(str::to_owned));
        Self { modality, uuid }
    }
}

/// What is put where an item stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand<'p> {
    /// The engine's `get_placeholder_str`, by kind.
    pub(super) strings: &'p BTreeMap<String, String>,
    /// Where the item stands, not in front of its message.
    pub(super) interleave: bool,
    /// Stands for what is not known.
    pub(super) unknown: &'static str,
    /// The first item is replaced by [`Self::unknown`], as text.
    pub(super) replace_first: bool,
}

impl<'p> Stand<'p> {
    /// What the engine of a profile puts there, and the first of [`UNKNOWN`] for what is not known.
    pub(super) fn of(profile: &'p Profile) -> Self {
        Self {
            strings: &profile.media_strings,
            interleave: profile.interleave_mm_strings,
            unknown: UNKNOWN[0],
            replace_first: false,
        }
    }

    /// In one string: the text for the next item of a kind.
    pub(super) fn text(&self, modality: Modality, before: &[Item]) -> String {
        let number = before
            .iter()
            .filter(|item| item.modality == modality)
            .count()
            + 1;
        match self.strings.get(modality.as_str()) {
            Some(string) if !(self.replace_first && before.is_empty()) => {
                string.replace("{i}", &number.to_string())
            }
            _ => self.unknown.to_owned(),
        }
    }

    /// In a list of parts: the text that takes the place of the item after `before` others.
    pub(super) fn replaces(&self, before: usize) -> Option<&'static str> {
        (self.replace_first && before == 0).then_some(self.unknown)
    }
}

/// The client's `uuid` is what the engine calls an item only where nothing else decides how the item
/// is processed.
pub(super) fn uuids_are_identifiers(body: &Value) -> bool {
    let decides = |name: &str| field(body, name).is_some_and(|options| options.is_true());
    !decides("mm_processor_kwargs") && !decides("media_io_kwargs")
}

/// A text whose items are found by their placeholders; `None` if a placeholder is not known, or not
/// what stands for an item in its message.
pub(super) fn locate(
    text: &str,
    items: &[Item],
    profile: &Profile,
    named: bool,
) -> Option<PromptText> {
    if UNKNOWN.iter().any(|mark| text.contains(mark)) {
        return None;
    }
    let mut kinds: Vec<(Modality, &str)> = Vec::new();
    for item in items {
        let placeholder = profile.media_placeholders.get(item.modality.as_str());
        let placeholder = placeholder.filter(|text| !text.is_empty())?;
        if !kinds.iter().any(|(known, _)| *known == item.modality) {
            kinds.push((item.modality, placeholder.as_str()));
        }
    }
    let (mut found, mut fits, mut first) = (Vec::new(), true, text.len());
    for (modality, placeholder) in &kinds {
        let clash = kinds
            .iter()
            .any(|(other, text)| other != modality && text.contains(placeholder));
        let places: Vec<usize> = text.match_indices(placeholder).map(|(at, _)| at).collect();
        let of_kind: Vec<&Item> = items.iter().filter(|i| i.modality == *modality).collect();
        // Without a place in the text, the engine may put it anywhere.
        first = first.min(places.first().copied().unwrap_or(0));
        fits &= !clash && places.len() == of_kind.len();
        let placed = places.into_iter().zip(of_kind);
        found.extend(placed.map(|(at, item)| (at, placeholder.len(), item)));
    }
    found.sort_by_key(|(at, ..)| *at);
    let mut prompt = PromptText {
        text: text.to_owned(),
        media: Vec::new(),
        exact_bytes: if fits { text.len() } else { first },
    };
    for (at, len, item) in found.into_iter().filter(|_| fits) {
        match item.uuid.as_ref().filter(|_| named) {
            Some(identifier) => prompt.media.push(MediaItem {
                at,
                len,
                identifier: identifier.clone(),
            }),
            None => {
                prompt.exact_bytes = at;
                break;
            }
        }
    }
    Some(prompt)
}

/// How far a text is the engine's for certain, if `other` is the same text with [`UNKNOWN`] in the
/// place of the first item. `is_token` tells whether the tokenizer knows a text as one of its own.
pub(super) fn exact_before_first(text: &str, other: &str, profile: &Profile) -> usize {
    let same = text.bytes().zip(other.bytes());
    let mut common = same.take_while(|(a, b)| a == b).count();
    while !text.is_char_boundary(common) {
        common -= 1;
    }
    let mark = UNKNOWN
        .iter()
        .find_map(|mark| Some((other.find(mark)?, mark.len())));
    let Some((at, len)) = mark else {
        // The template leaves the item out, and the engine may put it anywhere.
        return 0;
    };
    let after = other.get(at + len..).unwrap_or_default();
    let shown = text.get(common..).unwrap_or_default();
    let shown = shown.strip_suffix(after).unwrap_or(shown);
    if shown.is_empty() {
        return 0;
    }
    // The engine takes the first placeholder that it finds, be it one that a client wrote.
    let before = text.get(..common).unwrap_or_default();
    let tokens = profile.canonical.added_tokens.iter();
    let tokens = tokens.map(|token| token.content.as_str());
    let is_unknown = UNKNOWN.iter().any(|mark| shown.contains(mark));
    let may_be_placeholder = |token: &&str| {
        !token.is_empty()
            && if is_unknown {
                !mentions(profile, token)
            } else {
                shown.contains(*token)
            }
    };
    let written = tokens.filter(may_be_placeholder).chain([shown]);
    let first = written.filter_map(|token| before.find(token)).min();
    first.unwrap_or(common)
}

/// A template of the model writes this text.
fn mentions(profile: &Profile, text: &str) -> bool {
    let templates = profile.chat_template.iter();
    let mut templates = templates.chain(profile.named_templates.values());
    templates.any(|template| template.contains(text))
        || profile.special_tokens.values().any(|t| t == text)
}
