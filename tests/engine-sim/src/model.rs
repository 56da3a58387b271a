//! The model folder that ships with the simulator: its tokenizer and the bytes behind each token id.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use hashbrown::HashMap;
use tokenizers::Tokenizer;

const TOKENIZER: &[u8] = include_bytes!("../model/tokenizer.json");
const END_OF_TURN: &str = "<|im_end|>";

/// The folder `model/`, Hugging Face style (tokenizer.json, chat template, configs): what a router is told to
/// read. Exists in a source checkout only.
#[must_use]
pub fn model_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("model")
}

/// The tokenizer, ready to use.
#[derive(Debug)]
pub struct Model {
    tokenizer: Tokenizer,
    bytes: Vec<Vec<u8>>,
    special: Vec<bool>,
    end_of_turn: u32,
}

impl Model {
    /// Loads the tokenizer that is built into this crate.
    ///
    /// # Errors
    /// Never, unless the file in the repository is broken.
    pub fn load() -> anyhow::Result<Self> {
        let tokenizer =
            Tokenizer::from_bytes(TOKENIZER).map_err(|e| anyhow!("tokenizer.json: {e}"))?;
        let alphabet = byte_alphabet();
        let size = tokenizer.get_vocab_size(true);
        let (mut bytes, mut special) = (vec![Vec::new(); size], vec![false; size]);
        let added = tokenizer.get_added_tokens_decoder();
        for (token, id) in tokenizer.get_vocab(true) {
            let at = id as usize;
            if let Some(added) = added.get(&id) {
                bytes[at] = added.content.clone().into_bytes();
                special[at] = added.special;
            } else {
                bytes[at] = token
                    .chars()
                    .filter_map(|c| alphabet.get(&c).copied())
                    .collect();
            }
        }
        let end_of_turn = tokenizer
            .token_to_id(END_OF_TURN)
            .context("tokenizer.json lacks <|im_end|>")?;
        Ok(Self {
            tokenizer,
            bytes,
            special,
            end_of_turn,
        })
    }

    /// Number of token ids.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.bytes.len()
    }

    /// The token that ends an answer.
    #[must_use]
    pub fn end_of_turn(&self) -> u32 {
        self.end_of_turn
    }

    /// Token ids of a text. The tokenizer adds none of its own.
    ///
    /// # Errors
    /// Whatever the tokenizer refuses (nothing known).
    pub fn encode(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        let encoding = self
            .tokenizer
            .encode_fast(text, true)
            .map_err(|e| anyhow!("tokenizing: {e}"))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The bytes a token stands for; empty for an unknown id.
    #[must_use]
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether the token is left out of answers' text.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(true)
    }

    /// Text of generated tokens, without special ones; broken UTF-8 is replaced.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids
            .iter()
            .filter(|id| !self.is_special(**id))
            .flat_map(|id| self.bytes(*id))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Turns tokens into text as they come; holds back an incomplete character.
#[derive(Debug, Default)]
pub(crate) struct Detokenizer {
    held: Vec<u8>,
}

impl Detokenizer {
    pub(crate) fn push(&mut self, model: &Model, id: u32) -> String {
        if !model.is_special(id) {
            self.held.extend_from_slice(model.bytes(id));
        }
        let complete = match std::str::from_utf8(&self.held) {
            Ok(_) => self.held.len(),
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            Err(_) => self.held.len(),
        };
        let rest = self.held.split_off(complete);
        String::from_utf8_lossy(&std::mem::replace(&mut self.held, rest)).into_owned()
    }

    /// What is left at the end.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// GPT-2's printable stand-ins for bytes.
fn byte_alphabet() -> HashMap<char, u8> {
    let mut next = 256;
    (0..=255u8)
        .map(|byte| {
            let shown = match byte {
                b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
                _ => {
                    next += 1;
                    char::from_u32(next - 1).unwrap_or_default()
                }
            };
            (shown, byte)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "Grüße 日本語 🚀👩‍👩‍👧 مرحبا <tool_call>\n{\"a\": 1}\n</tool_call>\n\n  naïve\t½";

    #[test]
    fn bytes_of_tokens_are_the_text() {
        let model = Model::load().unwrap();
        let ids = model.encode(TEXT).unwrap();
        assert_eq!(model.decode(&ids), TEXT);
        let mut stream = Detokenizer::default();
        let mut text: String = ids.iter().map(|id| stream.push(&model, *id)).collect();
        text += &stream.finish();
        assert_eq!(text, TEXT);
    }

    #[test]
    fn composes_as_qwen_does_and_hides_special_tokens() {
        let model = Model::load().unwrap();
        assert_eq!(
            model.encode("e\u{301}").unwrap(),
            model.encode("é").unwrap()
        );
        let ids = model.encode("<|im_start|>user\nhi<|im_end|>").unwrap();
        assert_eq!(ids.last(), Some(&model.end_of_turn()));
        assert_eq!(model.decode(&ids), "user\nhi");
    }
}
