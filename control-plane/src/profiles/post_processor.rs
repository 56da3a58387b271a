//! What a tokenizer puts before a prompt when special tokens are on (`/v1/completions`).

use serde_json::Value;

use crate::vocab::Vocab;
use crate::vocab::tokenizer_json::{flatten, type_of};

/// The text of the tokens put before a prompt, or why it is not known.
pub(super) fn prefix(post_processor: &Value, vocab: &Vocab) -> Result<String, String> {
    let mut prefix = String::new();
    for part in flatten(post_processor) {
        // A later processor puts its tokens before those of an earlier one.
        prefix = one(part, vocab)? + &prefix;
    }
    Ok(prefix)
}

fn one(part: &Value, vocab: &Vocab) -> Result<String, String> {
    match type_of(part) {
        Some("ByteLevel") => Ok(String::new()),
        Some("TemplateProcessing") => template(part, vocab),
        Some("RobertaProcessing" | "BertProcessing") => {
            let cls = part.get("cls").and_then(|cls| cls.get(1)?.as_u64());
            match cls.and_then(|id| u32::try_from(id).ok()) {
                Some(id) => text(&[id], vocab),
                None => Err("the post-processor's cls token has no id".to_owned()),
            }
        }
        other => Err(format!(
            "the post-processor {} is not known",
            other.unwrap_or("without a type")
        )),
    }
}

/// `TemplateProcessing`: the special tokens before the sequence A.
fn template(part: &Value, vocab: &Vocab) -> Result<String, String> {
    let mut ids = Vec::new();
    for piece in part
        .get("single")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(sequence) = piece.get("Sequence") {
            return match sequence.get("id").and_then(Value::as_str) {
                Some("A") => text(&ids, vocab),
                _ => Err("the post-processor begins with another sequence than A".to_owned()),
            };
        }
        let name = piece
            .get("SpecialToken")
            .and_then(|token| token.get("id"))
            .and_then(Value::as_str);
        let tokens = name.and_then(|name| {
            part.get("special_tokens")?
                .get(name)?
                .get("ids")?
                .as_array()
        });
        let tokens =
            tokens.ok_or_else(|| format!("the post-processor's token {name:?} is not defined"))?;
        ids.extend(
            tokens
                .iter()
                .filter_map(Value::as_u64)
                .filter_map(|id| u32::try_from(id).ok()),
        );
    }
    Err("the post-processor has no sequence A".to_owned())
}

fn text(ids: &[u32], vocab: &Vocab) -> Result<String, String> {
    let mut bytes = Vec::new();
    vocab
        .append_bytes(ids, &mut bytes)
        .map_err(|unknown| format!("the post-processor: {unknown}"))?;
    String::from_utf8(bytes).map_err(|_| "the post-processor's tokens are not UTF-8".to_owned())
}
