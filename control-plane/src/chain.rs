//! An error and its causes on one line, each thing said once.
//!
//! Libraries' errors often repeat their cause in their own text, and name a place that was named before.

use std::error::Error;

/// No chain is longer.
const CAUSES_MAX: usize = 16;

/// An error and its causes, in order.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source()).take(CAUSES_MAX)
}

/// The chain, from what failed to what is behind it, with `: ` between.
#[must_use]
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said = String::new();
    for cause in causes(error) {
        let text = cause.to_string();
        let text = text.trim();
        if text.is_empty() || ends_with(&said, text) {
            continue;
        }
        if said.is_empty() {
            text.clone_into(&mut said);
            continue;
        }
        said.push_str(": ");
        said.push_str(without_known_place(&said, text));
    }
    said
}

/// Was it the last to be said? A word of its own, not the end of one.
fn ends_with(said: &str, text: &str) -> bool {
    said.strip_suffix(text)
        .is_some_and(|before| !before.ends_with(char::is_alphanumeric))
}

/// `/a/b: broken` after `cannot use /a/b` is `broken`.
fn without_known_place<'a>(said: &str, text: &'a str) -> &'a str {
    let Some((place, rest)) = text.split_once(": ") else {
        return text;
    };
    let is_word = |word: &str| word.trim_end_matches([':', ',']) == place;
    if !place.is_empty() && said.split_whitespace().any(is_word) {
        rest
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open {0}: {1}")]
    struct Repeats(&'static str, #[source] std::io::Error);

    #[test]
    fn each_thing_is_said_once() {
        let io = || std::io::Error::other("it is gone");
        for (error, expected) in [
            (anyhow::anyhow!("alone"), "alone"),
            (
                anyhow::Error::new(io()).context("cannot read x"),
                "cannot read x: it is gone",
            ),
            (
                anyhow::Error::new(Repeats("x", io())),
                "cannot open x: it is gone",
            ),
            (
                anyhow::Error::new(Repeats("x", io())).context("cannot open x: it is gone"),
                "cannot open x: it is gone",
            ),
            (
                anyhow::anyhow!("/a/b: no tokenizer in it")
                    .context("model_dir /a/b cannot be used"),
                "model_dir /a/b cannot be used: no tokenizer in it",
            ),
            (
                anyhow::anyhow!("/a: no tokenizer in it").context("model_dir /a/b cannot be used"),
                "model_dir /a/b cannot be used: /a: no tokenizer in it",
            ),
            (
                anyhow::anyhow!("rest").context("the interest"),
                "the interest: rest",
            ),
            (anyhow::anyhow!("").context("only this"), "only this"),
        ] {
            assert_eq!(chain(error.as_ref()), expected);
        }
        let unusable = crate::cli::Unusable::from(anyhow::anyhow!("b").context("a"));
        assert_eq!(chain(&unusable), "a: b");
    }
}
