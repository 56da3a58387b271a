//! Random payloads: no panic, bounded memory, and every event that is encoded comes back.

use std::mem::size_of;

use proptest::collection::vec;
use proptest::prelude::*;

use super::golden::vector;
use super::*;

/// What [`decode_batch`] promises.
const BYTES_PER_BYTE: usize = 64;
/// Room made before anything is read, and remarks.
const FIXED_BYTES: usize = 256 * 1024;

fn keys_bytes(keys: &[Option<Vec<ExtraKey>>]) -> usize {
    let key = |key: &ExtraKey| match key {
        ExtraKey::Text(text) | ExtraKey::Salt(text) | ExtraKey::Lora { name: text } => {
            text.capacity()
        }
        ExtraKey::Media { identifier, .. } => identifier.capacity(),
        ExtraKey::Bytes(bytes) => bytes.capacity(),
        ExtraKey::Unknown => 0,
    };
    keys.iter()
        .flatten()
        .map(|keys| keys.capacity() * size_of::<ExtraKey>() + keys.iter().map(key).sum::<usize>())
        .sum()
}

fn hashes_bytes(hashes: &Vec<EngineHash>) -> usize {
    let own: usize = hashes
        .iter()
        .filter_map(|hash| hash.bytes.as_deref())
        .map(<[u8]>::len)
        .sum();
    hashes.capacity() * size_of::<EngineHash>() + own
}

/// Memory that a batch holds.
fn held_bytes(batch: &KvEventBatch) -> usize {
    let events: usize = batch
        .events
        .iter()
        .map(|event| match event {
            KvEvent::Stored(stored) => {
                let keys = stored.extra_keys.as_ref();
                hashes_bytes(&stored.hashes)
                    + stored.tokens.capacity() * 4
                    + stored.lookahead_tokens.capacity() * 4
                    + keys.map_or(0, |keys| {
                        keys.capacity() * size_of::<Option<Vec<ExtraKey>>>() + keys_bytes(keys)
                    })
            }
            KvEvent::Removed(removed) => hashes_bytes(&removed.hashes),
            KvEvent::Cleared => 0,
        })
        .sum();
    let remarks: usize = batch
        .notes
        .iter()
        .chain(&batch.problems)
        .map(String::capacity)
        .sum();
    events + remarks + batch.events.capacity() * size_of::<KvEvent>()
}

fn check_bounds(payload: &[u8]) {
    if let Ok(batch) = decode_batch(payload) {
        let held = held_bytes(&batch);
        assert!(
            held <= BYTES_PER_BYTE * payload.len() + FIXED_BYTES,
            "{held} of {}",
            payload.len()
        );
        assert!(batch.notes.len() <= MAX_REMARKS && batch.problems.len() <= MAX_REMARKS);
        assert!(batch.problems.len() <= batch.bad_events as usize + 1);
    }
}

fn golden_payloads() -> Vec<Vec<u8>> {
    let golden: Vec<Value> =
        serde_json::from_str(&vector("kv-events/kv_events_golden.json")).unwrap();
    golden
        .iter()
        .map(|entry| hex::decode(entry["payload_hex"].as_str().unwrap()).unwrap())
        .collect()
}

#[test]
fn lengths_that_lie_cost_nothing() {
    let wrap = |event: &[u8]| [&[0x93, 0xc0, 0x91][..], event, &[0xc0]].concat();
    let stored = |field: &[u8]| wrap(&[&[0x92, 0xab][..], b"BlockStored", field].concat());
    for payload in [
        vec![0x93, 0xc0, 0xdd, 0xff, 0xff, 0xff, 0xff],
        vec![0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0],
        wrap(&[0xdf, 0xff, 0xff, 0xff, 0xff]),
        wrap(&[0xdd, 0xff, 0xff, 0xff, 0xff]),
        wrap(&[0xdb, 0xff, 0xff, 0xff, 0xff]),
        wrap(&[0xc9, 0xff, 0xff, 0xff, 0xff]),
        stored(&[0xdd, 0xff, 0xff, 0xff, 0xff]),
        stored(&[0x91, 0xc6, 0xff, 0xff, 0xff, 0xff]),
        [0x91; 100_000].to_vec(),
        stored(&[0x91; 100_000]),
        wrap(&[0x81; 100_000]),
        wrap(&[0xdf; 100_000]),
    ] {
        check_bounds(&payload);
    }
}

#[test]
fn the_densest_payloads_stay_within_the_bound() {
    let wrap = |event: &[u8], count: u32| {
        let mut payload = vec![0x92, 0xc0, 0xdd];
        payload.extend(count.to_be_bytes());
        payload.extend(event.repeat(count as usize));
        payload
    };
    check_bounds(&wrap(
        &[&[0x92, 0xab][..], b"BlockStored", &[0x90]].concat(),
        20_000,
    ));
    check_bounds(&wrap(
        &[&[0x92, 0xac][..], b"BlockRemoved", &[0x92, 0, 0]].concat(),
        20_000,
    ));
    let many = |field: usize, fill: &[u8]| {
        let mut event = vec![0x90 | u8::try_from(field + 2).unwrap(), 0xab];
        event.extend(b"BlockStored\x90");
        event.extend(vec![0xc0; field - 1]);
        event.push(0xdd);
        event.extend(100_001_u32.to_be_bytes());
        event.extend(fill.repeat(100_001));
        wrap(&event, 1)
    };
    check_bounds(&many(2, &[0]));
    check_bounds(&many(7, &[0xc0]));
    check_bounds(&many(7, &[0x91, 0xc0]));
}

fn names() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[a-zA-Z0-9/_-]{0,40}")
}

fn hash_json() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(|hash| json!(hash)),
        any::<i64>().prop_map(|hash| json!(hash)),
        vec(any::<u8>(), 1..70).prop_map(|bytes| json!({"$bytes": hex::encode(bytes)})),
    ]
}

fn hash_of(json: &Value) -> EngineHash {
    match json {
        Value::Object(bytes) => {
            EngineHash::from_bytes(&hex::decode(bytes["$bytes"].as_str().unwrap()).unwrap())
        }
        number => EngineHash::from_u64(
            number
                .as_u64()
                .unwrap_or_else(|| number.as_i64().unwrap().cast_unsigned()),
        ),
    }
}

proptest! {
    #[test]
    fn random_bytes(payload in vec(any::<u8>(), 0..400)) {
        check_bounds(&payload);
        check_bounds(&[&[0x93, 0xc0, 0x9f][..], &payload].concat());
    }

    #[test]
    fn mutated_payloads(which in 0usize..161, edits in vec((any::<usize>(), any::<u8>()), 1..6), cut in any::<usize>()) {
        let mut payload = golden_payloads().swap_remove(which);
        for (at, byte) in edits {
            let at = at % payload.len();
            payload[at] = byte;
        }
        check_bounds(&payload);
        check_bounds(&payload[..cut % payload.len()]);
    }

    #[test]
    fn stored_events_come_back(
        hashes in vec(hash_json(), 0..20),
        parent in proptest::option::of(hash_json()),
        tokens in vec(prop_oneof![0u32..300, any::<u32>()], 0..200),
        (block_size, group) in (0u32..5000, proptest::option::of(0u32..20)),
        (medium, lora, kind) in (names(), names(), names()),
        as_array in any::<bool>(),
    ) {
        let event = if as_array {
            json!(["BlockStored", hashes, parent, tokens, block_size, null, medium, lora, null, group, kind])
        } else {
            json!({"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
                "block_size": block_size, "lora_name": lora, "medium": medium, "group_idx": group,
                "kv_cache_spec_kind": kind})
        };
        prop_assert_eq!(stored(event), Stored {
            hashes: hashes.iter().map(hash_of).collect(),
            parent: parent.as_ref().map(hash_of),
            tokens,
            block_size,
            block_size_given: true,
            lora_name: lora,
            medium: medium.map(Name::Owned),
            group,
            kind: kind.map(Name::Owned),
            ..Stored::default()
        });
    }
}
