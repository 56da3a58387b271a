//! `tokenizer_config.json` and its older companions, `special_tokens_map.json` and
//! `added_tokens.json`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::ProfileLoadError;
use super::files::Folder;
use crate::vocab::tokenizer_json::{AddedTokenJson, TokenizerJson};

const FILE: &str = "tokenizer_config.json";

/// What the files say that matters for prompts.
#[derive(Debug, Default)]
pub(super) struct TokenizerConfig {
    /// `bos_token`, `eos_token` and every other `*_token` with a text.
    pub(super) special_tokens: BTreeMap<String, String>,
    /// `added_tokens_decoder` and `added_tokens.json`.
    pub(super) added_tokens: Vec<AddedTokenJson>,
    pub(super) tokenizer_class: Option<String>,
    /// `chat_template`, as it stands there: a text, or a list of named ones.
    pub(super) chat_template: Option<Value>,
    add_bos_token: Option<bool>,
    pub(super) add_prefix_space: Option<bool>,
    /// Llama: every piece gets a space, not the first alone.
    pub(super) legacy: bool,
}

impl TokenizerConfig {
    pub(super) fn read(folder: &Folder) -> Result<Self, ProfileLoadError> {
        let config = object(folder, FILE)?;
        let map = object(folder, "special_tokens_map.json")?;
        let flag = |name: &str| config.get(name).and_then(Value::as_bool);
        let mut added_tokens = decoder_tokens(folder, &config)?;
        for (content, id) in &object(folder, "added_tokens.json")? {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let Some(id) = id else {
                return Err(shape(
                    folder,
                    "added_tokens.json",
                    format!("the id of {content:?}"),
                ));
            };
            if !added_tokens.iter().any(|token| token.id == id) {
                added_tokens.push(AddedTokenJson {
                    id,
                    content: content.clone(),
                    single_word: false,
                    lstrip: false,
                    rstrip: false,
                    normalized: true,
                });
            }
        }
        Ok(Self {
            special_tokens: special_tokens(&map)
                .chain(special_tokens(&config))
                .collect(),
            added_tokens,
            tokenizer_class: config
                .get("tokenizer_class")
                .and_then(Value::as_str)
                .map(str::to_owned),
            chat_template: config
                .get("chat_template")
                .filter(|template| !template.is_null())
                .cloned(),
            add_bos_token: flag("add_bos_token"),
            add_prefix_space: flag("add_prefix_space"),
            legacy: flag("legacy").unwrap_or_default(),
        })
    }

    /// Added tokens that `tokenizer.json` lacks: the engine adds them when it loads.
    pub(super) fn tokens_missing_in(&self, tokenizer: &TokenizerJson) -> Vec<AddedTokenJson> {
        let known = |token: &AddedTokenJson| {
            tokenizer
                .added_tokens
                .iter()
                .any(|known| known.id == token.id)
        };
        self.added_tokens
            .iter()
            .filter(|token| !known(token))
            .cloned()
            .collect()
    }

    /// Whether both files agree on what comes before a prompt. Which one counts where they differ
    /// depends on the version of transformers and on the tokenizer's class.
    pub(super) fn check_prefix(&self, prefix: String) -> Result<String, String> {
        let bos = self.special_tokens.get("bos_token");
        let agrees = match self.add_bos_token {
            None => true,
            Some(true) => bos.is_none_or(|bos| *bos == prefix),
            Some(false) => bos.is_none_or(|bos| prefix.is_empty() || *bos != prefix),
        };
        if agrees {
            return Ok(prefix);
        }
        Err(format!(
            "tokenizer_config.json says add_bos_token {}, but tokenizer.json's post-processor puts {prefix:?} before \
             a prompt; which of them counts depends on the engine's version of transformers",
            self.add_bos_token.unwrap_or_default()
        ))
    }
}

fn shape(folder: &Folder, name: &str, what: String) -> ProfileLoadError {
    ProfileLoadError::Shape {
        path: folder.file(name),
        what,
    }
}

/// A file's object; empty where there is no such file.
fn object(folder: &Folder, name: &str) -> Result<Map<String, Value>, ProfileLoadError> {
    match folder.json(name)? {
        None => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object),
        Some(_) => Err(shape(folder, name, "not an object".to_owned())),
    }
}

/// `added_tokens_decoder`: `{"151643": {"content": ..., "lstrip": ...}}`.
fn decoder_tokens(
    folder: &Folder,
    config: &Map<String, Value>,
) -> Result<Vec<AddedTokenJson>, ProfileLoadError> {
    let mut tokens = Vec::new();
    let entries = config
        .get("added_tokens_decoder")
        .and_then(Value::as_object);
    for (id, token) in entries.into_iter().flatten() {
        let flag = |name: &str| token.get(name).and_then(Value::as_bool).unwrap_or_default();
        let content = token.get("content").and_then(Value::as_str);
        let (Ok(id), Some(content)) = (id.parse(), content) else {
            return Err(shape(
                folder,
                FILE,
                format!("added_tokens_decoder, entry {id:?}"),
            ));
        };
        tokens.push(AddedTokenJson {
            id,
            content: content.to_owned(),
            single_word: flag("single_word"),
            lstrip: flag("lstrip"),
            rstrip: flag("rstrip"),
            normalized: flag("normalized"),
        });
    }
    Ok(tokens)
}

/// Every `*_token`: a text, or an object with its text as `content`.
fn special_tokens(config: &Map<String, Value>) -> impl Iterator<Item = (String, String)> {
    config
        .iter()
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, token)| {
            let text = token
                .as_str()
                .or_else(|| token.get("content").and_then(Value::as_str))?;
            Some((name.clone(), text.to_owned()))
        })
}
