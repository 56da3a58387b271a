//! What a pre-tokenizer adds to text and drops from it, beside cutting it in pieces.

use prefix_picker_core::prompt::Pieces;
use serde_json::Value;

use super::canonical::MARK;
use crate::vocab::tokenizer_json::{TokenStyle, flatten, type_of};

/// What it does, or why that is not known. `add_prefix_space` is the configuration's word on it.
pub(super) fn derive(
    pre_tokenizer: &Value,
    style: TokenStyle,
    add_prefix_space: Option<bool>,
) -> Result<Pieces, String> {
    let mut pieces = Pieces::Whole;
    let mut cut = false;
    for part in flatten(pre_tokenizer) {
        match one(part, style)? {
            Part::Cuts => cut = true,
            Part::Spaced(spaced) => {
                pieces = match (pieces, spaced) {
                    // White space is gone, and each word gets its space.
                    (Pieces::Words { punctuation, .. }, Pieces::Spaced { first_only: false }) => {
                        Pieces::Words {
                            punctuation,
                            marks: true,
                        }
                    }
                    (Pieces::Whole, spaced) if !cut => spaced,
                    _ => {
                        return Err(
                            "the pre-tokenizer puts a space before pieces that it cut before"
                                .to_owned(),
                        );
                    }
                };
            }
            Part::Words { punctuation } if pieces == Pieces::Whole && !cut => {
                pieces = Pieces::Words {
                    punctuation,
                    marks: false,
                };
            }
            Part::Words { .. } => {
                return Err("the pre-tokenizer drops white space between pieces".to_owned());
            }
        }
    }
    check(&pieces, style, add_prefix_space)?;
    Ok(pieces)
}

/// Whether tokens tell as much as the pieces.
fn check(pieces: &Pieces, style: TokenStyle, add_prefix_space: Option<bool>) -> Result<(), String> {
    match (style, pieces) {
        (TokenStyle::WordPiece, Pieces::Words { marks: false, .. })
        | (TokenStyle::SentencePiece, Pieces::Words { marks: true, .. }) => Ok(()),
        (TokenStyle::WordPiece, _) => {
            Err("the pre-tokenizer does not cut at white space, as WordPiece needs".to_owned())
        }
        (_, Pieces::Words { .. }) => Err("the pre-tokenizer drops white space".to_owned()),
        (TokenStyle::ByteLevel, Pieces::Spaced { .. }) if add_prefix_space == Some(false) => {
            Err("tokenizer_config.json and tokenizer.json differ about add_prefix_space".to_owned())
        }
        (TokenStyle::ByteLevel, Pieces::Whole) if add_prefix_space == Some(true) => {
            Err("tokenizer_config.json says add_prefix_space".to_owned())
        }
        _ => Ok(()),
    }
}

/// What one pre-tokenizer does.
enum Part {
    /// Cuts and keeps all.
    Cuts,
    /// Puts spaces.
    Spaced(Pieces),
    /// Cuts at white space and drops it.
    Words { punctuation: bool },
}

fn one(part: &Value, style: TokenStyle) -> Result<Part, String> {
    let flag = |key: &str| part.get(key).and_then(Value::as_bool);
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    match type_of(part) {
        Some("Split" | "Punctuation") if text("behavior") == Some("Removed") => {
            Err("the pre-tokenizer removes what it splits at".to_owned())
        }
        Some("Split" | "Punctuation" | "Digits" | "UnicodeScripts" | "FixedLength") => {
            Ok(Part::Cuts)
        }
        Some("WhitespaceSplit") => Ok(Part::Words { punctuation: false }),
        Some("BertPreTokenizer") => Ok(Part::Words { punctuation: true }),
        Some("ByteLevel") if style != TokenStyle::ByteLevel => {
            Err("ByteLevel in an odd place".to_owned())
        }
        Some("ByteLevel") if flag("add_prefix_space") == Some(false) => Ok(Part::Cuts),
        Some("ByteLevel") => Ok(Part::Spaced(Pieces::Spaced { first_only: false })),
        Some("Metaspace") if style == TokenStyle::SentencePiece => metaspace(part),
        other => Err(format!(
            "the pre-tokenizer {} is not known",
            other.unwrap_or("without a type")
        )),
    }
}

/// tokenizers: `pre_tokenizers/metaspace.rs`. Older files say `add_prefix_space` instead of a scheme.
fn metaspace(part: &Value) -> Result<Part, String> {
    let replacement = part.get("replacement").and_then(Value::as_str);
    if let Some(other) = replacement.filter(|text| *text != MARK) {
        return Err(format!("the pre-tokenizer writes spaces as {other:?}"));
    }
    let scheme = part.get("prepend_scheme").and_then(Value::as_str);
    let without = part.get("add_prefix_space").and_then(Value::as_bool) == Some(false);
    match scheme.unwrap_or(if without { "never" } else { "always" }) {
        "never" => Ok(Part::Cuts),
        "first" => Ok(Part::Spaced(Pieces::Spaced { first_only: true })),
        "always" => Ok(Part::Spaced(Pieces::Spaced { first_only: false })),
        other => Err(format!(
            "the pre-tokenizer's prepend_scheme {other:?} is not known"
        )),
    }
}
