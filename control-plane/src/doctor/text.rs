//! What a pool's configuration makes of requests, to be held against what its engines make of them.

use std::path::Path;

use prefix_picker_core::prompt::{Api, CompiledProfile, Prompt, Rules, Skip, parse_request};
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::config::PoolConfig;
use crate::engine::PoolParts;
use crate::parts;

/// A pool's prompt profile, vocabulary and tokenizer.
pub struct PoolText {
    parts: PoolParts,
    tokenizer: Option<Tokenizer>,
    /// The configuration says the engines' version.
    pinned: bool,
}

/// The engine's tokens against our text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The same.
    Same,
    /// We make no exact prompt of it, on purpose.
    NotExact(Skip),
    /// The engine has a token that our vocabulary lacks.
    UnknownToken(u32),
    /// Other text: both from where they part.
    OtherText {
        /// Bytes that agree.
        at: usize,
        /// What we have from a little before there.
        ours: String,
        /// What the engine has.
        engine: String,
    },
    /// The same text, cut into other tokens.
    OtherTokens,
}

/// Characters of a text that are shown around the place where two part.
const SHOWN_CHARS: usize = 60;
/// Bytes shown before that place.
const SHOWN_BEFORE: usize = 20;

impl PoolText {
    /// Reads a pool's files. May take as long as the hub does.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn load(pool: &PoolConfig) -> anyhow::Result<Self> {
        let parts = parts::load(pool)?;
        let dir = parts::model_dir(pool)?;
        Ok(Self {
            parts,
            tokenizer: tokenizer(&dir),
            pinned: pool.engine.vllm_version.is_some(),
        })
    }

    /// Kinds of requests that go by history, and why.
    pub fn obstacles(&self) -> Vec<String> {
        let obstacles = parts::obstacles(&self.parts.profile);
        obstacles
            .map(|(what, why)| format!("{what}: {why}"))
            .collect()
    }

    /// Compares a body, as an engine of this version renders it, with the engine's tokens of it.
    pub fn compare(
        &self,
        version: Option<&str>,
        api: Api,
        body: &Value,
        now_unix_s: i64,
        ids: &[u32],
    ) -> Match {
        let mut profile = self.parts.profile.clone();
        if let Some(version) = version.filter(|_| !self.pinned) {
            profile.rules = Rules::of_version(version);
        }
        let render = || -> Result<Prompt, Skip> {
            let compiled = CompiledProfile::compile(&profile).map_err(|_| Skip::TemplateError)?;
            compiled.render(
                &parse_request(api, body.to_string().as_bytes())?,
                now_unix_s,
            )
        };
        match render() {
            Err(skip) => Match::NotExact(skip),
            Ok(Prompt::TokenIds(ours)) if ours == ids => Match::Same,
            Ok(Prompt::TokenIds(_)) => Match::OtherTokens,
            Ok(Prompt::Text(prompt)) => self.against(&prompt.text, ids),
        }
    }

    /// Compares a plain text with the engine's tokens of it. Only the tokenizer can make a difference.
    pub fn compare_plain(&self, text: &str, ids: &[u32]) -> Match {
        if let Some(tokenizer) = &self.tokenizer
            && let Ok(encoding) = tokenizer.encode_fast(text, false)
            && encoding.get_ids() == ids
        {
            return Match::Same;
        }
        let found = self.against(text, ids);
        match self.bytes(ids) {
            // Some tokenizers put a space in front.
            Ok(bytes) if bytes.strip_prefix(b" ") == Some(text.as_bytes()) => Match::Same,
            _ => found,
        }
    }

    /// The text of tokens, as far as they are known.
    pub fn bytes(&self, ids: &[u32]) -> Result<Vec<u8>, u32> {
        let mut bytes = Vec::new();
        let result = self.parts.vocab.append_bytes(ids, &mut bytes);
        result.map(|()| bytes).map_err(|unknown| unknown.0)
    }

    fn against(&self, text: &str, ids: &[u32]) -> Match {
        let theirs = match self.bytes(ids) {
            Ok(bytes) => bytes,
            Err(id) => return Match::UnknownToken(id),
        };
        if theirs != text.as_bytes() {
            let same = text.bytes().zip(&theirs).take_while(|(a, b)| a == *b);
            let at = same.count();
            return Match::OtherText {
                at,
                ours: near(text.as_bytes(), at),
                engine: near(&theirs, at),
            };
        }
        let cut_alike = self.tokenizer.as_ref().is_none_or(|tokenizer| {
            let encoding = tokenizer.encode_fast(text, false);
            encoding.is_ok_and(|encoding| encoding.get_ids() == ids)
        });
        if cut_alike {
            Match::Same
        } else {
            Match::OtherTokens
        }
    }
}

fn tokenizer(dir: &Path) -> Option<Tokenizer> {
    let bytes = std::fs::read(dir.join("tokenizer.json")).ok()?;
    let mut tokenizer = Tokenizer::from_bytes(bytes).ok()?;
    tokenizer.with_truncation(None).ok()?;
    tokenizer.with_padding(None);
    Some(tokenizer)
}

fn near(text: &[u8], at: usize) -> String {
    let rest = text.get(at.saturating_sub(SHOWN_BEFORE)..);
    let rest = String::from_utf8_lossy(rest.unwrap_or_default());
    rest.chars().take(SHOWN_CHARS).collect()
}
