//! Requests to prompts, by small examples: what the engine refuses, what we skip, and the bytes.

use std::collections::BTreeMap;

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

mod canonical;
mod media;
mod salts;
mod skips;
mod suffix;
mod truncation;

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn profile(template: &str) -> Profile {
    Profile {
        chat_template: Some(template.to_owned()),
        ..Profile::default()
    }
}

fn render(profile: &Profile, api: Api, body: &str) -> Result<Prompt, Skip> {
    let compiled = CompiledProfile::compile(profile).unwrap();
    compiled.render(&parse_request(api, body.as_bytes())?, 0)
}

/// Renders a chat with the ChatML template.
fn chat(body: &str) -> Result<Prompt, Skip> {
    render(&profile(CHATML), Api::ChatCompletions, body)
}

fn completion(body: &str) -> Result<Prompt, Skip> {
    render(&Profile::default(), Api::Completions, body)
}

fn text(text: &str) -> Result<Prompt, Skip> {
    Ok(Prompt::Text(text.to_owned().into()))
}

fn token(content: &str) -> AddedToken {
    AddedToken {
        content: content.to_owned(),
        ..AddedToken::default()
    }
}

#[test]
fn paths_name_the_interface() {
    assert_eq!(
        Api::of_path("/v1/chat/completions"),
        Some(Api::ChatCompletions)
    );
    assert_eq!(
        Api::of_path("/v1/chat/completions?x=/v1/completions"),
        Some(Api::ChatCompletions)
    );
    assert_eq!(Api::of_path("/v1/completions#a"), Some(Api::Completions));
    for (path, api) in [
        ("/v1/responses", Api::Responses),
        ("/v1/messages?beta=true", Api::Messages),
        ("/v1/embeddings", Api::Embeddings),
        ("/pooling", Api::Pooling),
        ("/classify", Api::Pooling),
        ("/tokenize", Api::Tokenize),
    ] {
        assert_eq!(Api::of_path(path), Some(api), "{path}");
    }
    for path in [
        "",
        "?",
        "/v1/completions/",
        "/v1/messages/count_tokens",
        "/v1/responses/resp_1/cancel",
        "/v1/tokenize",
        "v1/completions",
        "/V1/completions",
    ] {
        assert_eq!(Api::of_path(path), None, "{path}");
    }
}

#[test]
fn a_profile_keeps_its_hash() {
    let mut profile = profile(CHATML);
    profile
        .special_tokens
        .insert("bos_token".to_owned(), "<s>".to_owned());
    profile.canonical.steps = vec![CanonicalStep::Nfc, CanonicalStep::Prepend(" ".to_owned())];
    let json = serde_json::to_string(&profile).unwrap();
    let read: Profile = serde_json::from_str(&json).unwrap();
    assert_eq!(read, profile);
    assert_eq!(read.hash(), profile.hash());
    // Frozen: the hash is part of every block hash, and both sides must agree on it.
    assert_eq!(
        Profile::default().hash(),
        DEFAULT_HASH,
        "{:#x}",
        Profile::default().hash()
    );
    for change in [
        |p: &mut Profile| p.utc_offset_minutes = 60,
        |p: &mut Profile| p.canonical.completions_prefix = "<s>".to_owned(),
        |p: &mut Profile| {
            p.chat = Capability::PredictedOnly {
                why: "x".to_owned(),
            }
        },
        |p: &mut Profile| {
            drop(
                p.special_tokens
                    .insert("eos_token".to_owned(), String::new()),
            )
        },
    ] {
        let mut changed = profile.clone();
        change(&mut changed);
        assert_ne!(changed.hash(), profile.hash());
    }
    // A gateway reads profiles of an older or newer control plane.
    let read: Profile = serde_json::from_str(r#"{"model": "m", "new_field": 1}"#).unwrap();
    assert_eq!(
        read,
        Profile {
            model: "m".to_owned(),
            ..Profile::default()
        }
    );
}

const DEFAULT_HASH: u64 = 0x1406_5a10_be73_a6a0;

#[test]
fn facts_are_there_without_rendering() {
    let body =
        br#"{"model": "m", "cache_salt": "s", "stream": true, "session_id": "x", "messages": 1}"#;
    let request = parse_request(Api::ChatCompletions, body).unwrap();
    assert_eq!(request.model.as_deref(), Some("m"));
    assert_eq!(request.cache_salt.as_deref(), Some("s"));
    assert_eq!(request.session_id.as_deref(), Some("x"));
    assert!(request.stream);
    let body = br#"{"model": 5, "cache_salt": "", "stream": null}"#;
    let request = parse_request(Api::Completions, body).unwrap();
    assert_eq!(
        (request.model, request.cache_salt, request.stream),
        (None, None, false)
    );
}

#[test]
fn a_chat_becomes_its_text() {
    let body = r#"{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content":
        [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}]}"#;
    let expected = "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nb\nc<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(chat(body), text(expected));
}

#[test]
fn the_final_message_can_be_left_open() {
    let body = |content: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "{content}"}}],
            "add_generation_prompt": false, "continue_final_message": true}}"#
        )
    };
    let open = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(chat(&body("so ")), text(&format!("{open}so ")));
    // A template that trims takes the end of the mark along, and then white space goes too.
    let trimming = profile(&CHATML.replace("m.content", "m.content | trim"));
    let rendered = render(&trimming, Api::ChatCompletions, &body(" so "));
    assert_eq!(rendered, text(&format!("{open}so")));
    let dropping = profile("{% if false %}content{% endif %}nothing");
    let rendered = render(&dropping, Api::ChatCompletions, &body("so"));
    assert_eq!(rendered, Err(Skip::InvalidRequest));
}

#[test]
fn tools_choose_the_template() {
    let mut profile = profile("plain");
    profile
        .named_templates
        .insert("tool_use".to_owned(), "{{ tools | tojson }}".to_owned());
    let body = |rest: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "q"}}], "tools":
            [{{"function": {{"zz": 1, "parameters": {{"b": 1, "a": 2}}, "name": "f"}}}}]{rest}}}"#
        )
    };
    let dump = r#"[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"b": 1, "a": 2}}}]"#;
    assert_eq!(
        render(&profile, Api::ChatCompletions, &body("")),
        text(dump)
    );
    let unused = body(r#", "tool_choice": "none""#);
    assert_eq!(render(&profile, Api::ChatCompletions, &unused), text(dump));
    profile.exclude_tools_when_tool_choice_none = true;
    assert_eq!(
        render(&profile, Api::ChatCompletions, &unused),
        text("plain")
    );
}

#[test]
fn the_first_of_several_prompts_decides() {
    assert_eq!(completion(r#"{"prompt": "a", "echo": true}"#), text("a"));
    assert_eq!(completion(r#"{"prompt": ["a", "b"]}"#), text("a"));
    let ids = |ids: &[u32]| Ok(Prompt::TokenIds(ids.to_vec()));
    assert_eq!(
        completion(r#"{"prompt": [1, 2, 4294967295]}"#),
        ids(&[1, 2, u32::MAX])
    );
    assert_eq!(completion(r#"{"prompt": [[3], [4]]}"#), ids(&[3]));
}

#[test]
fn all_prompts_of_a_request_can_be_had() {
    let compiled = CompiledProfile::compile(&profile(CHATML)).unwrap();
    let all = |api, body: &str, max| {
        compiled.render_all(&parse_request(api, body.as_bytes()).unwrap(), 0, max)
    };
    let texts = r#"{"prompt": ["a", "b", "c"], "input": ["a", "b", "c"]}"#;
    assert_eq!(all(Api::Completions, texts, 9), ["a", "b", "c"].map(text));
    assert_eq!(all(Api::Embeddings, texts, 2), ["a", "b"].map(text));
    let broken = r#"{"prompt": ["a", 1]}"#;
    assert_eq!(
        all(Api::Completions, broken, 9),
        [Err(Skip::InvalidRequest)]
    );
    assert_eq!(all(Api::Completions, broken, 1), ["a"].map(text));
    let none = r#"{"prompt": []}"#;
    assert_eq!(all(Api::Completions, none, 9), [Err(Skip::InvalidRequest)]);
    let chats =
        r#"{"input": [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]]}"#;
    let chat = |content: &str| text(&format!("<|im_start|>user\n{content}<|im_end|>\n"));
    assert_eq!(all(Api::Embeddings, chats, 9), [chat("a"), chat("b")]);
}

#[test]
fn forwarded_ids_stand_for_messages_without_media() {
    let forwarded = |part: &str, version: &str| {
        let profile = Profile {
            rules: Rules::of_version(version),
            ..profile(CHATML)
        };
        let body = format!(
            r#"{{"messages": [{{"role": "user", "content": [{part}]}}],
            "kv_transfer_params": {{"prompt_token_ids": [5, 6]}}}}"#
        );
        render(&profile, Api::ChatCompletions, &body)
    };
    let part = r#"{"type": "text", "text": "x"}"#;
    let ids = Ok(Prompt::TokenIds(vec![5, 6]));
    assert_eq!(forwarded(part, "0.32.0"), ids);
    assert!(matches!(forwarded(part, "0.26.0"), Ok(Prompt::Text(_))));
    let image = r#"{"type": "image_url", "image_url": {"url": "x"}}"#;
    assert_ne!(forwarded(image, "0.32.0"), ids);
}

#[test]
fn a_trusted_template_of_the_request_is_used() {
    let body = |template: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "q"}}], "chat_template": "{template}"}}"#
        )
    };
    let mut profile = profile("server");
    let run =
        |profile: &Profile, template: &str| render(profile, Api::ChatCompletions, &body(template));
    assert_eq!(run(&profile, "own"), Err(Skip::RequestTemplate));
    profile.trust_request_chat_template = true;
    assert_eq!(
        run(&profile, "own {{ messages[0].content }}"),
        text("own q")
    );
    assert_eq!(run(&profile, ""), text("server"));
    assert_eq!(run(&profile, "{% if %}"), Err(Skip::TemplateError));
    assert_eq!(run(&profile, &"x".repeat(70_000)), Err(Skip::TemplateLimit));
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
    assert_eq!(run(&profile, endless), Err(Skip::TemplateLimit));
}

#[test]
fn older_engines_do_some_things_otherwise() {
    let dump =
        "{{ messages | tojson }}{{ tools | tojson }}{{ enable_thinking }}{{ reasoning_effort }}";
    let run = |version: &str, fields: &str| {
        let profile = Profile {
            rules: Rules::of_version(version),
            reasoning_effort_map: BTreeMap::from([("max".to_owned(), "high".into())]),
            ..profile(dump)
        };
        let body = format!(
            r#"{{"messages": [{{"role": "system", "content": "x-anthropic-billing-header a"}}]{fields}}}"#
        );
        match render(&profile, Api::ChatCompletions, &body) {
            Ok(Prompt::Text(prompt)) => prompt.text,
            other => panic!("{other:?}"),
        }
    };
    assert!(run("0.31.0", "").contains("billing") && !run("v0.32.1", "").contains("billing"));
    let tools = r#", "tools": [{"function": {"name": "f", "zz": 1, "strict": null}, "yy": 2}]"#;
    let unknown = run("0.26.0", tools);
    assert!(
        unknown.contains(r#""parameters": null, "zz": 1}, "yy": 2}"#),
        "{unknown}"
    );
    assert!(run("0.22.0", tools).contains(r#""zz": 1, "strict": null}"#));
    assert!(!run("0.27.0", tools).contains("zz"));
    let effort = r#", "reasoning_effort": "max""#;
    assert!(run("0.21.0", effort).ends_with("nullmax"));
    assert!(run("0.32.0", effort).ends_with("Truemax"));
    assert!(run("0.33.0", effort).ends_with("Truehigh"));
    assert!(run("nonsense", effort).ends_with("Truehigh"));
}

#[test]
fn a_broken_template_is_named() {
    let mut broken = profile("{{ a }}");
    broken.named_templates = BTreeMap::from([("tool_use".to_owned(), "{% if %}".to_owned())]);
    let ProfileError::Template { name, .. } = CompiledProfile::compile(&broken).unwrap_err();
    assert_eq!(name, "tool_use");
}

/// Each look-up of a variable goes through all of them: 60,000 once took ten seconds.
#[test]
fn template_arguments_are_few() {
    let body = |n: usize| {
        let kwargs: Vec<String> = (0..n).map(|i| format!("\"k{i}\":{i}")).collect();
        let kwargs = kwargs.join(",");
        format!(
            r#"{{"messages":[{{"role":"user","content":"x"}}],"chat_template_kwargs":{{{kwargs}}}}}"#
        )
    };
    assert!(chat(&body(256)).is_ok());
    assert_eq!(chat(&body(257)), Err(Skip::TemplateLimit));
    assert_eq!(chat(&body(60_000)), Err(Skip::TemplateLimit));
}
