//! What is no request, and what is skipped.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

#[test]
fn what_is_no_request_is_skipped() {
    let deep = "[".repeat(100_000);
    let surrogate = r#"{"prompt": "\ud800"}"#;
    for body in [
        "",
        "{",
        "nonsense",
        "{\"a\": NaN}",
        &deep,
        surrogate,
        "{} x",
    ] {
        assert_eq!(completion(body), Err(Skip::InvalidJson), "{body:.40}");
    }
    assert!(parse_request(Api::Completions, b"{\"prompt\": \"\xff\"}").is_err());
    for body in [
        "[]",
        "5",
        "null",
        "\"x\"",
        "{}",
        r#"{"prompt": []}"#,
        r#"{"prompt": [[]]}"#,
        r#"{"prompt": [1, "x"]}"#,
        r#"{"prompt": [-1]}"#,
        r#"{"prompt": {}}"#,
        r#"{"prompt": [null]}"#,
    ] {
        assert_eq!(completion(body), Err(Skip::InvalidRequest), "{body}");
    }
}

#[test]
fn every_skip_has_its_reason() {
    let user = |rest: &str| {
        chat(&format!(
            r#"{{"messages": [{{"role": "user", "content": "x"}}]{rest}}}"#
        ))
    };
    for (rest, skip) in [
        (r#", "truncate_prompt_tokens": 5"#, Skip::Truncated),
        (r#", "chat_template": "x""#, Skip::RequestTemplate),
        (
            r#", "chat_template_kwargs": {"chat_template": "x"}"#,
            Skip::RequestTemplate,
        ),
        (
            r#", "chat_template_kwargs": {"tokenize": true}"#,
            Skip::InvalidRequest,
        ),
        (
            r#", "chat_template_kwargs": {"tools": []}"#,
            Skip::Unsupported,
        ),
        (r#", "tools": []"#, Skip::InvalidRequest),
        (r#", "continue_final_message": true"#, Skip::InvalidRequest),
    ] {
        assert_eq!(user(rest), Err(skip), "{rest}");
    }
    let part = |part: &str| {
        chat(&format!(
            r#"{{"messages": [{{"role": "user", "content": [{part}]}}]}}"#
        ))
    };
    assert_eq!(
        part(r#"{"type": "prompt_embeds", "data": "x"}"#),
        Err(Skip::PromptEmbeds)
    );
    assert_eq!(chat(r#"{"messages": []}"#), Err(Skip::InvalidRequest));
    assert_eq!(
        completion(r#"{"prompt": "x", "prompt_embeds": "y"}"#),
        Err(Skip::PromptEmbeds)
    );
    assert_eq!(
        completion(r#"{"prompt": "x", "suffix": "y"}"#),
        Err(Skip::Unsupported)
    );
    let body = r#"{"messages": [{"role": "user", "content": "x"}], "prompt": "x"}"#;
    assert_eq!(
        render(&Profile::default(), Api::ChatCompletions, body),
        Err(Skip::NoTemplate)
    );
    let refusing = profile("{{ raise_exception('no') }}");
    assert_eq!(
        render(&refusing, Api::ChatCompletions, body),
        Err(Skip::TemplateError)
    );
    let why = Capability::PredictedOnly {
        why: "code".to_owned(),
    };
    let predicted = Profile {
        chat: why.clone(),
        completions: why,
        ..profile(CHATML)
    };
    assert_eq!(
        render(&predicted, Api::ChatCompletions, body),
        Err(Skip::PredictedOnly)
    );
    assert_eq!(
        render(&predicted, Api::Completions, body),
        Err(Skip::PredictedOnly)
    );
    let stored = r#"{"input": "x", "previous_response_id": "resp_1"}"#;
    let parsed = parse_request(Api::Responses, stored.as_bytes()).unwrap();
    assert_eq!(parsed.previous_response_id.as_deref(), Some("resp_1"));
    let rendered = render(&profile(CHATML), Api::Responses, stored);
    assert_eq!(rendered, Err(Skip::StoredHistory));
    let mut names: Vec<&str> = Skip::ALL.iter().map(|skip| skip.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Skip::ALL.len());
}
