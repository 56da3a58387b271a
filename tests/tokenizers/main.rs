//! The bytes of a tokenizer's tokens against our canonical text: with real tokenizers (fetched by
//! `tools/tokenizers.sh`), and with small ones that have every part we claim to know.
//!
//! The tokenizer is Hugging Face's own, so that neither side can agree with itself alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a test

mod parts;
mod real;
mod texts;

use std::path::{Path, PathBuf};

use prefix_picker::profiles::{ModelFiles, load_model_dir};
use prefix_picker::vocab::Vocab;
use prefix_picker_core::prompt::{Api, Canonical, CompiledProfile, Profile, Prompt, parse_request};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

/// A model's files as we read them, and the tokenizer itself.
struct Model {
    vocab: Vocab,
    /// Ours.
    exact: CompiledProfile,
    /// The same without the tokenizer's part: what reaches the engine's tokenizer.
    plain: CompiledProfile,
    tokenizer: Tokenizer,
    /// No token may be unknown.
    lossless: bool,
}

impl Model {
    fn open(dir: &Path) -> Self {
        let ModelFiles {
            mut profile, vocab, ..
        } = load_model_dir(dir).unwrap();
        // Bare texts go through a template that changes nothing.
        if profile.chat_template.is_none() {
            profile.chat_template = Some("{{ messages[0].content }}".to_owned());
            profile.chat = profile.completions.clone();
        }
        Self::of(
            &profile,
            vocab,
            Tokenizer::from_file(dir.join("tokenizer.json")).unwrap(),
        )
    }

    fn of(profile: &Profile, vocab: Vocab, tokenizer: Tokenizer) -> Self {
        let plain = Profile {
            canonical: Canonical::default(),
            ..profile.clone()
        };
        Self {
            vocab,
            exact: CompiledProfile::compile(profile).unwrap(),
            plain: CompiledProfile::compile(&plain).unwrap(),
            tokenizer,
            lossless: false,
        }
    }

    /// Bytes of the engine's tokens, up to one whose bytes are unknown; whether there was none.
    fn engine(&self, text: &str, special_tokens: bool) -> (Vec<u8>, bool) {
        let encoded = self.tokenizer.encode(text, special_tokens).unwrap();
        let mut bytes = Vec::new();
        let known = self
            .vocab
            .append_bytes(encoded.get_ids(), &mut bytes)
            .is_ok();
        (bytes, known)
    }

    /// One chat; `None` where the template refuses it.
    fn check_chat(&self, body: &Value) -> Option<Result<(), String>> {
        let plain = text(&self.plain, Api::ChatCompletions, body)?;
        let ours = text(&self.exact, Api::ChatCompletions, body)?;
        Some(self.compare(&plain, &ours, false))
    }

    /// One completion.
    fn check_completion(&self, prompt: &str) -> Result<(), String> {
        let body = json!({ "prompt": prompt });
        let ours = text(&self.exact, Api::Completions, &body).ok_or("is not exact")?;
        self.compare(prompt, &ours, true)
    }

    fn compare(&self, plain: &str, ours: &str, special_tokens: bool) -> Result<(), String> {
        let (engine, known) = self.engine(plain, special_tokens);
        // What a post-processor puts behind the text is no part of it.
        let (bare, _) = self.engine("", special_tokens);
        let prefix = &self.exact.profile().canonical.completions_prefix;
        let behind = if special_tokens {
            bare.strip_prefix(prefix.as_bytes()).unwrap_or_default()
        } else {
            &[]
        };
        if self.lossless && !known {
            return Err(format!("an unknown token after {} bytes", engine.len()));
        }
        let fine = if known {
            engine.strip_suffix(behind) == Some(ours.as_bytes())
        } else {
            ours.as_bytes().starts_with(&engine)
        };
        if fine {
            return Ok(());
        }
        let at = engine
            .iter()
            .zip(ours.as_bytes())
            .take_while(|(a, b)| a == b)
            .count();
        let near = |bytes: &[u8]| {
            let part = &bytes[at.saturating_sub(20).min(bytes.len())..(at + 30).min(bytes.len())];
            String::from_utf8_lossy(part).into_owned()
        };
        Err(format!(
            "differs at byte {at}: engine {:?}, ours {:?} (special tokens {special_tokens})",
            near(&engine),
            near(ours.as_bytes()),
        ))
    }
}

fn text(profile: &CompiledProfile, api: Api, body: &Value) -> Option<String> {
    let request = parse_request(api, body.to_string().as_bytes()).ok()?;
    match profile.render(&request, 1_795_975_200).ok()? {
        Prompt::Text(text) => Some(text.text),
        Prompt::TokenIds(_) => None,
    }
}

/// A body of one message.
fn chat(content: &str) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

/// A folder that is gone when dropped.
struct Temp(PathBuf);

impl Temp {
    fn with(name: &str, tokenizer: &Value) -> Self {
        let dir = std::env::temp_dir().join(format!(
            "prefix-picker-tokenizers-{name}-{}",
            std::process::id()
        ));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        Self(dir)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
