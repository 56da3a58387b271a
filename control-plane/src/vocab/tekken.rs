//! `tekken.json`, Mistral's own: special tokens have the first ids, the others follow by rank.

use std::borrow::Cow;

use base64::Engine as _;
use serde::Deserialize;

use super::{Vocab, VocabError};

const FILE: &str = "tekken.json";

/// The special tokens of files that do not list any, in the order of their ids (mistral-common's
/// `DEPRECATED_SPECIAL_TOKENS`).
const UNLISTED: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

#[derive(Deserialize)]
struct Tekken<'a> {
    config: Config,
    #[serde(borrow)]
    vocab: Vec<Entry<'a>>,
    #[serde(borrow, default)]
    special_tokens: Option<Vec<Special<'a>>>,
}

#[derive(Deserialize)]
struct Config {
    default_vocab_size: u32,
    default_num_special_tokens: u32,
}

#[derive(Deserialize)]
struct Entry<'a> {
    rank: u32,
    #[serde(borrow)]
    token_bytes: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Special<'a> {
    rank: u32,
    #[serde(borrow)]
    token_str: Cow<'a, str>,
}

pub(super) fn parse(json: &[u8]) -> Result<Vocab, VocabError> {
    let tekken: Tekken<'_> =
        serde_json::from_slice(json).map_err(|source| VocabError::Json { file: FILE, source })?;
    let specials = tekken.config.default_num_special_tokens;
    if specials > super::MAX_TOKEN_ID {
        return Err(VocabError::Unsupported(format!(
            "{specials} special tokens"
        )));
    }
    let inner = tekken.config.default_vocab_size.saturating_sub(specials);
    let fillers = (0..specials).map(|id| (id, format!("<SPECIAL_{id}>").into_bytes()));
    let listed: Vec<(u32, Vec<u8>)> = match tekken.special_tokens {
        Some(listed) => listed
            .into_iter()
            .map(|special| (special.rank, special.token_str.into_owned().into_bytes()))
            .collect(),
        None => (0..)
            .zip(UNLISTED)
            .map(|(id, text)| (id, text.as_bytes().to_vec()))
            .collect(),
    };
    let mut tokens: Vec<(u32, Vec<u8>)> = fillers.chain(listed).collect();
    for (entry, token) in tekken
        .vocab
        .iter()
        .enumerate()
        .filter(|(_, token)| token.rank < inner)
    {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(token.token_bytes.as_bytes())
            .map_err(|error| VocabError::Entry {
                file: FILE,
                entry,
                what: error.to_string(),
            })?;
        tokens.push((specials + token.rank, bytes));
    }
    Vocab::from_tokens(tokens)
}
