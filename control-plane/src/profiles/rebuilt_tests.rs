//! Folders whose tokenizer the engine rebuilds. What it makes of them was found out with transformers
//! 5.19: `AutoTokenizer` on Llama 2's and DeepSeek V3's own files, with a `config.json` of each type.

use prefix_picker_core::prompt::Pieces;

use super::*;

/// Llama 2's normaliser.
fn llama() -> String {
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = json!({"type": "Prepend", "prepend": "▁"});
    sentence_piece(json!({"normalizer": {"type": "Sequence", "normalizers": [prepend, spaces]}}))
}

fn of(tokenizer: &str, class: &str, model_type: &str) -> Profile {
    let config = format!(r#"{{"tokenizer_class": "{class}", "legacy": true}}"#);
    let model = format!(r#"{{"model_type": "{model_type}"}}"#);
    profile(&[
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", &config),
        ("config.json", &model),
        ("chat_template.jinja", "{{ messages[0].content }}"),
    ])
}

#[test]
fn llama_is_rebuilt() {
    let spaced = |first_only| Pieces::Spaced { first_only };
    for (class, model_type, pieces) in [
        ("LlamaTokenizer", "llama", spaced(false)),
        ("LlamaTokenizerFast", "llama", spaced(false)),
        ("CodeLlamaTokenizer", "llama", spaced(true)),
        ("LlamaTokenizer", "mixtral", Pieces::Whole),
        ("LlamaTokenizer", "phi3", Pieces::Whole),
        ("PreTrainedTokenizerFast", "llama", Pieces::Whole),
    ] {
        let profile = of(&llama(), class, model_type);
        assert_eq!(why(&profile.chat), "exact", "{class}, {model_type}");
        assert_eq!(profile.canonical.pieces, pieces, "{class}, {model_type}");
        let prepends = profile
            .canonical
            .steps
            .contains(&CanonicalStep::Prepend(" ".into()));
        assert_eq!(prepends, pieces == Pieces::Whole, "{class}, {model_type}");
    }
}

/// transformers: ` Hello` -> `▁Hello`, but `▁ ▁Hello` by the file.
#[test]
fn a_leading_space_is_not_doubled() {
    let rendered = |class: &str| {
        let profile = CompiledProfile::compile(&of(&llama(), class, "llama")).unwrap();
        let body = json!({"model": "m", "prompt": " Hello"}).to_string();
        let request = parse_request(Api::Completions, body.as_bytes()).unwrap();
        match profile.render(&request, 0).unwrap() {
            Prompt::Text(text) => text.text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rendered("LlamaTokenizer"), " Hello");
    assert_eq!(rendered("PreTrainedTokenizerFast"), "  Hello");
}

#[test]
fn files_that_no_llama_is_made_of() {
    let bytes = byte_level(json!({}));
    assert_eq!(
        why(&of(&bytes, "LlamaTokenizerFast", "deepseek_v3").chat),
        "exact"
    );
    let profile = of(&bytes, "LlamaTokenizerFast", "llama");
    for capability in [&profile.chat, &profile.completions] {
        assert!(why(capability).contains("rebuilds the tokenizer as LlamaTokenizer"));
    }
    assert_eq!(profile.token_ids, Capability::Exact);
    let profile = self::profile(&[
        ("tokenizer.json", &llama()),
        (
            "tokenizer_config.json",
            r#"{"tokenizer_class": "LlamaTokenizer"}"#,
        ),
    ]);
    assert!(why(&profile.completions).contains("add the engine's config.json"));
}

#[test]
fn distilled_qwens_are_normalised() {
    let bytes = byte_level(json!({}));
    let profile = of(&bytes, "LlamaTokenizerFast", "qwen2");
    assert_eq!(profile.canonical.steps, [CanonicalStep::Nfc]);
    assert_eq!(why(&profile.chat), "exact");
}
