//! What a tokenizer does to text, derived from `tokenizer.json`: the steps after which the text's
//! bytes equal the bytes of its tokens.

use prefix_picker_core::prompt::{AddedToken, Canonical, CanonicalStep};
use serde_json::Value;

use super::tokenizer_config::TokenizerConfig;
use crate::vocab::tokenizer_json::{
    AddedTokenJson, SPACE_MARK, TokenStyle, TokenizerJson, flatten, has_type, type_of,
};

const MARK: &str = "\u{2581}";

/// The steps, or why they are not known.
pub(super) fn derive(
    tokenizer: &TokenizerJson,
    style: TokenStyle,
    missing: &[AddedTokenJson],
    config: &TokenizerConfig,
) -> Result<Canonical, String> {
    if tokenizer.model.dropout.is_some_and(|dropout| dropout > 0.0) {
        return Err("the tokenizer drops merges at random".to_owned());
    }
    let byte_level = |part: &Value| has_type(part, "ByteLevel");
    if style == TokenStyle::ByteLevel
        && !byte_level(&tokenizer.pre_tokenizer)
        && !byte_level(&tokenizer.normalizer)
    {
        return Err("the tokenizer decodes ByteLevel but does not encode it".to_owned());
    }
    if style == TokenStyle::ByteLevel && config.add_prefix_space == Some(true) {
        return Err("tokenizer_config.json says add_prefix_space".to_owned());
    }
    let mut steps = Vec::new();
    for part in flatten(&tokenizer.normalizer) {
        steps.extend(normalizer_step(part, style)?);
    }
    for part in flatten(&tokenizer.pre_tokenizer) {
        check_pre_tokenizer(part, style)?;
    }
    if style == TokenStyle::SentencePiece {
        // The mark stands for a space, whether the text had it or the normaliser put it there.
        steps.push(CanonicalStep::Replace {
            from: MARK.to_owned(),
            to: " ".to_owned(),
        });
    }
    let added_tokens = added_tokens(tokenizer, style, missing, config, &steps)?;
    Ok(Canonical {
        steps,
        added_tokens,
        completions_prefix: String::new(),
    })
}

fn normalizer_step(part: &Value, style: TokenStyle) -> Result<Option<CanonicalStep>, String> {
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    let unmarked = |text: &str| match style {
        TokenStyle::SentencePiece => text.replace(SPACE_MARK, " "),
        TokenStyle::ByteLevel => text.to_owned(),
    };
    match type_of(part) {
        Some("NFC") => Ok(Some(CanonicalStep::Nfc)),
        Some("ByteLevel") if style == TokenStyle::ByteLevel => Ok(None),
        Some("Prepend") => match text("prepend") {
            Some(prepend) => Ok(Some(CanonicalStep::Prepend(unmarked(prepend)))),
            None => Err("the normaliser Prepend has no text".to_owned()),
        },
        Some("Replace") => {
            let from = part
                .get("pattern")
                .and_then(|pattern| pattern.get("String"))
                .and_then(Value::as_str);
            let (Some(from), Some(to)) = (from, text("content")) else {
                return Err("the normaliser Replace has a regular expression".to_owned());
            };
            replace_step(from, to, style)
        }
        other => Err(format!(
            "the normaliser {} is not known",
            other.unwrap_or("without a type")
        )),
    }
}

fn replace_step(from: &str, to: &str, style: TokenStyle) -> Result<Option<CanonicalStep>, String> {
    let is_space = |char| char == ' ' || char == SPACE_MARK;
    if style == TokenStyle::SentencePiece {
        if from == " " && to == MARK {
            return Ok(None); // undone by the mark's own step
        }
        if from.contains(is_space) || to.contains(is_space) {
            return Err(format!("the normaliser replaces {from:?} by {to:?}"));
        }
    }
    Ok(Some(CanonicalStep::Replace {
        from: from.to_owned(),
        to: to.to_owned(),
    }))
}

/// Pre-tokenizers cut text in pieces; those that also drop or add some are refused.
fn check_pre_tokenizer(part: &Value, style: TokenStyle) -> Result<(), String> {
    let flag = |key: &str| part.get(key).and_then(Value::as_bool);
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    match type_of(part) {
        Some("Split" | "Punctuation") if text("behavior") == Some("Removed") => {
            Err("the pre-tokenizer removes what it splits at".to_owned())
        }
        Some("Split" | "Punctuation" | "Digits" | "UnicodeScripts" | "FixedLength") => Ok(()),
        Some("ByteLevel") if style != TokenStyle::ByteLevel => {
            Err("ByteLevel in an odd place".to_owned())
        }
        Some("ByteLevel") if flag("add_prefix_space") == Some(false) => Ok(()),
        Some("ByteLevel") => {
            Err("the pre-tokenizer puts a space before text that lacks one".to_owned())
        }
        Some("Metaspace") if style == TokenStyle::SentencePiece => {
            let never = match text("prepend_scheme") {
                Some(scheme) => scheme == "never",
                None => flag("add_prefix_space") == Some(false),
            };
            match (never, text("replacement").unwrap_or(MARK)) {
                (true, MARK) => Ok(()),
                (true, other) => Err(format!("the pre-tokenizer writes spaces as {other:?}")),
                (false, _) => {
                    Err("the pre-tokenizer puts a space before text that lacks one".to_owned())
                }
            }
        }
        other => Err(format!(
            "the pre-tokenizer {} is not known",
            other.unwrap_or("without a type")
        )),
    }
}

fn added_tokens(
    tokenizer: &TokenizerJson,
    style: TokenStyle,
    missing: &[AddedTokenJson],
    config: &TokenizerConfig,
    steps: &[CanonicalStep],
) -> Result<Vec<AddedToken>, String> {
    let flags = |token: &AddedTokenJson| (token.lstrip, token.rstrip, token.single_word);
    let mut tokens = Vec::new();
    for token in tokenizer.added_tokens.iter().chain(missing) {
        let told = config
            .added_tokens
            .iter()
            .find(|told| told.id == token.id && told.content == token.content);
        if told.is_some_and(|told| flags(told) != flags(token)) {
            return Err(format!(
                "tokenizer.json and tokenizer_config.json differ about the added token {:?}",
                token.content
            ));
        }
        if tokenizer.also_found_by_model(token, style) {
            // Where the model finds it, it is spaces; where it stands in the text, too.
            if steps
                .iter()
                .any(|step| matches!(step, CanonicalStep::Prepend(_)))
            {
                return Err(format!(
                    "the added token {:?} is also made by the normaliser",
                    token.content
                ));
            }
            continue;
        }
        tokens.push(AddedToken {
            content: token.content.clone(),
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            single_word: token.single_word,
            normalized: token.normalized,
        });
    }
    Ok(tokens)
}
