//! Byte for byte what vLLM's own event classes encode, for 16 versions.

use super::*;
use serde_json::Value;

fn digest(low: u64) -> BlockDigest {
    let mut d = [0u8; 32];
    d[24..].copy_from_slice(&low.to_be_bytes());
    d
}

fn stored(digests: Vec<BlockDigest>, parent: Option<BlockDigest>) -> Stored {
    let tokens = (0..16 * digests.len() as u32).collect();
    Stored {
        digests,
        parent,
        tokens,
        block_size: 16,
        lora: None,
        salt: None,
        session: None,
    }
}

#[test]
fn equals_the_golden_payloads() {
    let golden: Value = serde_json::from_str(include_str!(
        "../../../vectors/kv-events/kv_events_golden.json"
    ))
    .unwrap();
    let (h1, h2, p) = (0xF4CA_F012_3456_789A, 0x1122_3344_5566_7788, u64::MAX);
    let sequence = |from: u8| std::array::from_fn::<u8, 32, _>(|i| from + i as u8);
    let mut checked = 0;
    for case in golden.as_array().unwrap() {
        let (version, name) = (
            case["vllm"].as_str().unwrap(),
            case["case"].as_str().unwrap(),
        );
        let event = match name {
            "int_root" => KvEvent::Stored(stored(vec![digest(h1), digest(h2)], None)),
            "int_child_lora" => KvEvent::Stored(Stored {
                lora: Some((1, "sql".into())),
                ..stored(vec![digest(h1)], Some(digest(p)))
            }),
            "bytes_hash" => KvEvent::Stored(stored(vec![sequence(0)], Some(sequence(32)))),
            "removed" => KvEvent::Removed(digest(h1)),
            "cleared" => KvEvent::Cleared,
            _ => continue,
        };
        let form = Form {
            wire: version.parse().unwrap(),
            bytes_hashes: name == "bytes_hash",
            rank: 0,
        };
        let hex: String = form
            .encode(1_764_439_200.25, &[event])
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hex, case["payload_hex"], "{version} {name}");
        checked += 1;
    }
    assert_eq!(checked, 16 * 5);
}

#[test]
fn salt_stands_in_the_first_block_of_a_chain_only() {
    let form = Form {
        wire: WireVersion::default(),
        bytes_hashes: false,
        rank: 0,
    };
    let count = |parent| {
        let event = Stored {
            salt: Some("tenant-a".into()),
            ..stored(vec![digest(1), digest(2)], parent)
        };
        let bytes = form.encode(0.0, &[KvEvent::Stored(event)]);
        bytes.windows(8).filter(|w| w == b"tenant-a").count()
    };
    assert_eq!((count(None), count(Some(digest(9)))), (1, 0));
}
