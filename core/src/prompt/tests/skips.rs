//! What is no request, and what is skipped.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

#[test]
fn what_is_no_request_is_skipped() {
    let surrogate = r#"{"prompt": "\ud800"}"#;
    for body in ["", "{", "nonsense", "{\"a\": NaN}", surrogate, "{} x"] {
        assert_eq!(completion(body), Err(Skip::InvalidJson), "{body:.40}");
    }
    assert_eq!(completion(&"[".repeat(100_000)), Err(Skip::TooComplex));
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

#[test]
fn a_template_has_no_more_work_however_large_the_body_is() {
    let profile = profile("{% for c in messages[0].role %}{{ c }}{% endfor %}");
    let chat = |size: usize| {
        let role = "x".repeat(size);
        let body = format!(r#"{{"messages": [{{"role": "{role}", "content": ""}}]}}"#);
        render(&profile, Api::ChatCompletions, &body).map(drop)
    };
    assert_eq!(chat(200_000), Ok(()));
    assert_eq!(chat(2_000_000), Err(Skip::TemplateLimit));
}

#[test]
fn all_prompts_of_a_request_share_its_work() {
    let profile = profile("{% for c in messages[0].role %}{{ c }}{% endfor %}");
    let role = "x".repeat(100_000);
    let chat = format!(r#"[{{"role": "{role}", "content": ""}}]"#);
    let all = |chats: usize| {
        let body = format!(
            r#"{{"messages": [{}]}}"#,
            vec![chat.as_str(); chats].join(",")
        );
        let request = parse_request(Api::Embeddings, body.as_bytes()).unwrap();
        let compiled = CompiledProfile::compile(&profile).unwrap();
        compiled.render_all(&request, 0, 11)
    };
    assert!(all(2).iter().all(Result::is_ok));
    assert_eq!(all(11).last(), Some(&Err(Skip::TemplateLimit)));
}

#[test]
fn bodies_of_very_many_values_are_not_read() {
    let profile = profile("x");
    let chat = |messages: usize| {
        let message = r#"{"role": "user", "content": "a"}"#;
        format!(r#"{{"messages": [{}]}}"#, vec![message; messages].join(","))
    };
    let run = |body: &str| render(&profile, Api::ChatCompletions, body);
    assert!(run(&chat(10_000)).is_ok());
    assert_eq!(run(&chat(12_000)), Err(Skip::TooComplex));
    // JSON text within strings counts with the rest.
    let call = |arguments: &str| {
        let arguments = serde_json::to_string(arguments).unwrap();
        format!(
            r#"{{"messages": [{{"role": "assistant", "tool_calls": [{{"type": "function",
            "function": {{"name": "f", "arguments": {arguments}}}}}]}}]}}"#
        )
    };
    let many = |lists: usize| format!(r#"{{"a": [{}]}}"#, vec!["[]"; lists].join(","));
    assert!(run(&call(&many(10_000))).is_ok());
    assert_eq!(run(&call(&many(20_000))), Err(Skip::TooComplex));
    let long = format!(r#"{{"prompt": "{}"}}"#, "a, b [c] {d} ".repeat(450_000));
    assert!(render(&profile, Api::Completions, &long).is_ok());
    let longer = format!(r#"{{"prompt": "{}"}}"#, "a".repeat(6 << 20));
    assert_eq!(
        render(&profile, Api::Completions, &longer),
        Err(Skip::TooComplex)
    );
}

#[test]
fn very_much_text_that_a_normaliser_must_look_at_is_left() {
    let nfc = Profile {
        canonical: Canonical {
            steps: vec![CanonicalStep::Nfc],
            ..Canonical::default()
        },
        ..Profile::default()
    };
    let run = |text: &str| {
        let body = format!(r#"{{"prompt": "{text}"}}"#);
        render(&nfc, Api::Completions, &body).map(drop)
    };
    assert_eq!(run(&"cafe\u{301}".repeat(100_000)), Ok(()));
    assert_eq!(run(&"cafe\u{301}".repeat(1_000_000)), Err(Skip::TooComplex));
    assert_eq!(run(&"天气很好".repeat(500_000)), Ok(()));
}

#[test]
fn arguments_that_only_python_reads_are_not_told() {
    let profile = profile("{{ messages[0].tool_calls[0].function.arguments|tojson }}");
    let run = |arguments: &str| {
        let arguments = serde_json::to_string(arguments).unwrap();
        let body = format!(
            r#"{{"messages": [{{"role": "assistant", "tool_calls": [{{"type": "function",
            "function": {{"name": "f", "arguments": {arguments}}}}}]}}]}}"#
        );
        render(&profile, Api::ChatCompletions, &body)
    };
    let big = r#"{"a": 115792089237316195423570985008687907853}"#;
    assert_eq!(run(big), text(big));
    assert_eq!(run(r#"{"a": -0}"#), text(r#"{"a": 0}"#));
    assert_eq!(run("{broken"), text("{}"));
    for odd in [
        r#"{"a": NaN}"#,
        r#"{"a": -Infinity}"#,
        r#"{"a": 1e400}"#,
        r#"{"a": "\ud800"}"#,
        &format!(r#"{{"a": {}}}"#, "9".repeat(60)),
    ] {
        assert_eq!(run(odd), Err(Skip::Unsupported), "{odd}");
    }
    let deep = format!(r#"{{"a": {}1{}}}"#, "[".repeat(300), "]".repeat(300));
    assert_eq!(run(&deep), Err(Skip::TooComplex));
}
