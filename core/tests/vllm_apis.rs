//! Odd bodies for the interfaces beside chat and completions, against what vLLM 0.32 itself makes of
//! them (`tests/vectors/prompt-apis`).

#![cfg(not(target_arch = "wasm32"))]
// Helpers of tests fail by panicking, too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use prefix_picker_core::prompt::{
    Api, Canonical, CompiledProfile, Profile, Prompt, Rules, parse_request,
};
use serde_json::Value;

/// Prompts of one request that are compared.
const PROMPTS_MAX: usize = 16;

fn profile(head: &Value, case: &Value) -> CompiledProfile {
    let map = |value: &Value| -> BTreeMap<String, Value> {
        value.as_object().unwrap().clone().into_iter().collect()
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let template = &head["templates"][case["template"].as_str().unwrap()];
    let special = map(&head["special_tokens"]);
    let profile = Profile {
        chat_template: Some(text(template)),
        special_tokens: special.iter().map(|(k, v)| (k.clone(), text(v))).collect(),
        default_chat_template_kwargs: map(&case["server_kwargs"]),
        exclude_tools_when_tool_choice_none: case["hide_tools"].as_bool().unwrap(),
        canonical: Canonical {
            completions_prefix: text(&head["bos"]),
            ..Canonical::default()
        },
        rules: Rules::of_version("0.32.0"),
        ..Profile::default()
    };
    CompiledProfile::compile(&profile).unwrap()
}

fn api(name: &str) -> Api {
    let path = match name {
        "responses" => "/v1/responses",
        "messages" => "/v1/messages",
        "embeddings" => "/v1/embeddings",
        "pooling" => "/pooling",
        "classify" => "/classify",
        "tokenize" => "/tokenize",
        other => panic!("{other}"),
    };
    Api::of_path(path).unwrap()
}

/// As the vectors write it: a list of texts and lists of ids, or why there is none.
fn ours(case: &Value, compiled: &CompiledProfile) -> Value {
    let body = case["body"].as_str().unwrap().as_bytes();
    let request = match parse_request(api(case["api"].as_str().unwrap()), body) {
        Ok(request) => request,
        Err(skip) => return Value::from(format!("skip:{skip}")),
    };
    let mut prompts = Vec::new();
    for prompt in compiled.render_all(&request, 0, PROMPTS_MAX) {
        match prompt {
            Ok(Prompt::Text(prompt)) => prompts.push(Value::from(prompt.text)),
            Ok(Prompt::TokenIds(ids)) => prompts.push(Value::from(ids)),
            Err(skip) => return Value::from(format!("skip:{skip}")),
        }
    }
    Value::from(prompts)
}

fn compare(file: &Path) {
    let lines = fs::read_to_string(file).unwrap();
    let mut lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    let (mut equal, mut refused, mut lenient, mut wrong) = (0, 0, Vec::new(), Vec::new());
    for case in lines {
        let ours = ours(&case, &profile(&head, &case));
        let expected = &case["expect"];
        let (body, template) = (&case["body"], &case["template"]);
        let shown = || format!("{template} {body}\n  vLLM {expected}\n  ours {ours}");
        if expected.is_null() && ours.is_string() {
            refused += 1;
        } else if expected.is_null() {
            // vLLM answers 400: whatever we do is harmless.
            lenient.push(shown());
        } else if ours == *expected {
            equal += 1;
        } else {
            wrong.push(shown());
        }
    }
    let name = file.file_name().unwrap().to_string_lossy();
    let both = lenient.len();
    println!("{name}: {equal} equal, {refused} refused by both, {both} only by vLLM");
    let shown = std::env::var("SHOW_LENIENT").is_ok();
    for line in wrong
        .iter()
        .take(12)
        .chain(lenient.iter().filter(|_| shown))
    {
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{name}: {} differ from vLLM", wrong.len());
    assert!(equal > 100, "{name}");
}

/// Where the vectors are: `PROMPT_VECTORS` names another folder, for fresh ones.
fn file(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/prompt-apis");
    let folder = std::env::var_os("PROMPT_VECTORS").map_or(own, PathBuf::from);
    folder.join(name)
}

#[test]
fn responses_are_as_in_vllm() {
    compare(&file("responses.jsonl"));
}

#[test]
fn messages_are_as_in_vllm() {
    compare(&file("messages.jsonl"));
}

#[test]
fn pooling_is_as_in_vllm() {
    compare(&file("pooling.jsonl"));
}

#[test]
fn tokenize_is_as_in_vllm() {
    compare(&file("tokenize.jsonl"));
}
