//! What a tokenizer's normaliser does to text, so that text and tokens have the same bytes.
//!
//! Added tokens are found first, in the text as it is; the steps then run on each piece between
//! them. For most models there is nothing to do, and for NFC a look at the bytes usually tells so.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::profile::{AddedToken, Canonical, CanonicalStep};

/// Every character below U+0300 stays as it is in NFC, whatever stands around it. The UTF-8 of the
/// others begins with this byte or a greater one.
const FIRST_SUSPECT_LEAD: u8 = 0xcc;
/// Bytes looked at together for being ASCII.
const STRIDE_BYTES: usize = 128;

/// A [`Canonical`], made ready.
#[derive(Debug)]
pub(super) struct Canonicaliser {
    steps: Vec<CanonicalStep>,
    /// Found in the text as it is.
    raw: Tokens,
    /// Found after the steps, and only if they take white space along.
    normalized: Tokens,
    prefix: String,
}

impl Canonicaliser {
    pub(super) fn new(canonical: &Canonical) -> Self {
        let mut steps = canonical.steps.clone();
        steps
            .retain(|step| !matches!(step, CanonicalStep::Replace { from, .. } if from.is_empty()));
        let tokens = canonical
            .added_tokens
            .iter()
            .filter(|token| !token.content.is_empty());
        let (normalized, raw): (Vec<_>, Vec<_>) = tokens.cloned().partition(|t| t.normalized);
        let strips = |token: &AddedToken| token.lstrip || token.rstrip;
        let raw = Tokens::new(if steps.is_empty() && !raw.iter().any(strips) {
            Vec::new()
        } else {
            raw
        });
        let normalized = Tokens::new(if normalized.iter().any(strips) {
            normalized
        } else {
            Vec::new()
        });
        Self {
            steps,
            raw,
            normalized,
            prefix: canonical.completions_prefix.clone(),
        }
    }

    /// Canonical text. `special_tokens` puts before it what the post-processor would.
    pub(super) fn apply(&self, text: String, special_tokens: bool) -> String {
        let text = if self.changes_nothing(&text) {
            text
        } else {
            self.rebuild(&text)
        };
        if special_tokens && !self.prefix.is_empty() {
            return self.prefix.clone() + &text;
        }
        text
    }

    fn changes_nothing(&self, text: &str) -> bool {
        let only_nfc = self.steps.iter().all(|step| *step == CanonicalStep::Nfc);
        let strips = self.raw.strips || self.normalized.strips;
        only_nfc && !strips && (self.steps.is_empty() || is_surely_nfc(text))
    }

    fn rebuild(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 16);
        for piece in self.raw.split(text) {
            match piece {
                Piece::Token(token) => out.push_str(token),
                Piece::Text(run) => {
                    let run = self.normalise(run);
                    for piece in self.normalized.split(&run) {
                        match piece {
                            Piece::Token(text) | Piece::Text(text) => out.push_str(text),
                        }
                    }
                }
            }
        }
        out
    }

    fn normalise<'a>(&self, run: &'a str) -> Cow<'a, str> {
        let mut run = Cow::Borrowed(run);
        for step in &self.steps {
            match step {
                CanonicalStep::Nfc if is_surely_nfc(&run) => {}
                CanonicalStep::Nfc => run = Cow::Owned(nfc(&run)),
                CanonicalStep::Prepend(_) if run.is_empty() => {}
                CanonicalStep::Prepend(before) => run = Cow::Owned(before.clone() + &run),
                CanonicalStep::Replace { from, to } => {
                    if run.contains(from.as_str()) {
                        run = Cow::Owned(run.replace(from.as_str(), to));
                    }
                }
            }
        }
        run
    }
}

/// A quick "yes"; otherwise a closer look is needed.
fn is_surely_nfc(text: &str) -> bool {
    next_suspect(text, 0).is_none()
}

/// Where the next character stands that might not stay as it is: not below U+0300, and in none of
/// the large blocks without combining characters.
fn next_suspect(text: &str, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(rest) = text.as_bytes().get(at..) {
        // ASCII in large steps.
        let stride = rest.get(..STRIDE_BYTES).unwrap_or(rest);
        if stride.is_empty() {
            return None;
        }
        if stride.is_ascii() {
            at += stride.len();
            continue;
        }
        let Some(lead) = stride.iter().position(|&byte| byte >= FIRST_SUSPECT_LEAD) else {
            at += stride.len();
            continue;
        };
        at += lead;
        let c = text.get(at..)?.chars().next()?;
        if !is_inert(c) {
            return Some(at);
        }
        at += c.len_utf8();
    }
    None
}

/// Never changes in NFC nor combines with what stands before it (a part of those that do not).
fn is_inert(c: char) -> bool {
    matches!(c,
        '\0'..='\u{2ff}'
        | '\u{400}'..='\u{482}' // Cyrillic
        | '\u{2010}'..='\u{205e}' // dashes, quotes, dots
        | '\u{2500}'..='\u{25ff}' // box drawing
        | '\u{3001}'..='\u{3029}' // CJK punctuation
        | '\u{3041}'..='\u{3096}' // hiragana
        | '\u{30a1}'..='\u{30fe}' // katakana
        | '\u{4e00}'..='\u{9fff}' // Chinese characters
        | '\u{ac00}'..='\u{d7a3}' // hangul syllables
        | '\u{ff01}'..='\u{ffef}' // full-width forms
        | '\u{1f300}'..='\u{1faff}' // emoji
    )
}

/// NFC, piece by piece: nothing composes with an ASCII character before it, so each piece begins
/// with one.
fn nfc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut done = 0;
    while let Some(at) = next_suspect(text, done) {
        let before = bytes.get(done..at).unwrap_or_default();
        let start = done + before.iter().rposition(u8::is_ascii).unwrap_or(0);
        let after = bytes.get(at..).unwrap_or_default();
        let end = at + after.iter().position(u8::is_ascii).unwrap_or(after.len());
        out.push_str(text.get(done..start).unwrap_or_default());
        let piece = text.get(start..end).unwrap_or_default();
        match is_nfc_quick(piece.chars()) {
            IsNormalized::Yes => out.push_str(piece),
            _ => out.extend(piece.nfc()),
        }
        done = end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

enum Piece<'a> {
    Token(&'a str),
    Text(&'a str),
}

/// Added tokens, by their first byte, the longest first.
#[derive(Debug)]
struct Tokens {
    tokens: Vec<AddedToken>,
    starts: Box<[bool; 256]>,
    strips: bool,
}

impl Tokens {
    fn new(mut tokens: Vec<AddedToken>) -> Self {
        tokens.sort_by_key(|token| core::cmp::Reverse(token.content.len()));
        let mut starts = Box::new([false; 256]);
        for token in &tokens {
            let first = token
                .content
                .as_bytes()
                .first()
                .copied()
                .unwrap_or_default();
            if let Some(start) = starts.get_mut(usize::from(first)) {
                *start = true;
            }
        }
        let strips = tokens.iter().any(|token| token.lstrip || token.rstrip);
        Self {
            tokens,
            starts,
            strips,
        }
    }

    /// Leftmost, longest matches, without the white space that they take along.
    fn split<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Piece<'a>> {
        let mut at = 0;
        let mut token = None;
        core::iter::from_fn(move || {
            if let Some(token) = token.take() {
                return Some(Piece::Token(token));
            }
            if at >= text.len() {
                return None;
            }
            let rest = text.get(at..)?;
            let Some((start, found)) = self.find(text, at) else {
                at = text.len();
                return Some(Piece::Text(rest));
            };
            let run = text.get(at..start)?;
            let after = text.get(start + found.content.len()..)?;
            let kept = if found.rstrip {
                after.trim_start()
            } else {
                after
            };
            at = text.len() - kept.len();
            token = Some(found.content.as_str());
            Some(Piece::Text(if found.lstrip { run.trim_end() } else { run }))
        })
    }

    fn find(&self, text: &str, from: usize) -> Option<(usize, &AddedToken)> {
        if self.tokens.is_empty() {
            return None;
        }
        let bytes = text.as_bytes();
        let mut at = from;
        while let Some(next) = bytes.get(at..)?.iter().position(|&b| self.starts_with(b)) {
            at += next;
            let rest = text.get(at..).unwrap_or_default();
            let found = self
                .tokens
                .iter()
                .find(|token| rest.starts_with(token.content.as_str()));
            if let Some(token) = found.filter(|token| is_whole(text, at, token)) {
                return Some((at, token));
            }
            at += found.map_or(1, |token| token.content.len());
        }
        None
    }

    fn starts_with(&self, byte: u8) -> bool {
        self.starts.get(usize::from(byte)).copied().unwrap_or(false)
    }
}

/// A token that must be a word of its own has no letter or digit next to it.
fn is_whole(text: &str, at: usize, token: &AddedToken) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.get(..at).and_then(|t| t.chars().next_back());
    let after = text
        .get(at + token.content.len()..)
        .and_then(|t| t.chars().next());
    !token.single_word || !(before.is_some_and(is_word) || after.is_some_and(is_word))
}

#[cfg(test)]
mod tests {
    use unicode_normalization::char::canonical_combining_class;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn inert_characters_never_change() {
        for c in ('\0'..=char::MAX).filter(|&c| is_inert(c)) {
            let quick = is_nfc_quick(core::iter::once(c));
            assert_eq!(quick, IsNormalized::Yes, "{c:?}");
            assert_eq!(canonical_combining_class(c), 0, "{c:?}");
        }
    }
}
