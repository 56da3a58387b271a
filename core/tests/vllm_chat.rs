//! Odd chat bodies against what vLLM 0.32's own code makes of them (`tests/vectors/prompt-chat`).

#![cfg(not(target_arch = "wasm32"))]
// Helpers of tests fail by panicking, too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use prefix_picker_core::prompt::{Api, CompiledProfile, Profile, Prompt, Rules, parse_request};
use serde_json::Value;

fn profiles(head: &Value, case: &Value) -> CompiledProfile {
    let map = |value: &Value| -> BTreeMap<String, Value> {
        value.as_object().unwrap().clone().into_iter().collect()
    };
    let special = map(&head["special_tokens"]);
    let template = &head["templates"][case["template"].as_str().unwrap()];
    let profile = Profile {
        chat_template: template.as_str().map(str::to_owned),
        special_tokens: special
            .into_iter()
            .map(|(k, v)| (k, v.as_str().unwrap().to_owned()))
            .collect(),
        default_chat_template_kwargs: map(&case["server_kwargs"]),
        exclude_tools_when_tool_choice_none: case["hide_tools"].as_bool().unwrap(),
        // The vectors were made with transformers 5.24.
        rules: Rules {
            transformers_normalises: true,
            ..Rules::of_version("0.32.0")
        },
        ..Profile::default()
    };
    CompiledProfile::compile(&profile).unwrap()
}

#[test]
fn odd_bodies_render_as_in_vllm() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/prompt-chat/vllm-0.32.jsonl");
    let lines = fs::read_to_string(file).unwrap();
    let mut lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    let (mut equal, mut lenient, mut refused, mut wrong) = (0, 0, 0, Vec::new());
    for case in lines {
        let compiled = profiles(&head, &case);
        let body = case["body"].as_str().unwrap();
        let ours = parse_request(Api::ChatCompletions, body.as_bytes())
            .and_then(|request| compiled.render(&request, 0));
        let ours = match ours {
            // No placeholder is known: exact up to the first item at most.
            Ok(Prompt::Text(prompt)) if prompt.exact_bytes < prompt.text.len() => {
                "skip:multimodal".to_owned()
            }
            Ok(Prompt::Text(prompt)) => prompt.text,
            Ok(other) => format!("{other:?}"),
            Err(skip) => format!("skip:{skip}"),
        };
        match case["expect"].as_str() {
            Some(expected) if expected == ours => equal += 1,
            // The vectors stop at the first media; what comes after it may be refused.
            Some("skip:multimodal") if ours == "skip:invalid_request" => refused += 1,
            Some(expected) => wrong.push(format!("{body}\n  vLLM {expected:?}\n  ours {ours:?}")),
            // vLLM answers 400: whatever we do is harmless.
            None if ours.starts_with("skip:") => refused += 1,
            None => lenient += 1,
        }
    }
    println!("{equal} equal, {refused} refused by both, {lenient} only by vLLM");
    for line in wrong.iter().take(12) {
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{} differ from vLLM", wrong.len());
    assert!(equal > 500);
}
