//! Special tokens, and what tokenizers do to text.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

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
