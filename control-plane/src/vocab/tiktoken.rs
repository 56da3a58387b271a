//! tiktoken's files: a line per token, `<base64 of its bytes> <rank>`.

use std::collections::BTreeMap;

use base64::Engine as _;

use super::{Vocab, VocabError};

pub(super) fn parse(
    text: &str,
    special_tokens: &BTreeMap<u32, String>,
) -> Result<Vocab, VocabError> {
    let mut tokens = Vec::new();
    for (entry, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let problem = |what: String| VocabError::Entry {
            file: "tiktoken",
            entry,
            what,
        };
        let (bytes, rank) = line
            .split_once(' ')
            .ok_or_else(|| problem("not `<base64> <rank>`".into()))?;
        let rank: u32 = rank
            .trim()
            .parse()
            .map_err(|error| problem(format!("rank {rank:?}: {error}")))?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(bytes)
            .map_err(|error| problem(format!("its bytes: {error}")))?;
        tokens.push((rank, bytes));
    }
    let specials = special_tokens
        .iter()
        .map(|(id, text)| (*id, text.clone().into_bytes()));
    Vocab::from_tokens(tokens.into_iter().chain(specials))
}
