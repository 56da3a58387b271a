use super::*;

fn table(json: &str) -> Vocab {
    Vocab::from_tokenizer_json(json.as_bytes()).unwrap()
}

fn refusal(json: &str) -> String {
    Vocab::from_tokenizer_json(json.as_bytes())
        .unwrap_err()
        .to_string()
}

const BYTE_LEVEL: &str = r#"{
    "added_tokens": [{"id": 5, "content": "<｜end of text｜>", "normalized": false}],
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "Ġthe": 1, "Ã©": 3}, "merges": [["a", "b"], "a b"]}
}"#;

#[test]
fn byte_level() {
    let vocab = table(BYTE_LEVEL);
    assert_eq!(vocab.bytes(0), Some(&b"a"[..]));
    assert_eq!(vocab.bytes(1), Some(&b" the"[..]));
    assert_eq!(vocab.bytes(3), Some("é".as_bytes()));
    assert_eq!(vocab.bytes(5), Some("<｜end of text｜>".as_bytes()));
    for unknown in [2, 4, 6, u32::MAX] {
        assert_eq!(vocab.bytes(unknown), None, "{unknown}");
    }
    assert_eq!(vocab.len(), 6);
}

#[test]
fn sentence_piece_with_byte_fallback() {
    let bytes: Vec<String> = (0..=255)
        .map(|byte| format!(r#""<0x{byte:02X}>": {byte}"#))
        .collect();
    let vocab = table(&format!(
        r#"{{"added_tokens": [{{"id": 256, "content": "<s>"}}, {{"id": 258, "content": "▁▁"}}],
            "model": {{"type": "BPE", "byte_fallback": true, "vocab": {{{}, "▁the": 257, "▁▁": 258, "<0x0A": 259}}}}}}"#,
        bytes.join(",")
    ));
    assert_eq!(vocab.bytes(10), Some(&b"\n"[..]));
    assert_eq!(vocab.bytes(256), Some(&b"<s>"[..]));
    assert_eq!(vocab.bytes(257), Some(&b" the"[..]));
    assert_eq!(
        vocab.bytes(258),
        Some(&b"  "[..]),
        "found by the model, so it stands for spaces"
    );
    assert_eq!(vocab.bytes(259), Some(&b"<0x0A"[..]));
}

#[test]
fn tokenizers_without_bytes_are_refused() {
    assert!(
        refusal(r#"{"model": {"type": "WordLevel", "vocab": {"a": 0}}}"#)
            .contains("a WordLevel model")
    );
    assert!(
        refusal(r#"{"model": {"type": "BPE", "vocab": {"a": 0}}}"#).contains("neither ByteLevel")
    );
    assert!(
        refusal(r#"{"model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0}}}"#)
            .contains("<0x00>")
    );
    assert!(
        refusal(r#"{"model": {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {"a": 0}}}"#)
            .contains("</w>")
    );
    assert!(
        refusal(r#"{"decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 4294967295}}}"#)
            .contains("token id")
    );
}

#[test]
fn unigram_lists_number_themselves() {
    let bytes: Vec<String> = (0..=255)
        .map(|byte| format!(r#"["<0x{byte:02X}>", 0.0]"#))
        .collect();
    let vocab = table(&format!(
        r#"{{"model": {{"type": "Unigram", "byte_fallback": true, "vocab": [["<unk>", 0], {}, ["▁a", -1.5]]}}}}"#,
        bytes.join(",")
    ));
    assert_eq!(vocab.bytes(257), Some(&b" a"[..]));
}

#[test]
fn word_pieces_begin_with_a_space_unless_they_continue() {
    let vocab = table(
        r###"{"added_tokens": [{"id": 3, "content": "[CLS]"}, {"id": 2, "content": "[UNK]"}],
            "model": {"type": "WordPiece", "unk_token": "[UNK]",
            "vocab": {"a": 0, "##b": 1, "[UNK]": 2, "[CLS]": 3, "#": 4}}}"###,
    );
    let expected: [Option<&[u8]>; 5] = [Some(b" a"), Some(b"b"), None, Some(b"[CLS]"), Some(b" #")];
    for (id, bytes) in (0..).zip(expected) {
        assert_eq!(vocab.bytes(id), bytes, "{id}");
    }
}

#[test]
fn what_a_vocabulary_lacks_is_no_token() {
    let vocab = table(
        r#"{"model": {"type": "Unigram", "unk_id": 1, "vocab": [["▁a", 0], ["<unk>", 0], ["<0x41>", 0]]}}"#,
    );
    assert_eq!(vocab.bytes(0), Some(&b" a"[..]));
    assert_eq!(vocab.bytes(1), None);
    assert_eq!(
        vocab.bytes(2),
        Some(&b"<0x41>"[..]),
        "no bytes to fall back to"
    );
    let vocab = table(r#"{"model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1}}}"#);
    assert_eq!((vocab.bytes(0), vocab.bytes(1)), (None, Some(&b"a"[..])));
}

#[test]
fn tekken_ids_follow_the_special_ones() {
    let json = r#"{"config": {"default_vocab_size": 5, "default_num_special_tokens": 3, "pattern": "x"},
        "special_tokens": [{"rank": 0, "token_str": "<unk>"}, {"rank": 1, "token_str": "<s>"}],
        "vocab": [{"rank": 0, "token_bytes": "AA==", "token_str": null}, {"rank": 1, "token_bytes": "/w=="},
                  {"rank": 2, "token_bytes": "YQ=="}]}"#;
    let vocab = Vocab::from_tekken_json(json.as_bytes()).unwrap();
    let expected: [&[u8]; 5] = [b"<unk>", b"<s>", b"<SPECIAL_2>", b"\0", b"\xff"];
    for (id, bytes) in (0..).zip(expected) {
        assert_eq!(vocab.bytes(id), Some(bytes));
    }
    assert_eq!(vocab.bytes(5), None, "beyond the vocabulary's size");
}

#[test]
fn tiktoken_ids_are_ranks() {
    let specials = BTreeMap::from([(3, "<|im_end|>".to_owned())]);
    let vocab = Vocab::from_tiktoken("YQ== 0\nIGI= 1\n\n", &specials).unwrap();
    assert_eq!(vocab.bytes(1), Some(&b" b"[..]));
    assert_eq!(vocab.bytes(2), None);
    assert_eq!(vocab.bytes(3), Some(&b"<|im_end|>"[..]));
    for broken in ["YQ==", "YQ== x", "Y*== 0", ""] {
        assert!(
            Vocab::from_tiktoken(broken, &BTreeMap::new()).is_err(),
            "{broken:?}"
        );
    }
}

#[test]
fn a_token_without_bytes_is_not_an_unknown_one() {
    let vocab = Vocab::from_tokens([(0, vec![]), (2, b"a".to_vec())]).unwrap();
    assert_eq!(
        (vocab.bytes(0), vocab.bytes(1), vocab.bytes(2)),
        (Some(&b""[..]), None, Some(&b"a"[..]))
    );
    let mut bytes = Vec::new();
    assert_eq!(
        vocab.append_bytes(&[2, 0, 2, 1, 2], &mut bytes),
        Err(UnknownToken(1))
    );
    assert_eq!(bytes, b"aa");
}
