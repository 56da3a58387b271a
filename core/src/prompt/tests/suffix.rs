//! Completions that fill the gap before a `suffix`.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

const BOTH: &str = r#"{"prompt": "def f(", "suffix": "): return 1"}"#;
const FILLED: &str = "<｜fim▁begin｜>def f(<｜fim▁hole｜>): return 1<｜fim▁end｜>";

fn v4() -> Profile {
    Profile {
        renderer: Renderer::DeepseekV4,
        ..Profile::default()
    }
}

#[test]
fn the_gap_stands_between_prompt_and_suffix() {
    let run = |body: &str| render(&v4(), Api::Completions, body);
    assert_eq!(run(BOTH), text(FILLED));
    // Nothing, or null, is no suffix; an empty one is.
    assert_eq!(run(r#"{"prompt": "a"}"#), text("a"));
    assert_eq!(run(r#"{"prompt": "a", "suffix": null}"#), text("a"));
    let empty = run(r#"{"prompt": "a", "suffix": ""}"#);
    assert_eq!(empty, text("<｜fim▁begin｜>a<｜fim▁hole｜><｜fim▁end｜>"));
}

#[test]
fn special_tokens_go_before_the_gap_too() {
    let mut profile = v4();
    profile.canonical.completions_prefix = "<s>".to_owned();
    let run = |body: &str| render(&profile, Api::Completions, body);
    assert_eq!(run(BOTH), text(&format!("<s>{FILLED}")));
}

#[test]
fn what_cannot_be_filled_is_skipped() {
    let run = |profile: &Profile, body: &str| render(profile, Api::Completions, body);
    assert_eq!(run(&Profile::default(), BOTH), Err(Skip::Unsupported));
    for body in [
        r#"{"prompt": [1, 2], "suffix": "b"}"#,
        r#"{"prompt": "a", "suffix": 7}"#,
        r#"{"prompt": "a", "suffix": "b", "echo": true}"#,
    ] {
        assert_eq!(run(&v4(), body), Err(Skip::InvalidRequest), "{body}");
    }
}

#[test]
fn other_interfaces_have_no_suffix() {
    let body = r#"{"input": "a", "suffix": "b"}"#;
    assert_eq!(render(&v4(), Api::Embeddings, body), text("a"));
}
