//! Nothing a client sends makes us panic or answer twice differently.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization;

use super::*;

const TEMPLATES: [&str; 3] = [
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m | tojson }}{% endfor %}{{ tools }}",
    "{% for m in messages %}{% for p in m.content %}{{ p.text | trim }}{{ p }}{% endfor %}{% endfor %}",
    "{{ messages[0].content.split(' ') }}{{ messages | length }}{{ x }}{{ enable_thinking }}",
];

/// Any JSON, with a liking for the keys that matter.
fn json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        proptest::sample::select(vec![
            "role",
            "content",
            "type",
            "text",
            "tool_calls",
            "function",
            "name",
            "arguments",
            "id",
            "messages",
            "tools",
            "prompt",
            "chat_template_kwargs",
            "continue_final_message",
            "add_generation_prompt",
            "reasoning",
            "documents",
            "image_url",
            "parameters",
            "system",
            "instructions",
            "thinking",
            "input",
            "call_id",
            "output",
            "summary",
            "status",
            "input_schema",
            "tool_use_id",
        ])
        .prop_map(str::to_owned),
        ".{0,4}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(vec![
            "user",
            "system",
            "assistant",
            "tool",
            "developer",
            "function",
            "text",
            "{}",
            "auto",
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "output_text",
            "input_text",
            "tool_use",
            "tool_result",
            "custom",
            "incomplete",
        ])
        .prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((key.clone(), inner), 0..6).prop_map(|pairs| Value::Object(Map::from_iter(pairs))),
        ]
    })
}

fn message() -> impl Strategy<Value = Value> {
    let role = proptest::sample::select(vec!["user", "system", "assistant", "tool", "developer"]);
    (role, json(), json()).prop_map(|(role, content, extra)| {
        let mut message = extra.as_object().cloned().unwrap_or_default();
        message.insert("role".to_owned(), role.into());
        message.insert("content".to_owned(), content);
        Value::Object(message)
    })
}

fn body() -> impl Strategy<Value = Value> {
    (vec(message(), 0..4), json(), json(), any::<bool>()).prop_map(
        |(messages, extra, prompt, open)| {
            let mut body = extra.as_object().cloned().unwrap_or_default();
            body.insert("model".to_owned(), "m".into());
            body.insert("max_tokens".to_owned(), 9.into());
            body.insert("input".to_owned(), messages.clone().into());
            body.insert("messages".to_owned(), messages.into());
            body.insert("prompt".to_owned(), prompt);
            if open {
                body.insert("continue_final_message".to_owned(), true.into());
                body.insert("add_generation_prompt".to_owned(), false.into());
            }
            Value::Object(body)
        },
    )
}

fn profiles() -> Vec<CompiledProfile> {
    let canonical = Canonical {
        steps: vec![CanonicalStep::Nfc, CanonicalStep::Prepend(" ".to_owned())],
        added_tokens: ["<|user|>", "<", "é"]
            .map(|content| AddedToken {
                content: content.to_owned(),
                rstrip: true,
                ..AddedToken::default()
            })
            .to_vec(),
        pieces: crate::prompt::Pieces::Whole,
        completions_prefix: "<s>".to_owned(),
    };
    let profile = |template: &str| Profile {
        chat_template: Some(template.to_owned()),
        canonical: canonical.clone(),
        ..Profile::default()
    };
    TEMPLATES
        .iter()
        .map(|template| CompiledProfile::compile(&profile(template)).unwrap())
        .collect()
}

fn nfc_only() -> CompiledProfile {
    let canonical = Canonical {
        steps: vec![CanonicalStep::Nfc],
        ..Canonical::default()
    };
    CompiledProfile::compile(&Profile {
        canonical,
        ..Profile::default()
    })
    .unwrap()
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_skipped(bytes in vec(any::<u8>(), 0..200)) {
        let _ = parse_request(Api::ChatCompletions, &bytes);
    }

    #[test]
    fn any_json_renders_or_is_skipped_and_always_the_same(body in body(), any in json()) {
        for compiled in &profiles() {
            for (api, json) in [
                (Api::ChatCompletions, &body),
                (Api::Completions, &body),
                (Api::Responses, &body),
                (Api::Messages, &body),
                (Api::Embeddings, &body),
                (Api::Pooling, &body),
                (Api::Tokenize, &body),
                (Api::ChatCompletions, &any),
            ] {
                let bytes = json.to_string().into_bytes();
                let run = || parse_request(api, &bytes).and_then(|r| compiled.render(&r, 0));
                let prompt = run();
                prop_assert_eq!(&prompt, &run());
                if let Ok(Prompt::Text(prompt)) = prompt {
                    prop_assert!(prompt.text.is_char_boundary(prompt.exact_bytes));
                    let ends = prompt.media.iter().map(|item| item.at + item.len);
                    prop_assert!(ends.max().unwrap_or(0) <= prompt.exact_bytes);
                }
            }
        }
    }

    #[test]
    fn normalising_by_pieces_is_normalising(text in "([a-z <>]|\\PC|[\u{300}-\u{36f}]|[\u{1100}-\u{1200}]|[\u{ac00}-\u{ac20}]|[\u{900}-\u{9ff}]|[é-ü]){0,40}") {
        let compiled = nfc_only();
        let body = serde_json::json!({ "prompt": text }).to_string();
        let request = parse_request(Api::Completions, body.as_bytes()).unwrap();
        let whole: String = text.nfc().collect();
        prop_assert_eq!(compiled.render(&request, 0), Ok(Prompt::Text(whole.into())));
    }
}
