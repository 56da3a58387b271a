#[cfg(not(target_arch = "wasm32"))]
use std::time::{Duration, Instant};

#[cfg(not(target_arch = "wasm32"))]
use proptest::prelude::*;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

fn token(content: &str) -> AddedToken {
    AddedToken {
        content: content.to_owned(),
        lstrip: false,
        rstrip: false,
        single_word: false,
        normalized: false,
    }
}

/// Every token tried at every place.
fn naive<'a>(tokens: &'a [AddedToken], text: &str, from: usize) -> Option<(usize, &'a AddedToken)> {
    let mut at = from;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let there = tokens
            .iter()
            .filter(|token| rest.starts_with(token.content.as_bytes()));
        // Of equals the first.
        let longest = there.rev().max_by_key(|token| token.content.len());
        match longest {
            Some(token) if is_whole(text, at, token) => return Some((at, token)),
            Some(token) => at += token.content.len(),
            None => at += 1,
        }
    }
    None
}

fn check(tokens: &[AddedToken], text: &str) {
    let tree = Tokens::new(tokens.to_vec());
    let mut at = 0;
    loop {
        let found = tree.find(text, at);
        let show = |found: Option<(usize, &AddedToken)>| found.map(|(at, t)| (at, t.clone()));
        assert_eq!(
            show(found),
            show(naive(tokens, text, at)),
            "{text:?} from {at}: {tokens:?}"
        );
        let Some((start, token)) = found else { return };
        at = start + token.content.len();
    }
}

#[test]
fn the_longest_of_the_leftmost() {
    let tokens = ["<", "<a", "<abc>", "b", "bc", "\u{2581}\u{2581}", "é"].map(token);
    for text in [
        "",
        "<",
        "<<a<ab<abc<abc>",
        "abcbcb",
        "\u{2581}\u{2581}\u{2581}",
        "\u{2580}é\u{e8}",
    ] {
        check(&tokens, text);
    }
    check(&[], "<a");
    let mut whole = token("a b");
    whole.single_word = true;
    for text in ["a b", "xa b", "a bx", "a ba b", "-a b-", "a b a b"] {
        check(&[whole.clone(), token(" ")], text);
    }
}

#[cfg(not(target_arch = "wasm32"))]
proptest! {
    #[test]
    fn found_as_by_trying_all(
        tokens in prop::collection::vec(("[<>ab\u{2581}é]{1,5}", any::<bool>()), 0..40),
        text in "[<>ab \u{2581}é_]{0,60}",
    ) {
        let tokens: Vec<_> = tokens
            .into_iter()
            .map(|(content, single_word)| AddedToken { single_word, ..token(&content) })
            .collect();
        check(&tokens, &text);
    }
}

/// Thousands of tokens, and a text of nothing but what they begin with.
#[cfg(not(target_arch = "wasm32"))]
#[test]
fn a_text_of_beginnings_takes_no_longer_than_its_length() {
    let tokens = (0..6_000).map(|n| token(&format!("<unused{n}>"))).collect();
    let tokens = Tokens::new(tokens);
    for unit in ["<", "<unused", "<unused5999", "x"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let start = Instant::now();
        assert!(tokens.find(&text, 0).is_none());
        // Some hundredths of that, if not each token is compared (then minutes).
        assert!(start.elapsed() < Duration::from_secs(5), "{unit}");
    }
}
