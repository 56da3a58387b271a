//! Frozen hashes: what version 1 of the hash domain gives, natively and as wasm.
//!
//! The file comes from another implementation, `tests/vectors/wire/v1/generate.py`. Another result
//! is a new [`HASH_DOMAIN_VERSION`], never an edit.

use serde_json::Value;
// Plain tests natively and under WASI; this where there is no test harness.
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

const FILE: &str = include_str!("../../../../tests/vectors/wire/v1/blocks.json");

fn vectors() -> Value {
    serde_json::from_str(FILE).expect("JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn number(value: &Value) -> usize {
    value.as_u64().expect("a number") as usize
}

fn hex(value: &Value) -> u64 {
    u64::from_str_radix(text(value), 16).expect("hex digits")
}

fn key(vectors: &Value) -> PoolKey {
    PoolKey::derive(
        text(&vectors["fleet_secret"]).as_bytes(),
        text(&vectors["pool"]),
    )
}

fn text_seed(vectors: &Value) -> Seed {
    let family = Family::Text;
    seed(
        &key(vectors),
        &Namespace {
            family,
            profile_hash: 0,
            lora: None,
            salt: None,
        },
    )
}

#[test]
fn frozen_keys_and_seeds() {
    let vectors = vectors();
    let key = key(&vectors);
    let digits: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, text(&vectors["pool_key"]));
    for vector in vectors["seeds"].as_array().expect("a list") {
        let namespace = Namespace {
            family: match text(&vector["family"]) {
                "text" => Family::Text,
                "token_ids" => Family::TokenIds,
                _ => Family::Predicted,
            },
            profile_hash: hex(&vector["profile_hash"]),
            lora: vector["lora"].as_str(),
            salt: vector["salt"].as_str(),
        };
        assert_eq!(
            seed(&key, &namespace),
            Seed(hex(&vector["seed"])),
            "{vector}"
        );
    }
}

fn expected_blocks(vector: &Value) -> Vec<TextBlock> {
    vector["blocks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|block| TextBlock {
            hash: BlockHash(hex(&block["hash"])),
            end: number(&block["end"]),
            hard_cut: block["hard_cut"] == true,
        })
        .collect()
}

#[test]
fn frozen_texts() {
    let vectors = vectors();
    let seed = text_seed(&vectors);
    let mut checked = 0;
    for vector in vectors["texts"].as_array().expect("a list") {
        let prompt: String = vector["pieces"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|piece| text(&piece[0]).repeat(number(&piece[1])))
            .collect();
        let mut seen = Vec::new();
        TextChain::new(seed).feed(prompt.as_bytes(), |block| seen.push(block));
        let expected = expected_blocks(vector);
        assert_eq!(seen, expected, "{}", vector["pieces"]);
        checked += seen.len();
    }
    assert!(checked > 20, "{checked} blocks");
}

#[test]
fn frozen_media() {
    let vectors = vectors();
    let mut checked = 0;
    for vector in vectors["media"].as_array().expect("a list") {
        let mut chain = TextChain::new(text_seed(&vectors));
        let (mut seen, mut at) = (Vec::new(), 0);
        for part in vector["parts"].as_array().expect("a list") {
            let mut on_block = |block: TextBlock| {
                seen.push(TextBlock {
                    end: at + block.end,
                    ..block
                });
            };
            if part.is_object() {
                let key = MediaKey::of(text(&part["identifier"])).expect("short");
                let placeholder = text(&part["placeholder"]);
                chain.feed_media(key, placeholder.as_bytes(), &mut on_block);
                at += placeholder.len();
            } else {
                let piece = text(&part[0]).repeat(number(&part[1]));
                chain.feed(piece.as_bytes(), &mut on_block);
                at += piece.len();
            }
        }
        let expected = expected_blocks(vector);
        assert_eq!(seen, expected, "{}", vector["parts"]);
        checked += seen.len();
    }
    assert!(checked > 10, "{checked} blocks");
}

#[test]
fn frozen_ids() {
    let vectors = vectors();
    let (count, multiplier) = (
        number(&vectors["ids"]["count"]),
        number(&vectors["ids"]["multiplier"]) as u32,
    );
    let ids: Vec<u32> = (0..count as u32)
        .map(|n| n.wrapping_mul(multiplier))
        .collect();
    let expected: Vec<BlockHash> = vectors["ids"]["hashes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|hash| BlockHash(hex(hash)))
        .collect();
    assert_eq!(hash_ids(text_seed(&vectors), &ids, usize::MAX), expected);
    assert_eq!(expected.len(), 3);
}
