//! What a tokenizer does to text, derived from `tokenizer.json`: the steps after which the text's
//! bytes equal the bytes of its tokens.

use prefix_picker_core::prompt::{AddedToken, Canonical, CanonicalStep, Pieces};
use serde_json::Value;

use super::pieces;
use super::tokenizer_config::TokenizerConfig;
use crate::vocab::tokenizer_json::{
    AddedTokenJson, SPACE_MARK, TokenStyle, TokenizerJson, flatten, has_type, type_of,
};

pub(super) const MARK: &str = "\u{2581}";

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
    let mut steps = Vec::new();
    let mut marked = false;
    for part in flatten(&tokenizer.normalizer) {
        let more = normalizer_steps(part, style)?;
        if marked && more.iter().any(minds_spaces) {
            return Err(
                "the normaliser writes spaces as U+2581 before it looks for spaces".to_owned(),
            );
        }
        marked |= writes_marks(part);
        steps.extend(more);
    }
    let pieces = pieces::derive(&tokenizer.pre_tokenizer, style, config.add_prefix_space)?;
    if style == TokenStyle::SentencePiece && !matches!(pieces, Pieces::Words { .. }) {
        // The mark stands for a space, whether the text had it or the normaliser put it there.
        steps.push(CanonicalStep::Replace {
            from: MARK.to_owned(),
            to: " ".to_owned(),
        });
    }
    let added_tokens = added_tokens(tokenizer, style, missing, config, (&steps, &pieces))?;
    let canonical = Canonical {
        steps,
        added_tokens,
        pieces,
        completions_prefix: String::new(),
    };
    // Such a token is looked for in the form that the normaliser gives to it, but stands for its own.
    let changed = canonical
        .added_tokens
        .iter()
        .find(|token| token.normalized && canonical.normalised(&token.content) != token.content);
    match changed {
        Some(token) => Err(format!(
            "the normaliser changes the added token {:?}",
            token.content
        )),
        None => Ok(canonical),
    }
}

/// Whether a part of the normaliser puts U+2581 into text.
fn writes_marks(part: &Value) -> bool {
    ["content", "prepend"]
        .iter()
        .filter_map(|key| part.get(key)?.as_str())
        .any(|text| text.contains(SPACE_MARK))
}

/// Whether a step would do something else to U+2581 than to the space that it stands for.
fn minds_spaces(step: &CanonicalStep) -> bool {
    matches!(
        step,
        CanonicalStep::Strip { .. }
            | CanonicalStep::Squeeze(_)
            | CanonicalStep::Nmt
            | CanonicalStep::BertClean
    )
}

fn normalizer_steps(part: &Value, style: TokenStyle) -> Result<Vec<CanonicalStep>, String> {
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    let flag = |key: &str| part.get(key).and_then(Value::as_bool);
    let unmarked = |text: &str| match style {
        TokenStyle::SentencePiece => text.replace(SPACE_MARK, " "),
        TokenStyle::ByteLevel | TokenStyle::WordPiece => text.to_owned(),
    };
    let step = match type_of(part) {
        Some("NFC") => CanonicalStep::Nfc,
        Some("NFD") => CanonicalStep::Nfd,
        Some("NFKC") => CanonicalStep::Nfkc,
        Some("NFKD") => CanonicalStep::Nfkd,
        Some("Lowercase") => CanonicalStep::Lowercase,
        Some("StripAccents") => CanonicalStep::DropMarks,
        Some("Nmt") => CanonicalStep::Nmt,
        Some("Strip") => CanonicalStep::Strip {
            left: flag("strip_left").unwrap_or_default(),
            right: flag("strip_right").unwrap_or_default(),
        },
        Some("BertNormalizer") => return Ok(bert_steps(part)),
        Some("ByteLevel") if style == TokenStyle::ByteLevel => return Ok(Vec::new()),
        Some("Prepend") => match text("prepend") {
            Some(prepend) => CanonicalStep::Prepend(unmarked(prepend)),
            None => return Err("the normaliser Prepend has no text".to_owned()),
        },
        Some("Replace") => {
            let pattern = |kind: &str| {
                let pattern = part.get("pattern")?;
                pattern.get(kind)?.as_str()
            };
            let content = text("content").unwrap_or_default();
            match (pattern("String"), pattern("Regex")) {
                (Some(from), _) => {
                    return Ok(replace_step(from, content, style)?.into_iter().collect());
                }
                (None, Some(" {2,}")) => CanonicalStep::Squeeze(unmarked(content)),
                (None, other) => {
                    return Err(format!(
                        "the normaliser replaces by the regular expression {:?}",
                        other.unwrap_or_default()
                    ));
                }
            }
        }
        Some("Precompiled") => {
            return Err(
                "the normaliser Precompiled is a table of its own, which gateways do not have"
                    .to_owned(),
            );
        }
        other => {
            return Err(format!(
                "the normaliser {} is not known",
                other.unwrap_or("without a type")
            ));
        }
    };
    Ok(vec![step])
}

/// `BertNormalizer`, in its own order.
fn bert_steps(part: &Value) -> Vec<CanonicalStep> {
    let flag = |key: &str| part.get(key).and_then(Value::as_bool);
    let lowercase = flag("lowercase").unwrap_or(true);
    let accents = flag("strip_accents").unwrap_or(lowercase);
    let steps = [
        (flag("clean_text").unwrap_or(true), CanonicalStep::BertClean),
        (
            flag("handle_chinese_chars").unwrap_or(true),
            CanonicalStep::BertChinese,
        ),
        (accents, CanonicalStep::Nfd),
        (accents, CanonicalStep::DropNonspacing),
        (lowercase, CanonicalStep::Lowercase),
    ];
    let wanted = steps.into_iter().filter(|(wanted, _)| *wanted);
    wanted.map(|(_, step)| step).collect()
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

fn added_tokens(
    tokenizer: &TokenizerJson,
    style: TokenStyle,
    missing: &[AddedTokenJson],
    config: &TokenizerConfig,
    (steps, pieces): (&[CanonicalStep], &Pieces),
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
                || *pieces != Pieces::Whole
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
