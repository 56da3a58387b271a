//! What tokenizers do to text.

use super::*;

/// Why texts of this tokenizer are not exact.
fn text_obstacle(tokenizer: &str) -> String {
    let profile = profile(&[("tokenizer.json", tokenizer), ("chat_template.jinja", "x")]);
    assert_eq!(profile.chat, profile.completions);
    assert_eq!(profile.token_ids, Capability::Exact);
    why(&profile.chat).to_owned()
}

#[test]
fn unknown_parts_make_texts_predicted_only() {
    let cases = [
        (
            json!({"normalizer": {"type": "NFX"}}),
            "the normaliser NFX is not known",
        ),
        (
            json!({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Precompiled", "precompiled_charsmap": "AA=="}]}}),
            "the normaliser Precompiled is a table of its own, which gateways do not have",
        ),
        (
            json!({"normalizer": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}}),
            "the normaliser replaces by the regular expression \"a+\"",
        ),
        (
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "add_prefix_space": true}]}}),
            "the pre-tokenizer puts a space before pieces that it cut before",
        ),
        (
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"}, {"type": "ByteLevel", "add_prefix_space": false}]}}),
            "the pre-tokenizer drops white space",
        ),
        (
            json!({"normalizer": {"type": "Lowercase"}, "added_tokens": [{"id": 3, "content": "<S>", "normalized": true}]}),
            "the normaliser changes the added token \"<S>\"",
        ),
        (
            json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed"},
                {"type": "ByteLevel", "add_prefix_space": false}]}}),
            "the pre-tokenizer removes what it splits at",
        ),
        (
            json!({"pre_tokenizer": null}),
            "the tokenizer decodes ByteLevel but does not encode it",
        ),
        (
            json!({"model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}}}),
            "the tokenizer drops merges at random",
        ),
    ];
    for (parts, expected) in cases {
        assert_eq!(text_obstacle(&byte_level(parts)), expected);
    }
    let cases = [
        (
            json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "_"}}),
            "the pre-tokenizer writes spaces as \"_\"",
        ),
        (
            json!({"pre_tokenizer": {"type": "WhitespaceSplit"}}),
            "the pre-tokenizer drops white space",
        ),
        (
            json!({"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                {"type": "Strip", "strip_left": true, "strip_right": true}]}}),
            "the normaliser writes spaces as U+2581 before it looks for spaces",
        ),
    ];
    for (parts, expected) in cases {
        assert_eq!(text_obstacle(&sentence_piece(parts)), expected);
    }
}

#[test]
fn sentence_piece_steps() {
    let steps = |normalizer: Value| {
        let tokenizer = sentence_piece(json!({"normalizer": normalizer, "pre_tokenizer": null}));
        profile(&[("tokenizer.json", &tokenizer)]).canonical.steps
    };
    let mark = CanonicalStep::Replace {
        from: "▁".into(),
        to: " ".into(),
    };
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    assert_eq!(steps(spaces.clone()), std::slice::from_ref(&mark));
    let llama =
        json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, spaces]});
    assert_eq!(steps(llama), [CanonicalStep::Prepend(" ".into()), mark]);
}

#[test]
fn runs_of_the_space_mark_are_no_added_tokens() {
    let tokenizer = sentence_piece(json!({"added_tokens": [
        {"id": 256, "content": "▁▁", "normalized": false}, {"id": 257, "content": "<b>", "normalized": false}]}));
    let files = load(&[("tokenizer.json", &tokenizer)]).unwrap();
    assert_eq!(files.vocab.bytes(256), Some(&b"  "[..]));
    let added: Vec<&str> = files
        .profile
        .canonical
        .added_tokens
        .iter()
        .map(|token| token.content.as_str())
        .collect();
    assert_eq!(added, ["<b>"]);
}

fn bos_processor() -> Value {
    json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}}]})
}

#[test]
fn completions_begin_with_what_the_post_processor_adds() {
    let completions = |post_processor: Value, config: &str| {
        let tokenizer = byte_level(json!({"post_processor": post_processor}));
        let profile = profile(&[
            ("tokenizer.json", &tokenizer),
            ("tokenizer_config.json", config),
        ]);
        (
            profile.canonical.completions_prefix,
            why(&profile.completions).to_owned(),
        )
    };
    let exact = |prefix: &str| (prefix.to_owned(), "exact".to_owned());
    assert_eq!(completions(json!(null), "{}"), exact(""));
    assert_eq!(completions(bos_processor(), "{}"), exact("<s>"));
    assert_eq!(
        completions(
            bos_processor(),
            r#"{"add_bos_token": true, "bos_token": "<s>"}"#
        ),
        exact("<s>")
    );
    assert_eq!(
        completions(
            json!({"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 3]}),
            "{}"
        ),
        exact("<s>")
    );
    for (post_processor, config) in [
        (
            bos_processor(),
            r#"{"add_bos_token": false, "bos_token": "<s>"}"#,
        ),
        (
            json!(null),
            r#"{"add_bos_token": true, "bos_token": "<s>"}"#,
        ),
    ] {
        let (_, why) = completions(post_processor, config);
        assert!(
            why.contains("depends on the engine's version of transformers"),
            "{why}"
        );
    }
    assert_eq!(
        completions(json!({"type": "New"}), "{}").1,
        "the post-processor New is not known"
    );
}
