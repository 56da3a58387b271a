//! Folders written by hand, and the simulator's model.

mod chats;
mod hugging_face_cache;
mod real;
#[path = "rebuilt_tests.rs"]
mod rebuilt_folders;
mod texts;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use prefix_picker_core::prompt::{
    Api, CanonicalStep, CompiledProfile, Prompt, Renderer, parse_request,
};
use serde_json::{Value, json};

use super::*;

/// A folder that is gone when dropped.
struct TempDir(PathBuf);

impl TempDir {
    fn with(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "prefix-picker-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let dir = Self(std::env::temp_dir().join(name));
        for (name, text) in files {
            let path = dir.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A ByteLevel tokenizer with these parts laid over it.
fn byte_level(parts: Value) -> String {
    let mut tokenizer = json!({
        "added_tokens": [{"id": 3, "content": "<s>", "normalized": false}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    });
    tokenizer
        .as_object_mut()
        .unwrap()
        .extend(parts.as_object().unwrap().clone());
    tokenizer.to_string()
}

/// A SentencePiece-style tokenizer with these parts laid over it.
fn sentence_piece(parts: Value) -> String {
    let mut vocab: serde_json::Map<String, Value> = (0..256)
        .map(|byte| (format!("<0x{byte:02X}>"), json!(byte)))
        .collect();
    vocab.insert("▁▁".to_owned(), json!(256));
    let mut tokenizer = json!({"model": {"type": "BPE", "byte_fallback": true, "vocab": vocab}});
    tokenizer
        .as_object_mut()
        .unwrap()
        .extend(parts.as_object().unwrap().clone());
    tokenizer.to_string()
}

fn load(files: &[(&str, &str)]) -> Result<ModelFiles, ProfileLoadError> {
    load_model_dir(&TempDir::with(files).0)
}

fn profile(files: &[(&str, &str)]) -> Profile {
    load(files).unwrap().profile
}

fn why(capability: &Capability) -> &str {
    match capability {
        Capability::Exact => "exact",
        Capability::PredictedOnly { why } => why,
    }
}

#[test]
fn a_plain_folder_is_exact() {
    let profile = profile(&[
        (
            "tokenizer.json",
            &byte_level(json!({"normalizer": {"type": "NFC"}})),
        ),
        (
            "tokenizer_config.json",
            r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null, "add_bos_token": false,
                "chat_template": "{{ messages }}"}"#,
        ),
    ]);
    assert_eq!(
        [&profile.chat, &profile.completions, &profile.token_ids],
        [&Capability::Exact; 3]
    );
    assert_eq!(profile.canonical.steps, [CanonicalStep::Nfc]);
    assert_eq!(profile.canonical.added_tokens[0].content, "<s>");
    assert_eq!(profile.chat_template.as_deref(), Some("{{ messages }}"));
    let expected = [("bos_token", "<s>"), ("eos_token", "</s>")];
    let tokens: Vec<(&str, &str)> = profile
        .special_tokens
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    assert_eq!(tokens, expected);
}

#[test]
fn folders_of_other_names_give_the_same_hash() {
    let tokenizer = byte_level(json!({}));
    let at = |folder: &str| {
        let dir = TempDir::with(&[(&format!("{folder}/tokenizer.json"), tokenizer.as_str())]);
        load_model_dir(&dir.0.join(folder)).unwrap().profile
    };
    let (one, other) = (at("one"), at("other"));
    assert_ne!(one.model, other.model);
    assert_eq!(one.hash(), other.hash());
}

#[test]
fn tokens_that_only_the_config_adds() {
    let files = load(&[
        ("tokenizer.json", &byte_level(json!({}))),
        (
            "tokenizer_config.json",
            r#"{"added_tokens_decoder": {"3": {"content": "<s>"}, "9": {"content": "<tool>", "rstrip": true}}}"#,
        ),
        ("added_tokens.json", r#"{"<extra>": 11}"#),
    ])
    .unwrap();
    assert_eq!(files.vocab.bytes(9), Some(&b"<tool>"[..]));
    assert_eq!(files.vocab.bytes(11), Some(&b"<extra>"[..]));
    let added: Vec<(&str, bool)> = files
        .profile
        .canonical
        .added_tokens
        .iter()
        .map(|token| (token.content.as_str(), token.rstrip))
        .collect();
    assert_eq!(
        added,
        [("<s>", false), ("<tool>", true), ("<extra>", false)]
    );

    let differing = r#"{"added_tokens_decoder": {"3": {"content": "<s>", "lstrip": true}}}"#;
    let profile = profile(&[
        ("tokenizer.json", &byte_level(json!({}))),
        ("tokenizer_config.json", differing),
    ]);
    assert!(why(&profile.completions).contains("differ about the added token \"<s>\""));
}

#[test]
fn folders_that_cannot_be_used() {
    let error = |files: &[(&str, &str)]| {
        let error = load(files).unwrap_err();
        format!("{:#}", anyhow::Error::new(error))
    };
    assert!(error(&[("config.json", "{}")]).contains("no tokenizer.json, tekken.json"));
    assert!(error(&[("tokenizer.json", "{")]).contains("tokenizer.json"));
    assert!(
        error(&[(
            "tokenizer.json",
            r#"{"model": {"type": "WordLevel", "vocab": {}}}"#
        )])
        .contains("WordLevel")
    );
    let tokenizer = byte_level(json!({}));
    let broken = [
        ("tokenizer.json", tokenizer.as_str()),
        ("tokenizer_config.json", r#"{"chat_template": 5}"#),
    ];
    assert!(error(&broken).contains("chat_template is neither"));
    assert!(matches!(
        load_model_dir(Path::new("/nonexistent/model")),
        Err(ProfileLoadError::Read { .. })
    ));
}

#[test]
fn tiktoken_files_of_known_code() {
    let config = |class: &str| {
        format!(
            r#"{{"tokenizer_class": "{class}", "added_tokens_decoder": {{"2": {{"content": "<|im_end|>"}}}}}}"#
        )
    };
    let with = |config: &str| {
        load(&[
            ("tiktoken.model", "YQ== 0\nYg== 1\n"),
            ("tokenizer_config.json", config),
            ("chat_template.jinja", "x"),
        ])
        .unwrap()
    };
    let kimi = with(&config("TikTokenTokenizer"));
    assert_eq!(kimi.vocab.bytes(2), Some(&b"<|im_end|>"[..]));
    assert_eq!(kimi.profile.chat, Capability::Exact);
    assert!(why(&with(&config("Other")).profile.chat).contains("Python code"));
    assert!(
        why(&with(&config("QWenTokenizer")).profile.chat).contains("not that of the first Qwen")
    );
    let qwen = load(&[
        ("qwen.tiktoken", "YQ== 0\nYg== 151642\n"),
        (
            "tokenizer_config.json",
            r#"{"tokenizer_class": "QWenTokenizer"}"#,
        ),
        ("chat_template.jinja", "x"),
    ])
    .unwrap();
    assert_eq!(qwen.profile.chat, Capability::Exact);
    assert_eq!(qwen.profile.canonical.steps, [CanonicalStep::Nfc]);
    assert_eq!(qwen.vocab.bytes(151_645), Some(&b"<|im_end|>"[..]));
    assert_eq!(qwen.vocab.bytes(151_850), Some(&b"<|extra_204|>"[..]));
    assert!(why(&with("{}").profile.chat).contains("special tokens are unknown"));
}

#[test]
fn the_simulators_model_is_exact() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/engine-sim/model");
    let profile = load_model_dir(&dir).unwrap().profile;
    assert_eq!(
        [&profile.chat, &profile.completions, &profile.token_ids],
        [&Capability::Exact; 3]
    );
    CompiledProfile::compile(&profile).unwrap();
}
