//! Real tokenizers, where they are.

use super::*;
use crate::events::tests::golden::vector;

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
        let ModelFiles { profile, vocab, .. } = load_model_dir(&folder.0).unwrap();
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
    let ModelFiles { profile, vocab, .. } = load_model_dir(&dir).unwrap();
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
