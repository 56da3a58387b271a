use std::path::PathBuf;

use super::*;
use crate::engine::tests::config;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("prefix-picker-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_engines_flags_reach_the_profile() {
    let dir = Dir::new("flags");
    let template = dir.0.join("t.jinja");
    std::fs::write(&template, "{{ messages[0].content }}").unwrap();
    let mut pool = config(&dir.0).pools.remove(0);
    let own = load(&pool).unwrap().profile;
    assert_ne!(
        own.chat_template.as_deref(),
        Some("{{ messages[0].content }}")
    );

    pool.engine.chat_template = Some(template.clone());
    pool.engine.interleave_mm_strings = true;
    pool.engine.trust_request_chat_template = true;
    pool.engine.utc_offset_minutes = 90;
    pool.engine.anthropic_disabled_thinking_effort = Some("max");
    let image = ("image".to_owned(), "<img>".to_owned());
    pool.engine.media_strings = [image.clone()].into();
    pool.engine.content_format = ContentFormat::String;
    pool.engine
        .reasoning_effort_map
        .insert("minimal".into(), "low".into());
    let profile = load(&pool).unwrap().profile;
    assert_eq!(
        profile.chat_template.as_deref(),
        Some("{{ messages[0].content }}")
    );
    assert!(profile.named_templates.is_empty());
    assert!(profile.interleave_mm_strings && profile.trust_request_chat_template);
    assert_eq!(profile.utc_offset_minutes, 90);
    assert_eq!(own.anthropic_disabled_thinking_effort, "auto");
    assert_eq!(profile.anthropic_disabled_thinking_effort, "max");
    assert_eq!(profile.media_strings, [image].into());
    assert_eq!(profile.content_format, prompt::ContentFormat::String);
    assert_eq!(profile.reasoning_effort_map["minimal"], "low");
    assert_ne!(profile.hash(), own.hash());

    std::fs::write(&template, "{% if %}").unwrap();
    let error = format!("{:#}", load(&pool).unwrap_err());
    assert!(error.starts_with("pool one: chat_template"), "{error}");
    assert!(error.contains("does not compile"), "{error}");
    pool.engine.chat_template = Some(dir.0.join("missing.jinja"));
    let error = format!("{:#}", load(&pool).unwrap_err());
    assert!(error.contains("missing.jinja cannot be used"), "{error}");
}

#[test]
fn a_uuid_is_no_identifier_where_the_engines_rename_media() {
    let dir = Dir::new("renames-media");
    let mut pool = config(&dir.0).pools.remove(0);
    let tokenizer = pool.model_dir.join("tokenizer.json");
    std::fs::copy(tokenizer, dir.0.join("tokenizer.json")).unwrap();
    let config = r#"{"architectures": ["LlavaForConditionalGeneration"], "image_token_id": 3}"#;
    std::fs::write(dir.0.join("config.json"), config).unwrap();
    pool.model_dir.clone_from(&dir.0);
    assert_eq!(load(&pool).unwrap().profile.media_placeholders.len(), 1);
    pool.engine.renames_media = true;
    assert_eq!(load(&pool).unwrap().profile.media_placeholders.len(), 0);
}

#[test]
fn settings_of_gpt_oss_reach_its_renderer() {
    let dir = Dir::new("harmony");
    std::fs::write(dir.0.join("config.json"), r#"{"model_type": "gpt_oss"}"#).unwrap();
    let mut pool = config(&dir.0).pools.remove(0);
    let tokenizer = pool.model_dir.join("tokenizer.json");
    std::fs::copy(tokenizer, dir.0.join("tokenizer.json")).unwrap();
    pool.model_dir.clone_from(&dir.0);
    let plain = load(&pool).unwrap().profile;
    assert_eq!(plain.chat, Capability::Exact);
    pool.engine.system_start_date = Some("2026-11-29".to_owned());
    pool.engine.harmony_system_instructions = true;
    let pinned = load(&pool).unwrap().profile;
    assert_eq!(
        pinned.renderer,
        Renderer::Harmony {
            system_start_date: Some("2026-11-29".to_owned()),
            system_instructions: true,
        }
    );
    assert_ne!(pinned.hash(), plain.hash());
    pool.engine.tool_server = true;
    let chat = load(&pool).unwrap().profile.chat;
    assert!(matches!(chat, Capability::PredictedOnly { why } if why.contains("tool server")));
}
