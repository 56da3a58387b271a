//! Requests to prompts, by small examples: what the engine refuses, what we skip, and the bytes.

use std::collections::BTreeMap;

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

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

/// What a tokenizer with these steps and tokens makes of a completion's prompt.
fn canonical(canonical: &Canonical, prompt: &str) -> String {
    let profile = Profile {
        canonical: canonical.clone(),
        ..Profile::default()
    };
    let body = serde_json::json!({ "prompt": prompt }).to_string();
    match render(&profile, Api::Completions, &body) {
        Ok(Prompt::Text(prompt)) => prompt.text,
        other => panic!("{other:?}"),
    }
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

/// Renders a chat whose template takes parts; gives the exact text, and the items in it.
fn with_media(profile: &Profile, parts: &str, rest: &str) -> (String, Vec<(usize, String)>) {
    let body = format!(
        r#"{{"messages": [{{"role": "user", "content": "first"}},
        {{"role": "user", "content": [{parts}]}}]{rest}}}"#
    );
    match render(profile, Api::ChatCompletions, &body) {
        Ok(Prompt::Text(prompt)) => {
            let items = prompt.media.iter();
            let items = items.map(|item| (item.at, item.identifier.clone()));
            (
                prompt.text[..prompt.exact_bytes].to_owned(),
                items.collect(),
            )
        }
        other => panic!("{other:?}"),
    }
}

fn image(uuid: &str) -> String {
    format!(r#"{{"type": "image_url", "image_url": {{"url": "x"}}, "uuid": {uuid}}}"#)
}

const PARTS: &str = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}\
    {% if p.type == 'image' %}<|vis|><|pad|>{% else %}{{ p.text }}{% endif %}\
    {% endfor %}{% endfor %}<end>";

#[test]
fn media_are_found_by_their_placeholders() {
    let mut profile = profile(PARTS);
    let placeholder = ("image".to_owned(), "<|pad|>".to_owned());
    profile.media_placeholders = BTreeMap::from([placeholder]);
    let text = r#"{"type": "text", "text": "a"}"#;
    let (a, b, none) = (image(r#""A""#), image(r#""B""#), image("null"));
    let all = "<user>first<user>a<|vis|><|pad|><|vis|><|pad|><end>";
    let both = vec![(25, "A".to_owned()), (39, "B".to_owned())];
    let (exact, items) = with_media(&profile, &format!("{text}, {a}, {b}"), "");
    assert_eq!((exact.as_str(), items), (all, both));
    // Without a name, the text is known up to the item.
    let (exact, items) = with_media(&profile, &format!("{text}, {a}, {none}"), "");
    assert_eq!(exact, "<user>first<user>a<|vis|><|pad|><|vis|>");
    assert_eq!(items, [(25, "A".to_owned())]);
    // What else decides how an item is processed makes its name another.
    let kwargs = r#", "mm_processor_kwargs": {"x": 1}"#;
    let (exact, items) = with_media(&profile, &format!("{text}, {a}"), kwargs);
    assert_eq!(
        (exact.as_str(), items.len()),
        ("<user>first<user>a<|vis|>", 0)
    );
    // A placeholder that a client wrote: nobody knows which is which.
    let literal = r#"{"type": "text", "text": "b<|pad|>"}"#;
    let (exact, items) = with_media(&profile, &format!("{literal}, {a}"), "");
    assert_eq!((exact.as_str(), items.len()), ("<user>first<user>b", 0));
}

#[test]
fn unknown_placeholders_end_the_exact_text() {
    let mut profile = profile(PARTS);
    let text = r#"{"type": "text", "text": "a"}"#;
    let (exact, items) = with_media(&profile, &format!("{text}, {}", image("null")), "");
    assert_eq!((exact.as_str(), items.len()), ("<user>first<user>a", 0));
    // The client wrote what may be the placeholder.
    profile.canonical.added_tokens = vec![token("<|pad|>")];
    let literal = r#"{"type": "text", "text": "b<|pad|>c"}"#;
    let (exact, _) = with_media(&profile, &format!("{literal}, {}", image("null")), "");
    assert_eq!(exact, "<user>first<user>b");
    // A template that leaves media out: the engine may put them anywhere.
    let without = PARTS
        .replace("<|vis|><|pad|>", "")
        .replace("{{ p.text }}", "t");
    profile.chat_template = Some(without);
    let (exact, _) = with_media(&profile, &format!("{text}, {}", image("null")), "");
    assert_eq!(exact, "");
}

#[test]
fn media_stand_in_front_where_content_is_one_string() {
    let mut profile = profile(CHATML);
    let parts = format!(r#"{{"type": "text", "text": "a"}}, {}"#, image(r#""A""#));
    let start = "<|im_start|>user\nfirst<|im_end|>\n<|im_start|>user\n";
    assert_eq!(with_media(&profile, &parts, "").0, start);
    profile.media_strings = BTreeMap::from([("image".to_owned(), "<img{i}>".to_owned())]);
    assert_eq!(with_media(&profile, &parts, "").0, start);
    profile.media_placeholders = BTreeMap::from([("image".to_owned(), "<img1>".to_owned())]);
    let end = "<|im_end|>\n<|im_start|>assistant\n";
    let (exact, items) = with_media(&profile, &parts, "");
    assert_eq!(exact, format!("{start}<img1>\na{end}"));
    assert_eq!(items, [(start.len(), "A".to_owned())]);
    profile.interleave_mm_strings = true;
    assert_eq!(
        with_media(&profile, &parts, "").0,
        format!("{start}a\n<img1>{end}")
    );
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
fn special_tokens_go_before_completions() {
    let mut profile = profile("x");
    profile.canonical.completions_prefix = "<s>".to_owned();
    let run = |api, body: &str| render(&profile, api, body);
    assert_eq!(run(Api::Completions, r#"{"prompt": "a"}"#), text("<s>a"));
    assert_eq!(
        run(
            Api::Completions,
            r#"{"prompt": "a", "add_special_tokens": false}"#
        ),
        text("a")
    );
    let message = r#""messages": [{"role": "user", "content": "q"}]"#;
    assert_eq!(
        run(Api::ChatCompletions, &format!("{{{message}}}")),
        text("x")
    );
    let with = format!(r#"{{{message}, "add_special_tokens": true}}"#);
    assert_eq!(run(Api::ChatCompletions, &with), text("<s>x"));
}

#[test]
fn text_is_normalised_between_added_tokens() {
    let nfc = Canonical {
        steps: vec![CanonicalStep::Nfc],
        added_tokens: vec![token("<|end|>"), token("<|")],
        ..Canonical::default()
    };
    assert_eq!(canonical(&nfc, "cafe\u{301} x"), "café x");
    assert_eq!(canonical(&nfc, "plain <|end|> text"), "plain <|end|> text");
    // In plain text a stroke joins the sign before it; after a token there is nothing to join.
    assert_eq!(canonical(&nfc, "a >\u{338} b"), "a \u{226f} b");
    assert_eq!(canonical(&nfc, "a <|end|>\u{338} b"), "a <|end|>\u{338} b");
    assert_eq!(
        canonical(&nfc, "\u{1100}\u{1161}\u{11a8} 각\u{11a8} \u{212b}"),
        "각 각\u{11a8} å".replace('å', "Å")
    );
    let prepend = Canonical {
        steps: vec![
            CanonicalStep::Prepend(" ".to_owned()),
            CanonicalStep::Replace {
                from: "\u{2581}".to_owned(),
                to: " ".to_owned(),
            },
        ],
        added_tokens: vec![token("<s>")],
        ..Canonical::default()
    };
    assert_eq!(
        canonical(&prepend, "<s>a\u{2581}b<s><s>c"),
        "<s> a b<s><s> c"
    );
    assert_eq!(canonical(&prepend, "a"), " a");
}

#[test]
fn added_tokens_take_white_space_along() {
    let strips = |lstrip, rstrip, single_word, normalized| Canonical {
        added_tokens: vec![AddedToken {
            content: "<x>".to_owned(),
            lstrip,
            rstrip,
            single_word,
            normalized,
        }],
        ..Canonical::default()
    };
    for normalized in [false, true] {
        assert_eq!(
            canonical(&strips(false, true, false, normalized), "a <x> \n b"),
            "a <x>b"
        );
        assert_eq!(
            canonical(&strips(true, false, false, normalized), "a <x> b <x>"),
            "a<x> b<x>"
        );
        assert_eq!(
            canonical(&strips(true, true, true, normalized), "a<x> b <x> c"),
            "a<x> b<x>c"
        );
        assert_eq!(
            canonical(&strips(false, false, false, normalized), "a <x> b"),
            "a <x> b"
        );
    }
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
