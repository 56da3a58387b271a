//! A small tokenizer of our own, and the real one of Qwen3 where it is at hand.

use super::*;
use proptest::prelude::*;
use std::path::PathBuf;

/// Byte-level BPE with a few merges, pre-tokenised as GPT-2 does.
fn small_json() -> Vec<u8> {
    let mut vocab = serde_json::Map::new();
    let mut add = |token: &str| {
        let id = vocab.len();
        vocab.entry(token.to_owned()).or_insert_with(|| id.into());
    };
    for byte in b'!'..=b'~' {
        add(&(byte as char).to_string());
    }
    for token in ["Ġ", "Ċ"] {
        add(token);
    }
    let merges = [
        "h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "i n", "a n",
        "Ġ a",
    ];
    for merge in merges {
        add(&merge.replace(' ', ""));
    }
    serde_json::to_vec(&serde_json::json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges}
    }))
    .unwrap()
}

fn checker_of(json: &[u8]) -> Result<Checker, Unusable> {
    let vocab = crate::vocab::Vocab::from_tokenizer_json(json).unwrap();
    Checker::of_json(json, Arc::new(vocab))
}

/// `None`, with a word about it, where the tokenizer is not at hand.
fn qwen3() -> Option<Vec<u8>> {
    let dir = std::env::var_os("PREFIX_PICKER_TOKENIZERS").map(PathBuf::from);
    let json = dir.and_then(|dir| std::fs::read(dir.join("qwen3/tokenizer.json")).ok());
    if json.is_none() {
        eprintln!("skipped: PREFIX_PICKER_TOKENIZERS names no folder with qwen3/tokenizer.json");
    }
    json
}

#[test]
fn tokens_of_the_tokenizer_are_told_from_others_of_the_same_text() {
    let checker = checker_of(&small_json()).unwrap();
    let tokens = checker.encode("hello world in a land").unwrap();
    let all = tokens.len();
    assert!(checker.is_canonical(&tokens, 0, all));
    // "hello" as "hell" and "o".
    let mut split = tokens.clone();
    split.splice(0..1, checker.encode("hell").unwrap());
    split.insert(1, checker.encode("o").unwrap()[0]);
    assert!(!checker.is_canonical(&split, 0, all + 1));
    // Outside of what counts nothing matters.
    assert!(checker.is_canonical(&split, 2, all + 1));
    let mut at_end = tokens.clone();
    at_end.extend(checker.encode("hell").unwrap());
    at_end.extend(checker.encode("o").unwrap());
    assert!(!checker.is_canonical(&at_end, 0, at_end.len()));
    assert!(checker.is_canonical(&at_end, 0, all - 1));
    assert!(!checker.is_canonical(&[9_999_999], 0, 1));
}

#[test]
fn a_tokenizer_that_pieces_tell_nothing_about_is_not_used() {
    let mut json: serde_json::Value = serde_json::from_slice(&small_json()).unwrap();
    json["pre_tokenizer"]["add_prefix_space"] = true.into();
    let changed = serde_json::to_vec(&json).unwrap();
    assert!(matches!(checker_of(&changed), Err(Unusable::Pieces)));
    let vocab = crate::vocab::Vocab::from_tokenizer_json(&small_json()).unwrap();
    let broken = Checker::of_json(b"{}", Arc::new(vocab));
    assert!(matches!(broken, Err(Unusable::Load(_))));
}

/// Tokens of a text as a model might generate them: some of the tokenizer's are split in two.
fn generated(checker: &Checker, text: &str, splits: &[bool]) -> (Vec<u32>, Option<usize>) {
    let by_bytes: std::collections::HashMap<&[u8], u32> = (0..checker.vocab.len())
        .filter_map(|id| {
            let id = u32::try_from(id).ok()?;
            Some((checker.vocab.bytes(id)?, id))
        })
        .collect();
    let (mut tokens, mut first) = (Vec::new(), None);
    for (at, id) in checker.encode(text).unwrap().into_iter().enumerate() {
        let bytes = checker.vocab.bytes(id).unwrap();
        let halves = (1..bytes.len()).find_map(|cut| {
            let (head, tail) = bytes.split_at(cut);
            Some([*by_bytes.get(head)?, *by_bytes.get(tail)?])
        });
        match halves {
            Some(halves) if splits.get(at).copied().unwrap_or(false) => {
                first = first.or(Some(tokens.len()));
                tokens.extend(halves);
            }
            _ => tokens.push(id),
        }
    }
    (tokens, first)
}

/// Goes through generated tokens as the index does. Where a block was refused: its first token.
fn refused_at(checker: &Checker, tokens: &[u32], size: usize) -> Option<usize> {
    let mut tail = Tail::default();
    let mut blocks = tokens.chunks_exact(size).enumerate();
    let found = blocks.find(|(_, block)| {
        let (tokens, context, until) = tail.extend(block, |id| checker.vocab.bytes(id));
        !checker.is_canonical(&tokens, context, until)
    });
    found.map(|(at, _)| at * size)
}

fn texts() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        6 => "[a-z]{1,12} ",
        1 => "[A-Z][a-z]{1,8}, ",
        1 => "[0-9]{1,6} ",
        1 => "[a-z_]{2,9}\\(\\)\n",
        1 => "[あ-ん]{1,30}。",
        1 => "[a-z]{3,9}\\.\n\n",
        1 => " {1,9}[a-z]{1,3}",
    ];
    prop::collection::vec(word, 1..120).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// With the real tokenizer: what it made itself is never refused; what it would not have made is
    /// found within two blocks.
    #[test]
    fn other_tokens_are_found_and_the_tokenizers_own_are_not(
        text in texts(), splits in prop::collection::vec(prop::bool::weighted(0.01), 2_000),
        size in prop_oneof![Just(16_usize), 8_usize..64],
    ) {
        thread_local! {
            static CHECKER: Option<Checker> = qwen3().map(|json| checker_of(&json).unwrap());
        }
        CHECKER.with(|checker| {
            let Some(checker) = checker else { return Ok(()) };
            let own = checker.encode(&text).unwrap();
            prop_assert_eq!(refused_at(checker, &own, size), None, "{:?}", text);
            let (tokens, first) = generated(checker, &text, &splits);
            let whole = tokens.len() / size * size;
            if let Some(first) = first && first + 2 * size < whole {
                let found = refused_at(checker, &tokens, size);
                prop_assert!(found.is_some_and(|found| found <= first + size), "{first} {found:?} {text:?}");
            }
            Ok(())
        })?;
    }
}

#[test]
fn measured_with_the_real_tokenizer() {
    let Some(json) = qwen3() else { return };
    let checker = checker_of(&json).unwrap();
    let tokens = checker.encode(&SAMPLE.repeat(40)).unwrap();
    let start = Instant::now();
    let refused = refused_at(&checker, &tokens, 16);
    let rate = tokens.len() as f64 / start.elapsed().as_secs_f64();
    assert_eq!(refused, None);
    eprintln!("{rate:.0} generated tokens a second are checked");
}
