//! What a tokenizer's normaliser does to text, so that text and tokens have the same bytes.
//!
//! Added tokens are found first, in the text as it is; the steps then run on each piece between
//! them. For most models there is nothing to do, and for NFC a look at the bytes usually tells so.

use super::normalise;
use super::profile::{AddedToken, Canonical, CanonicalStep, Pieces};

/// A [`Canonical`], made ready.
#[derive(Debug)]
pub(super) struct Canonicaliser {
    steps: Vec<CanonicalStep>,
    pieces: Pieces,
    /// Found in the text as it is.
    raw: Tokens,
    /// Found after the steps; none where it makes no difference.
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
        // Where runs stay as they are it does not matter where they end.
        let whole = canonical.pieces == Pieces::Whole;
        let raw = Tokens::new(if whole && steps.is_empty() && !raw.iter().any(strips) {
            Vec::new()
        } else {
            raw
        });
        let normalized = Tokens::new(if whole && !normalized.iter().any(strips) {
            Vec::new()
        } else {
            normalized
        });
        Self {
            steps,
            pieces: canonical.pieces.clone(),
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
        self.pieces == Pieces::Whole
            && only_nfc
            && !strips
            && (self.steps.is_empty() || normalise::is_surely_nfc(text))
    }

    fn rebuild(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + text.len() / 16);
        // Only the very beginning of the prompt is the first run.
        let mut first = true;
        for piece in self.raw.split(text) {
            match piece {
                Piece::Token(token) => {
                    out.push_str(token);
                    first = false;
                }
                Piece::Text("") => {}
                Piece::Text(run) => {
                    let run = normalise::run(&self.steps, run);
                    for piece in self.normalized.split(&run) {
                        match piece {
                            Piece::Token(token) => out.push_str(token),
                            Piece::Text(text) => self.put(text, first, &mut out),
                        }
                        first = false;
                    }
                    first = false;
                }
            }
        }
        out
    }

    /// Puts a run as the pre-tokenizer leaves it.
    fn put(&self, run: &str, first: bool, out: &mut String) {
        match &self.pieces {
            Pieces::Whole => out.push_str(run),
            Pieces::Spaced { first_only } => {
                let wanted = first || !first_only;
                if wanted && !run.is_empty() && !run.starts_with(' ') {
                    out.push(' ');
                }
                out.push_str(run);
            }
            Pieces::Words { punctuation, marks } => {
                for word in run.split(char::is_whitespace) {
                    put_word(word, *punctuation, *marks, out);
                }
            }
        }
    }
}

/// Puts a word, or the several that punctuation makes of it, each after a space.
fn put_word(word: &str, punctuation: bool, marks: bool, out: &mut String) {
    let parts = |c: char| punctuation && normalise::is_punctuation(c);
    let mut alone = true;
    for (at, c) in word.char_indices() {
        let is_mark = marks && c == normalise::SPACE_MARK;
        if (at == 0 || alone || parts(c)) && !is_mark {
            out.push(' ');
        }
        out.push(if is_mark { ' ' } else { c });
        alone = parts(c);
    }
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
