//! Folders of Hugging Face's cache.

use super::*;

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
