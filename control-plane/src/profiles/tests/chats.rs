//! Templates, and who renders chats.

use super::*;

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

/// Only `config.json` tells that chats go by Harmony: the template in the folder is not what the engine runs.
#[test]
fn gpt_oss_without_its_config_says_what_is_missing() {
    let special = [
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|return|>",
        "<|call|>",
    ];
    let special = (3..)
        .zip(special)
        .map(|(id, content)| json!({"id": id, "content": content, "normalized": false}));
    let special: Vec<Value> = special.collect();
    let tokenizer = byte_level(json!({"added_tokens": special}));
    let base = [("tokenizer.json", tokenizer.as_str())];
    for template in [&[][..], &[("chat_template.jinja", "x")]] {
        for config in [&[][..], &[("config.json", "{}")]] {
            let profile = profile(&[&base[..], template, config].concat());
            let chat = why(&profile.chat);
            assert!(
                chat.contains("config.json") && chat.contains("Harmony"),
                "{chat}"
            );
            assert_eq!(profile.completions, Capability::Exact);
        }
    }
    let chat = |config: &str| {
        let files = [("chat_template.jinja", "x"), ("config.json", config)];
        let profile = profile(&[&base[..], &files].concat());
        (why(&profile.chat).to_owned(), profile.renderer)
    };
    let (exact, renderer) = chat(r#"{"model_type": "gpt_oss"}"#);
    assert_eq!(exact, "exact");
    assert!(matches!(renderer, Renderer::Harmony { .. }));
    // A model of another type that has such tokens goes by its template.
    let other = chat(r#"{"model_type": "qwen3"}"#);
    assert_eq!(other, ("exact".to_owned(), Renderer::Template));
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
fn a_tokenizer_mode_that_is_said_outdoes_the_folder() {
    let folder = TempDir::with(&[
        ("tokenizer.json", byte_level(json!({})).as_str()),
        ("chat_template.jinja", "x"),
        (
            "config.json",
            r#"{"architectures": ["DeepseekV32ForCausalLM"]}"#,
        ),
    ]);
    for (name, mode) in TokenizerMode::NAMES {
        assert_eq!(TokenizerMode::from_name(name), Some(mode));
        let profile = load_model_dir_as(&folder.0, mode).unwrap().profile;
        assert_eq!(profile.completions, Capability::Exact, "{name}");
        let chat = why(&profile.chat);
        let expected = match name {
            "auto" | "deepseek_v32" => ("exact", Renderer::DeepseekV32),
            "deepseek_v4" => ("exact", Renderer::DeepseekV4),
            "deepseek_v41" => ("exact", Renderer::DeepseekV41),
            "hf" => ("exact", Renderer::Template),
            by_code => {
                assert!(chat.contains(by_code), "{chat}");
                (chat, Renderer::Template)
            }
        };
        assert_eq!((chat, profile.renderer), expected, "{name}");
    }
    assert_eq!(TokenizerMode::from_name("slow"), None);
}
