//! Folders written by hand, the simulator's model, and real tokenizers where they are.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use prefix_picker_core::prompt::{
    Api, CanonicalStep, CompiledProfile, Prompt, Renderer, parse_request,
};
use serde_json::{Value, json};

use super::*;
use crate::events::tests::golden::vector;

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

/// Why texts of this tokenizer are not exact.
fn text_obstacle(tokenizer: &str) -> String {
    let profile = profile(&[("tokenizer.json", tokenizer), ("chat_template.jinja", "x")]);
    assert_eq!(profile.chat, profile.completions);
    assert_eq!(profile.token_ids, Capability::Exact);
    why(&profile.chat).to_owned()
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
fn unknown_parts_make_texts_predicted_only() {
    let cases = [
        (
            json!({"normalizer": {"type": "NFX"}}),
            "the normaliser NFX is not known",
        ),
        (
            json!({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Precompiled", "precompiled_charsmap": "AA=="}]}}),
            "the normaliser Precompiled is a table of its own, which gateways do not have",
        ),
        (
            json!({"normalizer": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}}),
            "the normaliser replaces by the regular expression \"a+\"",
        ),
        (
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "add_prefix_space": true}]}}),
            "the pre-tokenizer puts a space before pieces that it cut before",
        ),
        (
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"}, {"type": "ByteLevel", "add_prefix_space": false}]}}),
            "the pre-tokenizer drops white space",
        ),
        (
            json!({"normalizer": {"type": "Lowercase"}, "added_tokens": [{"id": 3, "content": "<S>", "normalized": true}]}),
            "the normaliser changes the added token \"<S>\"",
        ),
        (
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed"},
                {"type": "ByteLevel", "add_prefix_space": false}]}}),
            "the pre-tokenizer removes what it splits at",
        ),
        (
            json!({"pre_tokenizer": null}),
            "the tokenizer decodes ByteLevel but does not encode it",
        ),
        (
            json!({"model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}}}),
            "the tokenizer drops merges at random",
        ),
    ];
    for (parts, expected) in cases {
        assert_eq!(text_obstacle(&byte_level(parts)), expected);
    }
    let cases = [
        (
            json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "_"}}),
            "the pre-tokenizer writes spaces as \"_\"",
        ),
        (
            json!({"pre_tokenizer": {"type": "WhitespaceSplit"}}),
            "the pre-tokenizer drops white space",
        ),
        (
            json!({"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                {"type": "Strip", "strip_left": true, "strip_right": true}]}}),
            "the normaliser writes spaces as U+2581 before it looks for spaces",
        ),
    ];
    for (parts, expected) in cases {
        assert_eq!(text_obstacle(&sentence_piece(parts)), expected);
    }
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
fn sentence_piece_steps() {
    let steps = |normalizer: Value| {
        let tokenizer = sentence_piece(json!({"normalizer": normalizer, "pre_tokenizer": null}));
        profile(&[("tokenizer.json", &tokenizer)]).canonical.steps
    };
    let mark = CanonicalStep::Replace {
        from: "▁".into(),
        to: " ".into(),
    };
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    assert_eq!(steps(spaces.clone()), std::slice::from_ref(&mark));
    let llama =
        json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, spaces]});
    assert_eq!(steps(llama), [CanonicalStep::Prepend(" ".into()), mark]);
}

#[test]
fn runs_of_the_space_mark_are_no_added_tokens() {
    let tokenizer = sentence_piece(json!({"added_tokens": [
        {"id": 256, "content": "▁▁", "normalized": false}, {"id": 257, "content": "<b>", "normalized": false}]}));
    let files = load(&[("tokenizer.json", &tokenizer)]).unwrap();
    assert_eq!(files.vocab.bytes(256), Some(&b"  "[..]));
    let added: Vec<&str> = files
        .profile
        .canonical
        .added_tokens
        .iter()
        .map(|token| token.content.as_str())
        .collect();
    assert_eq!(added, ["<b>"]);
}

fn bos_processor() -> Value {
    json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}}]})
}

#[test]
fn completions_begin_with_what_the_post_processor_adds() {
    let completions = |post_processor: Value, config: &str| {
        let tokenizer = byte_level(json!({"post_processor": post_processor}));
        let profile = profile(&[
            ("tokenizer.json", &tokenizer),
            ("tokenizer_config.json", config),
        ]);
        (
            profile.canonical.completions_prefix,
            why(&profile.completions).to_owned(),
        )
    };
    let exact = |prefix: &str| (prefix.to_owned(), "exact".to_owned());
    assert_eq!(completions(json!(null), "{}"), exact(""));
    assert_eq!(completions(bos_processor(), "{}"), exact("<s>"));
    assert_eq!(
        completions(
            bos_processor(),
            r#"{"add_bos_token": true, "bos_token": "<s>"}"#
        ),
        exact("<s>")
    );
    assert_eq!(
        completions(
            json!({"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 3]}),
            "{}"
        ),
        exact("<s>")
    );
    for (post_processor, config) in [
        (
            bos_processor(),
            r#"{"add_bos_token": false, "bos_token": "<s>"}"#,
        ),
        (
            json!(null),
            r#"{"add_bos_token": true, "bos_token": "<s>"}"#,
        ),
    ] {
        let (_, why) = completions(post_processor, config);
        assert!(
            why.contains("depends on the engine's version of transformers"),
            "{why}"
        );
    }
    assert_eq!(
        completions(json!({"type": "New"}), "{}").1,
        "the post-processor New is not known"
    );
}

#[test]
fn templates_from_every_place() {
    let tokenizer = byte_level(json!({}));
    let with = |files: &[(&str, &str)]| {
        profile(&[&[("tokenizer.json", tokenizer.as_str())], files].concat())
    };
    let listed = r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#;
    let profile = with(&[("tokenizer_config.json", listed)]);
    assert_eq!(
        (
            profile.chat_template.as_deref(),
            profile.named_templates["tool_use"].as_str()
        ),
        (Some("d"), "t")
    );

    let profile = with(&[
        ("tokenizer_config.json", listed),
        ("chat_template.jinja", "file"),
        ("additional_chat_templates/tool_use.jinja", "tools"),
        ("additional_chat_templates/rag.jinja", "rag"),
        ("additional_chat_templates/notes.txt", "no"),
    ]);
    assert_eq!(profile.chat_template.as_deref(), Some("file"));
    assert_eq!(profile.named_templates.len(), 2);
    assert_eq!(profile.named_templates["tool_use"], "tools");

    let profile = with(&[
        ("tokenizer_config.json", r#"{"chat_template": "t"}"#),
        ("chat_template.json", r#"{"chat_template": "p"}"#),
    ]);
    assert_eq!(
        (
            profile.chat_template.as_deref(),
            profile.named_templates["tool_use"].as_str()
        ),
        (Some("p"), "t")
    );

    let none = with(&[]);
    assert_eq!(why(&none.chat), "the folder has no chat template");
    assert_eq!(none.completions, Capability::Exact);
}

#[test]
fn chats_that_we_render_by_code_as_the_engine_does() {
    let renderer = |config: &str| {
        let tokenizer = byte_level(json!({}));
        let profile = profile(&[("tokenizer.json", &tokenizer), ("config.json", config)]);
        assert_eq!(profile.chat, Capability::Exact);
        profile.renderer
    };
    for (architecture, expected) in [
        ("DeepseekV32ForCausalLM", Renderer::DeepseekV32),
        ("DeepseekV4ForCausalLM", Renderer::DeepseekV4),
        ("DeepseekV4ForConditionalGeneration", Renderer::DeepseekV4),
        ("DeepseekV41ForCausalLM", Renderer::DeepseekV41),
    ] {
        let config = json!({"architectures": [architecture]}).to_string();
        assert_eq!(renderer(&config), expected);
    }
    let harmony = renderer(r#"{"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"]}"#);
    assert!(matches!(harmony, Renderer::Harmony { .. }));
}

#[test]
fn chats_that_the_engine_renders_by_code() {
    let tokenizer = byte_level(json!({}));
    let chat = |files: &[(&str, &str)]| {
        let base = [
            ("tokenizer.json", tokenizer.as_str()),
            ("chat_template.jinja", "x"),
        ];
        let profile = profile(&[&base[..], files].concat());
        assert_eq!(profile.completions, Capability::Exact);
        why(&profile.chat).to_owned()
    };
    assert!(
        chat(&[(
            "config.json",
            r#"{"architectures": ["KimiK3ForConditionalGeneration"]}"#
        )])
        .contains("KimiK3")
    );
    assert_eq!(
        chat(&[("config.json", r#"{"architectures": ["Qwen3ForCausalLM"]}"#)]),
        "exact"
    );
    assert!(chat(&[("tekken.json", "{}")]).contains("no weights"));
    assert!(chat(&[("tekken.json", "{}"), ("consolidated.safetensors", "")]).contains("mistral"));
    assert_eq!(
        chat(&[
            ("tekken.json", "{}"),
            ("model-00001-of-00002.safetensors", "")
        ]),
        "exact"
    );
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
    let error = |files: &[(&str, &str)]| load(files).unwrap_err().to_string();
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
fn a_folder_of_the_hugging_face_cache_has_the_models_name() {
    let tokenizer = byte_level(json!({}));
    let dir = TempDir::with(&[(
        "models--Qwen--Qwen3-0.6B/snapshots/abc/tokenizer.json",
        tokenizer.as_str(),
    )]);
    let files = load_model_dir(&dir.0.join("models--Qwen--Qwen3-0.6B/snapshots/abc")).unwrap();
    assert_eq!(files.profile.model, "Qwen/Qwen3-0.6B");
}

#[test]
fn a_model_of_a_hugging_face_cache_is_its_snapshot() {
    let tokenizer = byte_level(json!({}));
    let cached = |files: &[(&str, &str)]| {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(name, text)| (format!("models--org--name/{name}"), *text))
            .collect();
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(name, text)| (name.as_str(), *text))
            .collect();
        let dir = TempDir::with(&files);
        load_model_dir(&dir.0.join("models--org--name")).map(|files| files.profile)
    };
    let two = [
        ("snapshots/abc/tokenizer.json", tokenizer.as_str()),
        ("snapshots/def/tokenizer.json", tokenizer.as_str()),
        ("snapshots/def/chat_template.jinja", "def"),
    ];
    let main = [&two[..], &[("refs/main", "def\n")]].concat();
    let profile = cached(&main).unwrap();
    assert_eq!(profile.model, "org/name");
    assert_eq!(profile.chat_template.as_deref(), Some("def"));
    assert!(cached(&two[..1]).is_ok());
    let error = cached(&two).unwrap_err().to_string();
    assert!(error.contains("2 snapshots"), "{error}");
    let elsewhere = [&two[..], &[("refs/main", "../..")]].concat();
    assert!(cached(&elsewhere).is_err());
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

/// A real tokenizer's folder below `PREFIX_PICKER_TOKENIZERS`, or `None` with a word about it.
fn real(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("PREFIX_PICKER_TOKENIZERS").map(|dir| Path::new(&dir).join(name));
    let dir = dir.filter(|dir| dir.join("tokenizer.json").is_file());
    if dir.is_none() {
        eprintln!("skipped: PREFIX_PICKER_TOKENIZERS names no folder with {name}/tokenizer.json");
    }
    dir
}

#[test]
fn real_folders() {
    let bos = "\u{ff5c}begin\u{2581}of\u{2581}sentence";
    for (name, steps, prefix) in [
        ("qwen3", 1, Some("")),
        ("llama3_1", 0, Some("<|begin_of_text|>")),
        ("llama2", 2, Some("<s>")),
        ("gemma3", 1, Some("<bos>")),
        ("mistral_nemo", 0, Some("<s>")),
        ("deepseek_v3", 0, None),
    ] {
        let Some(dir) = real(name) else { continue };
        // The engine takes these types' files as they are; the tokenizers' packages have no config.json.
        let folder = TempDir::with(&[("config.json", r#"{"model_type": "deepseek_v3"}"#)]);
        for file in fs::read_dir(&dir).unwrap() {
            let file = file.unwrap();
            let _ = fs::copy(file.path(), folder.0.join(file.file_name()));
        }
        let ModelFiles { profile, vocab } = load_model_dir(&folder.0).unwrap();
        assert_eq!(profile.canonical.steps.len(), steps, "{name}");
        match prefix {
            Some(prefix) => {
                assert_eq!(why(&profile.completions), "exact", "{name}");
                assert_eq!(profile.canonical.completions_prefix, prefix, "{name}");
            }
            None => assert!(why(&profile.completions).contains("add_bos_token"), "{bos}"),
        }
        assert!(vocab.len() >= 32_000, "{name}");
        if profile.chat_template.is_some() {
            assert_eq!(why(&profile.chat), "exact", "{name}");
            CompiledProfile::compile(&profile).unwrap();
        }
        println!(
            "{name}: {vocab:?}, {} bytes of memory",
            vocab.memory_bytes()
        );
    }
}

/// Mistral Nemo's vocabulary in both of its forms (mistral-common's `tekken_240718.json` as
/// `tekken/tekken.json`).
#[test]
fn tekken_and_tokenizer_json_agree() {
    let Some(dir) = real("mistral_nemo") else {
        return;
    };
    let Ok(tekken) = fs::read(dir.with_file_name("tekken").join("tekken.json")) else {
        eprintln!("skipped: no tekken/tekken.json beside mistral_nemo");
        return;
    };
    let tekken = Vocab::from_tekken_json(&tekken).unwrap();
    let hugging_face = load_model_dir(&dir).unwrap().vocab;
    assert_eq!(tekken.len(), hugging_face.len());
    for id in 0..131_072 {
        // Reserved special tokens have other names in the one and the other.
        if !(10..1000).contains(&id) {
            assert_eq!(tekken.bytes(id), hugging_face.bytes(id), "{id}");
        }
    }
}

/// Bodies that a real engine answered, rendered, against the bytes of the token ids it used.
#[test]
fn prompts_equal_the_bytes_of_a_real_engines_tokens() {
    let Some(dir) = real("qwen3") else { return };
    let ModelFiles { profile, vocab } = load_model_dir(&dir).unwrap();
    let compiled = CompiledProfile::compile(&profile).unwrap();
    let (mut completions, mut rendered) = (0, 0);
    for line in vector("vllm-real/requests-main.jsonl").lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let Ok(ids) = serde_json::from_value::<Vec<u32>>(request["token_ids"].clone()) else {
            continue;
        };
        let mut bytes = Vec::new();
        vocab.append_bytes(&ids, &mut bytes).unwrap();
        if let Some(prompt) = request["body"]["prompt"].as_str() {
            assert_eq!(
                String::from_utf8_lossy(&bytes),
                prompt,
                "{}",
                request["label"]
            );
            completions += 1;
        }
        let Some(api) = Api::of_path(request["path"].as_str().unwrap()) else {
            continue;
        };
        let parsed = parse_request(api, request["body"].to_string().as_bytes()).unwrap();
        if let Ok(Prompt::Text(text)) = compiled.render(&parsed, 0) {
            assert_eq!(
                text.text,
                String::from_utf8_lossy(&bytes),
                "{}",
                request["label"]
            );
            rendered += 1;
        }
    }
    println!("{completions} prompts of completions, {rendered} rendered");
    assert!(completions >= 20 && rendered >= 30);
}

#[path = "rebuilt_tests.rs"]
mod rebuilt_folders;
