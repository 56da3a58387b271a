//! Hugging Face's `tokenizer.json`, as far as bytes and canonical text need it. Merges are passed
//! over: nothing is tokenised here.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{Vocab, VocabError, alphabet};

/// What stands for a space in SentencePiece-style vocabularies.
pub(crate) const SPACE_MARK: char = '\u{2581}';

/// The file.
#[derive(Debug, Deserialize)]
pub(crate) struct TokenizerJson {
    #[serde(default)]
    pub(crate) added_tokens: Vec<AddedTokenJson>,
    #[serde(default)]
    pub(crate) normalizer: Value,
    #[serde(default)]
    pub(crate) pre_tokenizer: Value,
    #[serde(default)]
    pub(crate) post_processor: Value,
    #[serde(default)]
    pub(crate) decoder: Value,
    pub(crate) model: ModelJson,
}

/// A token that is matched in the text itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AddedTokenJson {
    pub(crate) id: u32,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) single_word: bool,
    #[serde(default)]
    pub(crate) lstrip: bool,
    #[serde(default)]
    pub(crate) rstrip: bool,
    #[serde(default)]
    pub(crate) normalized: bool,
}

/// The tokens and what is known of how they are found.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelJson {
    #[serde(default)]
    pub(crate) r#type: Option<String>,
    #[serde(default)]
    pub(crate) dropout: Option<f64>,
    #[serde(default)]
    pub(crate) byte_fallback: bool,
    /// Unigram: the id of what the vocabulary lacks.
    #[serde(default)]
    pub(crate) unk_id: Option<u32>,
    /// BPE and WordPiece: the token of what the vocabulary lacks.
    #[serde(default)]
    pub(crate) unk_token: Option<String>,
    #[serde(default)]
    pub(crate) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(crate) end_of_word_suffix: Option<String>,
    pub(crate) vocab: VocabJson,
}

/// Tokens: `{token: id}` (BPE) or `[[token, score], ...]` (Unigram).
#[derive(Debug)]
pub(crate) struct VocabJson(pub(crate) Vec<(String, u32)>);

impl<'de> Deserialize<'de> for VocabJson {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = VocabJson;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from token to id, or a list of tokens and scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabJson, A::Error> {
                let mut tokens = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    tokens.push(entry);
                }
                Ok(VocabJson(tokens))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<VocabJson, A::Error> {
                let mut tokens = Vec::new();
                let mut id = 0;
                while let Some((token, _score)) = list.next_element::<(String, f64)>()? {
                    tokens.push((token, id));
                    id += 1;
                }
                Ok(VocabJson(tokens))
            }
        }
        deserializer.deserialize_any(Tokens)
    }
}

/// How a vocabulary writes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenStyle {
    /// GPT-2's alphabet.
    ByteLevel,
    /// U+2581 for a space, `<0xNN>` for a byte.
    SentencePiece,
    /// Words without the spaces between them; `##` before what continues a word. A token's bytes are
    /// those of a space and itself, or of itself alone where it continues a word.
    WordPiece,
}

/// What marks a token that continues a word, unless the file says otherwise.
const CONTINUES: &str = "##";

impl TokenizerJson {
    pub(crate) fn parse(json: &[u8]) -> Result<Self, VocabError> {
        serde_json::from_slice(json).map_err(|source| VocabError::Json {
            file: "tokenizer.json",
            source,
        })
    }

    /// How the vocabulary writes bytes.
    pub(crate) fn style(&self) -> Result<TokenStyle, VocabError> {
        let kind = self.model.r#type.as_deref().unwrap_or("BPE");
        if !matches!(kind, "BPE" | "Unigram" | "WordPiece") {
            return Err(VocabError::Unsupported(format!("a {kind} model")));
        }
        let some = |affix: &Option<String>| affix.clone().filter(|affix| !affix.is_empty());
        if let Some(affix) = some(&self.model.end_of_word_suffix) {
            return Err(VocabError::Unsupported(format!(
                "word ends are marked with {affix:?}"
            )));
        }
        if kind == "WordPiece" {
            return Ok(TokenStyle::WordPiece);
        }
        if let Some(affix) = some(&self.model.continuing_subword_prefix) {
            return Err(VocabError::Unsupported(format!(
                "word parts are marked with {affix:?}"
            )));
        }
        if [&self.decoder, &self.pre_tokenizer, &self.normalizer]
            .into_iter()
            .any(|part| has_type(part, "ByteLevel"))
        {
            return Ok(TokenStyle::ByteLevel);
        }
        if self.model.byte_fallback {
            return self.check_fallback().map(|()| TokenStyle::SentencePiece);
        }
        // What it lacks becomes a token that we know to be unknown.
        if kind == "Unigram" || self.unknown_id().is_some() {
            return Ok(TokenStyle::SentencePiece);
        }
        Err(VocabError::Unsupported(format!(
            "a {kind} model, neither ByteLevel nor with byte fallback, loses what its vocabulary lacks"
        )))
    }

    /// The token that stands for whatever the vocabulary lacks, so for no bytes that could be told.
    pub(crate) fn unknown_id(&self) -> Option<u32> {
        let name = self.model.unk_token.as_ref();
        let named = || {
            let tokens = &self.model.vocab.0;
            let (_, id) = tokens.iter().find(|(token, _)| Some(token) == name)?;
            Some(*id)
        };
        self.model.unk_id.or_else(named)
    }

    /// With byte fallback there must be a token for each byte, else text is lost after all.
    fn check_fallback(&self) -> Result<(), VocabError> {
        let mut seen = [false; 256];
        for byte in self
            .model
            .vocab
            .0
            .iter()
            .filter_map(|(token, _)| fallback_byte(token))
        {
            if let Some(seen) = seen.get_mut(usize::from(byte)) {
                *seen = true;
            }
        }
        match seen.iter().position(|seen| !seen) {
            None => Ok(()),
            Some(byte) => Err(VocabError::Unsupported(format!(
                "byte fallback without a token <0x{byte:02X}>"
            ))),
        }
    }

    /// The table, with tokens that other files add: id -> text.
    pub(crate) fn vocab(&self, more_added: &BTreeMap<u32, String>) -> Result<Vocab, VocabError> {
        let style = self.style()?;
        let bytes = |token: &str| match style {
            TokenStyle::ByteLevel => alphabet::bytes_of(token),
            TokenStyle::SentencePiece => sentence_piece_bytes(token, self.model.byte_fallback),
            TokenStyle::WordPiece => self.word_piece_bytes(token),
        };
        // With bytes to fall back to, only a client that writes it gets the unknown token.
        let unknown = self
            .unknown_id()
            .filter(|_| style != TokenStyle::ByteLevel && !self.model.byte_fallback);
        let model = self
            .model
            .vocab
            .0
            .iter()
            .map(|(token, id)| (*id, bytes(token)));
        let added = self
            .added_tokens
            .iter()
            .filter(|token| !self.also_found_by_model(token, style))
            .map(|token| (token.id, token.content.clone().into_bytes()));
        let more = more_added
            .iter()
            .map(|(id, text)| (*id, text.clone().into_bytes()));
        let known = |(id, _): &(u32, Vec<u8>)| Some(*id) != unknown;
        Vocab::from_tokens(model.chain(added).chain(more).filter(known))
    }

    fn word_piece_bytes(&self, token: &str) -> Vec<u8> {
        let continues = self.model.continuing_subword_prefix.as_deref();
        match token.strip_prefix(continues.unwrap_or(CONTINUES)) {
            Some(rest) => rest.as_bytes().to_vec(),
            None => format!(" {token}").into_bytes(),
        }
    }

    /// Runs of U+2581 that are added tokens and ordinary tokens at once (Gemma): nearly always the
    /// model finds them, and then they stand for spaces.
    pub(crate) fn also_found_by_model(&self, token: &AddedTokenJson, style: TokenStyle) -> bool {
        style == TokenStyle::SentencePiece
            && !token.content.is_empty()
            && token.content.chars().all(|char| char == SPACE_MARK)
            && self
                .model
                .vocab
                .0
                .iter()
                .any(|(text, id)| *id == token.id && *text == token.content)
    }
}

/// Whether a part of the tokenizer is, or holds in a sequence, something of this type.
pub(crate) fn has_type(part: &Value, wanted: &str) -> bool {
    flatten(part)
        .iter()
        .any(|part| type_of(part) == Some(wanted))
}

/// A part's type.
pub(crate) fn type_of(part: &Value) -> Option<&str> {
    part.get("type").and_then(Value::as_str)
}

/// A part's members if it is a sequence, else the part alone; nothing for null.
pub(crate) fn flatten(part: &Value) -> Vec<&Value> {
    const LISTS: [&str; 4] = ["normalizers", "pretokenizers", "processors", "decoders"];
    let mut parts = Vec::new();
    let mut pending = vec![part];
    while let Some(part) = pending.pop() {
        if part.is_null() {
            continue;
        }
        if type_of(part) != Some("Sequence") {
            parts.push(part);
            continue;
        }
        let members = LISTS
            .iter()
            .find_map(|list| part.get(list))
            .and_then(Value::as_array);
        pending.extend(members.into_iter().flatten().rev());
    }
    parts
}

/// `<0xNN>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

fn sentence_piece_bytes(token: &str, byte_fallback: bool) -> Vec<u8> {
    match fallback_byte(token).filter(|_| byte_fallback) {
        Some(byte) => vec![byte],
        None => token.replace(SPACE_MARK, " ").into_bytes(),
    }
}
