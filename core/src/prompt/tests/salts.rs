//! Which values of `cache_salt` the engine takes.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// vLLM: "Parameter 'cache_salt' must be a non-empty string if provided", by every interface that has it.
#[test]
fn a_salt_is_a_text_that_is_not_empty() {
    let messages = r#""messages": [{"role": "user", "content": "a"}], "max_tokens": 1"#;
    let cases = [
        (Api::ChatCompletions, messages),
        (Api::Completions, r#""prompt": "a""#),
        (Api::Completions, r#""prompt": [1, 2]"#),
        (Api::Responses, r#""input": "a""#),
        (Api::Messages, messages),
        (Api::Embeddings, r#""input": "a""#),
        (Api::Pooling, messages),
    ];
    let profile = profile(CHATML);
    let with = |api, request: &str, salt: &str| {
        let body = format!(r#"{{"model": "m", {request}, "cache_salt": {salt}}}"#);
        render(&profile, api, &body)
    };
    for (api, request) in cases {
        for salt in [r#""""#, "5", "0", "true", "false", "[]", r#"["s"]"#, "{}"] {
            let refused = with(api, request, salt);
            assert_eq!(refused, Err(Skip::InvalidRequest), "{api:?} {salt}");
        }
        for salt in ["null", r#""s""#, r#"" ""#] {
            let taken = with(api, request, salt);
            assert!(taken.is_ok(), "{api:?} {salt}: {taken:?}");
        }
    }
    // It has no such field, and others are ignored.
    assert!(with(Api::Tokenize, messages, "5").is_ok());
}
