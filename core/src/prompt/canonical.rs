//! What a tokenizer's normaliser does to text, so that text and tokens have the same bytes.
//!
//! Added tokens are found first, in the text as it is; the steps then run on each piece between
//! them. For most models there is nothing to do, and for NFC a look at the bytes usually tells so.

mod tokens;

use super::Skip;
use super::normalise;
use super::profile::{AddedToken, Canonical, CanonicalStep, Pieces};
use super::work::Work;
use tokens::{Piece, Tokens};

/// What an added token and the end of a run take, in characters that are looked at.
const TOKEN_CHARACTERS: usize = 4;

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
    ///
    /// # Errors
    /// [`Skip::TooComplex`] if it takes more than `work` allows.
    pub(super) fn apply(
        &self,
        text: String,
        special_tokens: bool,
        work: &Work,
    ) -> Result<String, Skip> {
        let text = if self.changes_nothing(&text) {
            text
        } else {
            self.rebuild(&text, work)?
        };
        if special_tokens && !self.prefix.is_empty() {
            return Ok(self.prefix.clone() + &text);
        }
        Ok(text)
    }

    fn changes_nothing(&self, text: &str) -> bool {
        let only_nfc = self.steps.iter().all(|step| *step == CanonicalStep::Nfc);
        let strips = self.raw.strips() || self.normalized.strips();
        self.pieces == Pieces::Whole
            && only_nfc
            && !strips
            && (self.steps.is_empty() || normalise::is_surely_nfc(text))
    }

    fn rebuild(&self, text: &str, work: &Work) -> Result<String, Skip> {
        let mut out = String::with_capacity(text.len() + text.len() / 16);
        // Only the very beginning of the prompt is the first run.
        let mut first = true;
        for piece in self.raw.split(text) {
            match piece {
                Piece::Token(token) => {
                    work.spend_characters(TOKEN_CHARACTERS)?;
                    out.push_str(token);
                    first = false;
                }
                Piece::Text("") => {}
                Piece::Text(run) => {
                    let run = normalise::run(&self.steps, run, work)?;
                    for piece in self.normalized.split(&run) {
                        match piece {
                            Piece::Token(token) => {
                                work.spend_characters(TOKEN_CHARACTERS)?;
                                out.push_str(token);
                            }
                            Piece::Text(text) => self.put(text, first, work, &mut out)?,
                        }
                        first = false;
                    }
                    first = false;
                }
            }
        }
        Ok(out)
    }

    /// Puts a run as the pre-tokenizer leaves it.
    fn put(&self, run: &str, first: bool, work: &Work, out: &mut String) -> Result<(), Skip> {
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
                work.spend_characters(run.len())?;
                for word in run.split(char::is_whitespace) {
                    put_word(word, *punctuation, *marks, out);
                }
            }
        }
        Ok(())
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
