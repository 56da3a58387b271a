//! Against vectors made from vLLM's own functions, and against what a real engine announced.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::*;
use crate::events::tests::golden::vector;
use crate::events::{ExtraKey, KvEvent, decode_batch};

/// Extra keys of the vectors, which spell them as Python does.
fn extra_of(python: &str) -> Value<'static> {
    let image: &'static str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    match python {
        "None" => Value::None,
        "(('cache_salt', 'tenant-a'),)" => Value::Tuple(vec![Value::salt("tenant-a")]),
        "('tenant-a',)" => Value::Tuple(vec![Value::Text("tenant-a")]),
        "(('lora', 'sql', '/adapters/sql'),)" => {
            Value::Tuple(vec![Value::lora("sql", "/adapters/sql")])
        }
        "('sql',)" => Value::Tuple(vec![Value::Text("sql")]),
        mm if mm == format!("(('mm', '{image}', 3),)") => {
            Value::Tuple(vec![Value::media(image, 3)])
        }
        mm if mm == format!("(('mm', '{image}', -13),)") => {
            Value::Tuple(vec![Value::media(image, -13)])
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_eleven_vectors() {
    let vectors: Vec<Json> = serde_json::from_str(&vector("block-hash/vectors.json")).unwrap();
    assert_eq!(vectors.len(), 11);
    for vector in vectors {
        let name = &vector["name"];
        let tokens: Vec<u32> = serde_json::from_value(vector["tokens"].clone()).unwrap();
        let algorithm = Algorithm::of_name(vector["algo"].as_str().unwrap()).unwrap();
        let mut hasher = BlockHasher::new(algorithm, vector["seed"].as_str().unwrap());
        assert_eq!(
            hasher.none_hash().to_string(),
            vector["none_hash"].as_str().unwrap(),
            "{name}"
        );
        let block_size = usize::try_from(vector["block_size"].as_u64().unwrap()).unwrap();
        let lookahead = usize::try_from(vector["lookahead"].as_u64().unwrap()).unwrap();
        let extra = |block: usize| match &vector["extra_keys_in_hash"] {
            Json::Null => Value::None,
            keys => extra_of(keys[block].as_str().unwrap()),
        };
        let hashes = hasher.prompt(&tokens, block_size, lookahead, extra);
        let text: Vec<String> = hashes.iter().map(Digest::to_string).collect();
        assert_eq!(
            serde_json::to_value(text).unwrap(),
            vector["hashes"],
            "{name}"
        );
        let low: Vec<u64> = hashes.iter().map(Digest::low).collect();
        assert_eq!(serde_json::to_value(low).unwrap(), vector["u64"], "{name}");
        hasher.prompt(
            &tokens[..block_size + lookahead],
            block_size,
            lookahead,
            extra,
        );
        assert_eq!(
            hex::encode(hasher.last_input()),
            vector["ser_block0"].as_str().unwrap(),
            "{name}"
        );
    }
}

#[test]
fn every_hash_that_a_real_engine_announced() {
    let mut hasher = BlockHasher::new(Algorithm::Sha256, DEFAULT_SEED);
    let mut known: HashMap<u64, Digest> = HashMap::new();
    let mut matched = 0;
    for line in vector("vllm-real/capture-main.jsonl").lines() {
        let line: Json = serde_json::from_str(line).unwrap();
        let payload = line["frames_b64"][2].as_str().unwrap();
        let payload =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, payload).unwrap();
        for event in decode_batch(&payload).unwrap().events {
            let KvEvent::Stored(stored) = event else {
                continue;
            };
            assert!(stored.is_dense());
            let mut parent = stored
                .parent
                .as_ref()
                .map_or(hasher.none_hash(), |parent| known[&parent.low]);
            let keys = stored.extra_keys.clone().unwrap();
            let blocks = stored.tokens.chunks(stored.block_size as usize);
            for ((hash, tokens), keys) in stored.hashes.iter().zip(blocks).zip(&keys) {
                let extra = match keys.as_deref() {
                    None => Value::None,
                    Some([ExtraKey::Text(salt)]) => Value::Tuple(vec![Value::salt(salt)]),
                    other => panic!("{other:?}"),
                };
                parent = hasher.block(&parent, tokens, extra);
                assert_eq!(parent.low(), hash.low);
                known.insert(hash.low, parent);
                matched += 1;
            }
        }
    }
    assert_eq!(matched, 329);
}

/// `pickle.dumps(value, protocol=5)` of CPython 3.11, in hex.
#[test]
fn pickle_is_cpythons() {
    let check = |value: Value<'_>, expected: &str| {
        let mut out = Vec::new();
        pickle::write(&value, &mut out);
        assert_eq!(hex::encode(out), expected, "{value:?}");
    };
    for (int, expected) in [
        (1 << 31, "80059508000000000000008a0500000080002e"),
        ((1 << 32) - 1, "80059508000000000000008a05ffffffff002e"),
        (-(1 << 31), "80059506000000000000004a000000802e"),
        (-(1 << 31) - 1, "80059508000000000000008a05ffffff7fff2e"),
        (-(1 << 39), "80059508000000000000008a0500000000802e"),
        ((1 << 39) - 1, "80059508000000000000008a05ffffffff7f2e"),
        (1 << 39, "80059509000000000000008a060000000080002e"),
        (
            -(1 << 55) - 1,
            "8005950b000000000000008a08ffffffffffff7fff2e",
        ),
        (i64::MIN, "8005950b000000000000008a0800000000000000802e"),
        (i64::MAX, "8005950b000000000000008a08ffffffffffffff7f2e"),
    ] {
        check(Value::Int(int), expected);
    }
    check(Value::None, "80054e2e");
    check(Value::Tuple(vec![]), "8005292e");
    check(Value::Int(5), "80054b052e");
    check(Value::Text(""), "80059504000000000000008c00942e");
    let two = Value::Tuple(vec![Value::media("a", 0), Value::media("b", 7)]);
    check(
        two,
        "8005951a000000000000008c026d6d948c0161944b00879468008c0162944b07879486942e",
    );
}

/// Frames are cut at 64 KiB: `(b"x" * 32, (70000,) * 20000, None)` and 60,000 times 300.
#[test]
fn long_blocks_are_framed_as_cpython_does() {
    let frames = |token: u32, count: usize| {
        let tokens = vec![token; count];
        let mut out = Vec::new();
        let value = Value::Tuple(vec![
            Value::Bytes(&[b'x'; 32]),
            Value::Tokens(&tokens),
            Value::None,
        ]);
        pickle::write(&value, &mut out);
        let mut frames = Vec::new();
        let mut at = 2;
        while out.get(at) == Some(&0x95) {
            let length = u64::from_le_bytes(out[at + 1..at + 9].try_into().unwrap());
            frames.push((at, length));
            at += 9 + usize::try_from(length).unwrap();
        }
        (out.len(), frames)
    };
    assert_eq!(
        frames(70_000, 20_000),
        (100_062, vec![(2, 65_536), (65_547, 34_506)])
    );
    assert_eq!(
        frames(300, 60_000),
        (
            180_071,
            vec![(2, 65_538), (65_549, 65_538), (131_096, 48_966)]
        )
    );
}
