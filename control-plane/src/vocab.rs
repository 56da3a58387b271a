//! What bytes each token id stands for.
//!
//! Engines tell us token ids; we hash bytes. The table comes from the vocabulary alone, without a
//! tokenizer: the concatenated bytes of a prompt's tokens are the prompt's canonical text.
//!
//! | file | what its entries are |
//! |---|---|
//! | `tokenizer.json`, ByteLevel | characters of GPT-2's alphabet, one per byte |
//! | `tokenizer.json`, SentencePiece-style | text with U+2581 for a space, `<0xNN>` for a byte |
//! | `tokenizer.json`, WordPiece | a word's beginning (a space is put before it), or `##` and what continues a word |
//! | `tekken.json` | base64 of the bytes |
//! | `*.tiktoken`, `tiktoken.model` | base64 of the bytes, and their rank |
//!
//! Added tokens stand for their own text. A token for whatever the vocabulary lacks has no bytes that
//! could be told: it counts as no token at all, and a prompt is known up to it.

use std::collections::BTreeMap;

mod alphabet;
mod tekken;
mod tiktoken;
pub(crate) mod tokenizer_json;

/// Highest token id accepted; the largest vocabularies have about 262,000.
pub const MAX_TOKEN_ID: u32 = (1 << 22) - 1;

/// A vocabulary could not be read.
#[derive(Debug, thiserror::Error)]
pub enum VocabError {
    /// The file is not what its name says.
    #[error("{file} is not the JSON that it should be")]
    Json {
        /// Which file.
        file: &'static str,
        /// Where and what.
        source: serde_json::Error,
    },
    /// A line or entry is broken.
    #[error("{file}, entry {entry}: {what}")]
    Entry {
        /// Which file.
        file: &'static str,
        /// Its number, from 0.
        entry: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A kind of tokenizer whose tokens do not stand for bytes.
    #[error("cannot tell the bytes of this tokenizer's tokens: {0}")]
    Unsupported(String),
    /// More bytes than a `u32` can address, or none at all.
    #[error("a vocabulary of {0} bytes")]
    Size(usize),
}

/// Flat table from token id to bytes: one blob, and where each id's bytes begin in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Vocab {
    blob: Box<[u8]>,
    /// `offsets[id]..offsets[id + 1]`; empty for ids that do not exist.
    offsets: Box<[u32]>,
    /// Ids that exist and stand for no bytes at all, sorted.
    empty: Box<[u32]>,
}

impl std::fmt::Debug for Vocab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocab")
            .field("ids", &self.len())
            .field("bytes", &self.blob.len())
            .finish()
    }
}

/// A token id that the vocabulary does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token id {0} is not in the vocabulary")]
pub struct UnknownToken(pub u32);

impl Vocab {
    /// A table of these tokens. Of two entries with one id the later one counts.
    ///
    /// # Errors
    /// If an id is above [`MAX_TOKEN_ID`], or there are no bytes, or more than 4 GiB.
    pub fn from_tokens(
        tokens: impl IntoIterator<Item = (u32, Vec<u8>)>,
    ) -> Result<Self, VocabError> {
        let tokens: BTreeMap<u32, Vec<u8>> = tokens.into_iter().collect();
        let Some(last) = tokens.last_key_value().map(|(id, _)| *id) else {
            return Err(VocabError::Size(0));
        };
        if last > MAX_TOKEN_ID {
            return Err(VocabError::Unsupported(format!(
                "token id {last} is above {MAX_TOKEN_ID}"
            )));
        }
        let size = tokens.values().map(Vec::len).sum();
        if size == 0 || u32::try_from(size).is_err() {
            return Err(VocabError::Size(size));
        }
        let mut blob = Vec::with_capacity(size);
        let mut offsets = Vec::with_capacity(last as usize + 2);
        let mut empty = Vec::new();
        for (id, bytes) in &tokens {
            // The cast is exact: `size` fits.
            #[allow(clippy::cast_possible_truncation)]
            offsets.resize(*id as usize + 1, blob.len() as u32);
            blob.extend_from_slice(bytes);
            if bytes.is_empty() {
                empty.push(*id);
            }
        }
        #[allow(clippy::cast_possible_truncation)]
        offsets.push(blob.len() as u32);
        Ok(Self {
            blob: blob.into(),
            offsets: offsets.into(),
            empty: empty.into(),
        })
    }

    /// From a `tokenizer.json`, ByteLevel or SentencePiece-style.
    ///
    /// # Errors
    /// If it cannot be read, or its tokens do not stand for bytes.
    pub fn from_tokenizer_json(json: &[u8]) -> Result<Self, VocabError> {
        tokenizer_json::TokenizerJson::parse(json)?.vocab(&BTreeMap::new())
    }

    /// From a `tekken.json`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn from_tekken_json(json: &[u8]) -> Result<Self, VocabError> {
        tekken::parse(json)
    }

    /// From a tiktoken file, whose special tokens are told elsewhere (`added_tokens_decoder` in
    /// `tokenizer_config.json`): id -> text.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn from_tiktoken(
        text: &str,
        special_tokens: &BTreeMap<u32, String>,
    ) -> Result<Self, VocabError> {
        tiktoken::parse(text, special_tokens)
    }

    /// The bytes that a token stands for; `None` if there is no such token.
    #[inline]
    #[must_use]
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        let at = id as usize;
        let (start, end) = (*self.offsets.get(at)?, *self.offsets.get(at + 1)?);
        let bytes = self.blob.get(start as usize..end as usize)?;
        if bytes.is_empty() && self.empty.binary_search(&id).is_err() {
            return None;
        }
        Some(bytes)
    }

    /// Appends the bytes of a run of tokens.
    ///
    /// # Errors
    /// At the first token that the vocabulary does not have; `bytes` then holds those before it.
    pub fn append_bytes(&self, ids: &[u32], bytes: &mut Vec<u8>) -> Result<(), UnknownToken> {
        for id in ids {
            bytes.extend_from_slice(self.bytes(*id).ok_or(UnknownToken(*id))?);
        }
        Ok(())
    }

    /// One more than the highest id.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Never true: a vocabulary has tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that the table takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.blob.len() + 4 * (self.offsets.len() + self.empty.len())
    }
}

#[cfg(test)]
mod tests;
