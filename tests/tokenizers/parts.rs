//! Small tokenizers with each part that we claim to know, against Hugging Face's own code.

use prefix_picker::profiles::load_model_dir;
use prefix_picker_core::prompt::Capability;
use serde_json::{Map, Value, json};

use super::{Model, Temp, chat, texts};

/// The parts laid over a tokenizer.
fn over(mut base: Value, parts: &Value) -> Value {
    let parts = parts.as_object().unwrap().clone();
    base.as_object_mut().unwrap().extend(parts);
    base
}

/// Added tokens; their ids follow the vocabulary's, else the tokenizer gives them others.
fn added(first_id: u32) -> Value {
    json!([
        {"id": first_id, "content": "<tool>", "single_word": false, "lstrip": true, "rstrip": true, "normalized": false, "special": true},
        {"id": first_id + 1, "content": "<word>", "single_word": true, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": first_id + 2, "content": "<mask>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": false},
        {"id": first_id + 3, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    ])
}

/// A character for each byte, in GPT-2's order.
fn byte_level() -> Value {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut vocab = Map::new();
    let others = (0..=255u8).filter(|byte| !printable(byte)).zip(256u32..);
    let own = (0..=255u8)
        .filter(printable)
        .map(|byte| (byte, u32::from(byte)));
    for (id, (_, code)) in own.chain(others).enumerate() {
        vocab.insert(char::from_u32(code).unwrap().to_string(), json!(id));
    }
    vocab.insert("\u{120}a".to_owned(), json!(256));
    json!({
        "version": "1.0", "added_tokens": added(257), "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["\u{120}", "a"]]},
    })
}

/// Bytes to fall back to, and a few words.
fn sentence_piece() -> Value {
    let mut vocab: Map<String, Value> = (0..256)
        .map(|byte| (format!("<0x{byte:02X}>"), json!(byte)))
        .collect();
    for (token, id) in ["\u{2581}", "a", "\u{2581}a", "e", "\u{2581}\u{2581}"]
        .iter()
        .zip(256..)
    {
        vocab.insert((*token).to_owned(), json!(id));
    }
    json!({
        "version": "1.0", "added_tokens": added(261), "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "byte_fallback": true, "unk_token": null, "fuse_unk": true, "vocab": vocab,
            "merges": [["\u{2581}", "a"], ["\u{2581}", "\u{2581}"]]},
    })
}

/// Letters and the mark; all else is unknown.
fn unigram() -> Value {
    let mut vocab = vec![json!(["<unk>", 0.0]), json!(["\u{2581}", -3.0])];
    let letters = ('a'..='z')
        .chain('A'..='Z')
        .chain("0123456789.,!?<>/\n".chars());
    for letter in letters {
        vocab.push(json!([letter.to_string(), -5.0]));
        vocab.push(json!([format!("\u{2581}{letter}"), -6.0]));
    }
    let next = u32::try_from(vocab.len()).unwrap();
    json!({
        "version": "1.0", "added_tokens": added(next), "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true},
        "post_processor": null, "decoder": null,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false},
    })
}

/// Single characters of our texts but the rare ones, as beginnings and as continuations.
fn word_piece() -> Value {
    let mut vocab = Map::new();
    vocab.insert("[UNK]".to_owned(), json!(0));
    let mut chars: Vec<char> = texts::all(0).concat().chars().collect();
    chars.extend("abcdefghijklmnopqrstuvwxyz".chars());
    chars.sort_unstable();
    chars.dedup();
    for c in chars.into_iter().filter(|c| *c != '\u{1f600}') {
        for token in [c.to_string(), format!("##{c}")] {
            let id = vocab.len();
            vocab.insert(token, json!(id));
        }
    }
    let next = u32::try_from(vocab.len()).unwrap();
    json!({
        "version": "1.0", "added_tokens": added(next),
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["<word>", next + 1], "cls": ["[CLS]", next + 3]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab},
    })
}

/// Checks one tokenizer on all texts. How many texts had no unknown token.
fn check(name: &str, tokenizer: &Value) -> usize {
    let dir = Temp::with(name, tokenizer);
    let files = load_model_dir(&dir.0).unwrap();
    assert_eq!(files.profile.completions, Capability::Exact, "{name}");
    let model = Model::open(&dir.0);
    let mut known = 0;
    for text in texts::all(200) {
        let results = [
            model.check_chat(&chat(&text)).unwrap(),
            model.check_completion(&text),
        ];
        for result in results {
            assert!(result.is_ok(), "{name}, {text:?}: {}", result.unwrap_err());
        }
        known += usize::from(model.engine(&text, true).1);
    }
    known
}

fn sequence(normalizers: &[Value]) -> Value {
    json!({"type": "Sequence", "normalizers": normalizers})
}

#[test]
fn normalizers() {
    let kinds = [
        json!({"type": "NFC"}),
        json!({"type": "NFD"}),
        json!({"type": "NFKC"}),
        json!({"type": "NFKD"}),
        json!({"type": "Lowercase"}),
        json!({"type": "Nmt"}),
        json!({"type": "Strip", "strip_left": true, "strip_right": false}),
        json!({"type": "Strip", "strip_left": true, "strip_right": true}),
        json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        json!({"type": "Replace", "pattern": {"String": "e"}, "content": "33"}),
        json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true}),
        json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": false, "strip_accents": true, "lowercase": false}),
        sequence(&[
            json!({"type": "NFD"}),
            json!({"type": "StripAccents"}),
            json!({"type": "Lowercase"}),
        ]),
        sequence(&[
            json!({"type": "Nmt"}),
            json!({"type": "NFKC"}),
            json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        ]),
    ];
    for (number, normalizer) in kinds.iter().enumerate() {
        let name = format!("normalizer-{number}");
        let known = check(
            &name,
            &over(byte_level(), &json!({"normalizer": normalizer})),
        );
        assert_eq!(
            known,
            texts::all(200).len(),
            "{name}: bytes have no unknown tokens"
        );
        check(
            &format!("{name}-sp"),
            &over(sentence_piece(), &json!({"normalizer": normalizer})),
        );
    }
}

#[test]
fn spaces_put_before_pieces() {
    let byte = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true});
    check(
        "byte-level-prefix",
        &over(byte_level(), &json!({"pre_tokenizer": byte})),
    );
    for scheme in ["first", "always", "never"] {
        for split in [true, false] {
            let metaspace = json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": split});
            let parts = json!({"pre_tokenizer": metaspace});
            check(
                &format!("metaspace-{scheme}-{split}"),
                &over(sentence_piece(), &parts),
            );
        }
    }
    let words = json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true}]});
    check(
        "words",
        &over(sentence_piece(), &json!({"pre_tokenizer": words})),
    );
    let known = check(
        "words-unigram",
        &over(unigram(), &json!({"pre_tokenizer": words})),
    );
    assert!(known > 5, "{known}");
}

#[test]
fn unknown_tokens_end_what_is_known() {
    let count = texts::all(200).len();
    for (name, tokenizer) in [("unigram", unigram()), ("word-piece", word_piece())] {
        let known = check(name, &tokenizer);
        assert!(known > 5 && known < count, "{name}: {known} of {count}");
    }
}
