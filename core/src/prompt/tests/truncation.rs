//! Requests that allow the engine to cut their prompt.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// Kept at the start, a prompt is a prefix of itself; kept at the end, it is another, unless it is
/// short.
#[test]
fn truncated_prompts_are_exact_only_where_they_begin_as_they_are() {
    let long = "long ".repeat(20);
    let run = |api, fields: &str, max_model_len| {
        let profile = Profile {
            max_model_len,
            ..Profile::default()
        };
        let body = format!(r#"{{"prompt": "{long}", "input": "{long}", {fields}}}"#);
        render(&profile, api, &body)
    };
    let whole = || text(&long);
    let left = r#""truncate_prompt_tokens": 7"#;
    let right = r#""truncate_prompt_tokens": 7, "truncation_side": "right""#;
    let enough = r#""truncate_prompt_tokens": 200"#;
    let longest = r#""truncate_prompt_tokens": -1"#;
    assert_eq!(run(Api::Completions, left, 0), Err(Skip::Truncated));
    assert_eq!(run(Api::Completions, right, 0), whole());
    assert_eq!(run(Api::Completions, enough, 0), whole());
    assert_eq!(run(Api::Completions, longest, 0), Err(Skip::Truncated));
    assert_eq!(run(Api::Completions, longest, 50), Err(Skip::Truncated));
    assert_eq!(run(Api::Completions, longest, 500), whole());
    assert_eq!(run(Api::Embeddings, left, 0), whole());
    let to_the_left = r#""truncate_prompt_tokens": 7, "truncation_side": "left""#;
    assert_eq!(run(Api::Embeddings, to_the_left, 0), Err(Skip::Truncated));
    let odd = r#""truncate_prompt_tokens": "7""#;
    assert_eq!(run(Api::Completions, odd, 0), Err(Skip::InvalidRequest));
    let ids = |fields: &str| {
        let body = format!(r#"{{"prompt": [1, 2, 3], {fields}}}"#);
        render(&Profile::default(), Api::Completions, &body)
    };
    let some = |ids: &[u32]| Ok(Prompt::TokenIds(ids.to_vec()));
    assert_eq!(ids(r#""truncate_prompt_tokens": 2"#), some(&[2, 3]));
    assert_eq!(ids(r#""truncate_prompt_tokens": 9"#), some(&[1, 2, 3]));
    let right = r#""truncate_prompt_tokens": 2, "truncation_side": "right""#;
    assert_eq!(ids(right), some(&[1, 2]));
    let responses = |max_model_len| {
        let profile = Profile {
            max_model_len,
            ..profile(CHATML)
        };
        let body = r#"{"input": "x", "truncation": "auto"}"#;
        render(&profile, Api::Responses, body).is_ok()
    };
    assert!(!responses(0) && responses(1000));
}
