//! The decoder, form by form. `golden` and `captures` hold it against real engines, `properties`
//! against random ones.

use serde_json::{Value, json};

use super::*;

mod captures;
pub(crate) mod encode;
pub(crate) mod golden;
mod properties;

use encode::msgpack;

/// Decodes a batch of these events.
fn batch(events: Value) -> KvEventBatch {
    decode_batch(&msgpack(&json!([1.5, events, 0]))).unwrap()
}

/// Decodes one event that must be right and raise no remark.
fn stored(event: Value) -> Stored {
    let batch = batch(json!([event]));
    assert_eq!((&batch.notes[..], &batch.problems[..]), (&[][..], &[][..]));
    match batch.events.as_slice() {
        [KvEvent::Stored(stored)] => stored.clone(),
        other => panic!("{other:?}"),
    }
}

/// The problem with one event, between two good ones that must survive it.
fn problem(event: Value) -> String {
    let batch = batch(json!([["AllBlocksCleared"], event, {"type": "AllBlocksCleared"}]));
    assert_eq!(
        batch.events,
        [KvEvent::Cleared, KvEvent::Cleared],
        "{event}"
    );
    assert_eq!(batch.bad_events, 1);
    assert_eq!(batch.rank, Some(0));
    let [problem] = &batch.problems[..] else {
        panic!("{:?}", batch.problems)
    };
    problem.clone()
}

#[test]
fn arrays_of_every_length() {
    let full = json!([
        "BlockStored",
        [7],
        6,
        [1, 2],
        2,
        3,
        "CPU",
        "sql",
        [["sql"]],
        4,
        "sliding_window",
        128
    ]);
    for length in 2..=12 {
        let event = stored(Value::Array(full.as_array().unwrap()[..length].to_vec()));
        assert_eq!(event.hashes, [EngineHash::from_u64(7)]);
        assert_eq!(event.parent.is_some(), length > 2);
        assert_eq!(event.tokens.len(), if length > 3 { 2 } else { 0 });
        assert_eq!(
            (event.block_size, event.block_size_given),
            if length > 4 { (2, true) } else { (0, false) }
        );
        assert_eq!(event.lora_id, (length > 5).then_some(3));
        assert_eq!(event.medium.as_deref(), (length > 6).then_some("CPU"));
        assert_eq!(event.lora_name.as_deref(), (length > 7).then_some("sql"));
        assert_eq!(event.extra_keys.is_some(), length > 8);
        assert_eq!(event.group, (length > 9).then_some(4));
        assert_eq!(
            event.kind.as_deref(),
            (length > 10).then_some("sliding_window")
        );
        assert_eq!(event.sliding_window, (length > 11).then_some(128));
    }
}

#[test]
fn nil_anywhere_is_absence() {
    let names = [
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
        "kv_cache_spec_sliding_window",
        "locality",
        "ownership",
        "session_id",
        "lookahead_token_ids",
        "cache_salt",
    ];
    let mut map = serde_json::Map::from_iter([("type".to_owned(), json!("BlockStored"))]);
    map.extend(names.map(|name| (name.to_owned(), Value::Null)));
    assert_eq!(stored(Value::Object(map)), Stored::default());
    let mut array = vec![json!("BlockStored")];
    array.extend((0..11).map(|_| Value::Null));
    assert_eq!(stored(Value::Array(array)), Stored::default());
    let batch = decode_batch(&msgpack(&json!([null, null, null]))).unwrap();
    assert_eq!(batch, KvEventBatch::default());
}

#[test]
fn the_outer_array_may_be_shorter_or_longer() {
    let short = decode_batch(&msgpack(&json!([1, []]))).unwrap();
    assert_eq!((short.ts, short.rank, short.notes.len()), (1.0, None, 0));
    let long = decode_batch(&msgpack(&json!([1, [], 2, "new", {"a": [1]}]))).unwrap();
    assert_eq!(
        (long.rank, &long.notes[..]),
        (
            Some(2),
            &["2 unknown elements at the batch's end".to_owned()][..]
        )
    );
    for wrong in [
        json!([]),
        json!([1.0]),
        json!({"ts": 1}),
        json!("x"),
        json!([1.0, 7, 0]),
        json!(["x", [], 0]),
    ] {
        assert!(decode_batch(&msgpack(&wrong)).is_err(), "{wrong}");
    }
    assert!(decode_batch(&[]).is_err());
}

#[test]
fn the_type_need_not_be_a_maps_first_entry() {
    let event =
        json!({"block_hashes": [1], "token_ids": [5], "type": "BlockStored", "block_size": 1});
    assert_eq!(stored(event).tokens, [5]);
}

#[test]
fn arrays_and_maps_mix_in_one_batch() {
    let batch = batch(
        json!([["BlockRemoved", [1]], {"type": "BlockRemoved", "block_hashes": [2], "medium": "cpu"}]),
    );
    let removed = |hash, medium: Option<&'static str>| {
        KvEvent::Removed(Removed {
            hashes: vec![EngineHash::from_u64(hash)],
            medium: medium.map(Name::Borrowed),
            group: None,
        })
    };
    assert_eq!(batch.events, [removed(1, None), removed(2, Some("cpu"))]);
}

#[test]
fn unknown_tags_and_fields_are_notes() {
    let batch = batch(json!([
        ["TierBlocksCleared", "CPU", {"x": [1]}],
        {"type": "BlockMoved", "to": [1, 2]},
        {"type": "BlockRemoved", "block_hashes": [1], "reason": {"why": ["lru"]}},
        {"type": "BlockRemoved", "block_hashes": [1], "reason": "again"},
        ["BlockRemoved", [1], "GPU", 0, "more"],
        ["AllBlocksCleared", 5],
    ]));
    assert_eq!(batch.events.len(), 4);
    assert_eq!(batch.problems, [""; 0]);
    assert_eq!(
        batch.notes,
        [
            "unknown event \"TierBlocksCleared\"",
            "unknown event \"BlockMoved\"",
            "BlockRemoved: unknown field \"reason\"",
            "BlockRemoved: unknown element 4",
            "AllBlocksCleared: unknown element 1",
        ]
    );
}

#[test]
fn a_bad_event_does_not_lose_its_batch() {
    let cases = [
        (
            json!(7),
            "event 1: wanted an array or a map, found an unsigned integer",
        ),
        (json!(null), "event 1: wanted an array or a map, found nil"),
        (json!([]), "event 1: event.tag: missing"),
        (
            json!([7]),
            "event 1: event.tag: wanted a string, found an unsigned integer",
        ),
        (json!({"block_hashes": [1]}), "event 1: event.type: missing"),
        (
            json!(["BlockStored"]),
            "event 1: BlockStored.block_hashes: missing",
        ),
        (
            json!({"type": "BlockRemoved"}),
            "event 1: BlockRemoved.block_hashes: missing",
        ),
        (
            json!(["BlockRemoved", "h"]),
            "event 1: BlockRemoved.block_hashes: wanted an array, found a string",
        ),
        (
            json!(["BlockRemoved", [1.5]]),
            "event 1: BlockRemoved.block_hashes: wanted a block hash (integer or bytes), found a float",
        ),
        (
            json!(["BlockStored", [1], null, [-1], 1]),
            "event 1: BlockStored.token_ids: -1 is out of range for a token id",
        ),
        (
            json!(["BlockStored", [1], null, [1], 1, "x"]),
            "event 1: BlockStored.lora_id: wanted a LoRA number, found a string",
        ),
        (
            json!(["BlockStored", [1], null, [1], 1, null, 5]),
            "event 1: BlockStored.medium: wanted a medium, found an unsigned integer",
        ),
    ];
    for (event, expected) in cases {
        assert_eq!(problem(event), expected);
    }
}

#[test]
fn absurd_block_sizes_are_refused() {
    let with = |size: Value| json!({"type": "BlockStored", "block_hashes": [1], "token_ids": [], "block_size": size});
    for size in [json!(-16), json!((1 << 20) + 1), json!(u64::MAX)] {
        assert_eq!(
            problem(with(size.clone())),
            format!("event 1: BlockStored.block_size: {size} is out of range for a block size")
        );
    }
    assert_eq!(stored(with(json!(3584))).block_size, 3584);
}

#[test]
fn a_payload_cut_short_keeps_the_events_before_the_cut() {
    let whole = msgpack(&json!([
        1.0,
        [
            ["AllBlocksCleared"],
            ["BlockRemoved", [1, 2, 3]],
            ["AllBlocksCleared"]
        ],
        5
    ]));
    let cut = decode_batch(&whole[..whole.len() - 22]).unwrap();
    assert_eq!(cut.events, [KvEvent::Cleared]);
    assert_eq!((cut.rank, cut.bad_events), (None, 2));
    assert_eq!(
        cut.problems.last().unwrap(),
        "the payload ends inside event 1 of 3"
    );
}

#[test]
fn many_bad_events_make_few_remarks() {
    let batch = batch(Value::Array((0..1000).map(|n| json!(n)).collect()));
    assert_eq!(
        (batch.problems.len(), batch.bad_events),
        (MAX_REMARKS, 1000)
    );
}

#[test]
fn hashes_of_every_width() {
    let hash = |bytes: &[u8]| {
        let mut payload = vec![0x92, 0xc0, 0x91, 0x92, 0xac];
        payload.extend(b"BlockRemoved\x91");
        payload.extend(bytes);
        match decode_batch(&payload).unwrap().events.as_slice() {
            [KvEvent::Removed(removed)] => removed.hashes[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(hash(&[0x05]).low, 5);
    assert_eq!(hash(&[0xff]).low, u64::MAX, "-1");
    assert_eq!(hash(&[0xcc, 0xf0]).low, 0xf0);
    assert_eq!(hash(&[0xd0, 0xf0]).low, (-16_i64).cast_unsigned());
    assert_eq!(hash(&[0xd1, 0x80, 0]).low, (-32768_i64).cast_unsigned());
    assert_eq!(
        hash(&[0xd2, 0xff, 0xff, 0xff, 0xfe]).low,
        (-2_i64).cast_unsigned()
    );
    assert_eq!(
        hash(&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 1]).to_string(),
        "8000000000000001"
    );
    assert_eq!(
        hash(&[0xcf, 0xff, 0, 0, 0, 0, 0, 0, 1]).to_string(),
        "ff00000000000001"
    );
    let bytes = hash(&[0xc4, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(
        (bytes.low, bytes.to_string().as_str()),
        (0x0203_0405_0607_0809, "00010203040506070809")
    );
    assert_eq!(hash(&[0xc4, 2, 1, 2]).low, 0x0102);
}

#[test]
fn sglang_sends_a_map_where_vllm_has_the_lora_name() {
    let event =
        stored(json!(["BlockStored", [-5], null, [1], 1, null, "GPU", {"cache_salt": "t"}]));
    assert_eq!(
        (event.cache_salt.as_deref(), event.lora_name),
        (Some("t"), None)
    );
    let event =
        stored(json!(["BlockStored", [-5], null, [1], 1, null, "GPU", {"cache_salt": null}]));
    assert_eq!(event.cache_salt, None);
    let event = stored(
        json!({"type": "BlockStored", "block_hashes": [-5], "token_ids": [1], "block_size": 1,
        "cache_salt": "t", "session_id": "s", "lora_name": "l"}),
    );
    assert_eq!(
        (event.cache_salt.as_deref(), event.lora_name.as_deref()),
        (Some("t"), Some("l"))
    );
    assert_eq!(event.hashes[0].low, (-5_i64).cast_unsigned());
}

#[test]
fn bigram_pairs_count_as_their_first_token() {
    let event = stored(json!([
        "BlockStored",
        [1],
        null,
        [[5, 6], [6, 70000], [70000, 8]],
        3
    ]));
    assert_eq!(
        (&event.tokens[..], event.bigram),
        (&[5, 6, 70000][..], true)
    );
    assert!(!stored(json!(["BlockStored", [1], null, [5, 6], 2])).bigram);
}

#[test]
fn a_medium_may_be_wrapped() {
    for medium in [
        json!("DISK"),
        json!(["DISK", 3]),
        json!({"name": "DISK"}),
        json!([{"tier": ["DISK"]}]),
    ] {
        let event = stored(json!(["BlockStored", [1], null, [5], 1, null, medium]));
        assert_eq!(event.medium.as_deref(), Some("DISK"));
    }
    let unknown = stored(json!(["BlockStored", [1], null, [5], 1, null, "Tape"]));
    assert_eq!(unknown.medium, Some(Name::Owned("Tape".to_owned())));
}

#[test]
fn lookahead_lists_are_flattened() {
    let with = |lists: Value| {
        json!({"type": "BlockStored", "block_hashes": [1, 2], "token_ids": [5, 6], "block_size": 1,
            "lookahead_token_ids": lists})
    };
    let event = stored(with(json!([[6, 7], [7, 8]])));
    assert_eq!(
        (event.lookahead, &event.lookahead_tokens[..]),
        (2, &[6, 7, 7, 8][..])
    );
    let uneven = batch(json!([with(json!([[6, 7], [7]]))]));
    assert_eq!(uneven.notes.len(), 1);
}

#[test]
fn extra_keys_tagged_or_not() {
    let event = stored(
        json!({"type": "BlockStored", "block_hashes": [1], "token_ids": [5], "block_size": 1,
        "extra_keys": [["a", ["img", -3], ["mm", "img", 4], ["cache_salt", "s"], ["lora", "l", "/p"], 5, [1, 2]]]}),
    );
    let media = |offset| ExtraKey::Media {
        identifier: "img".into(),
        offset,
    };
    assert_eq!(
        event.extra_keys.unwrap()[0].as_deref().unwrap(),
        [
            ExtraKey::Text("a".into()),
            media(-3),
            media(4),
            ExtraKey::Salt("s".into()),
            ExtraKey::Lora { name: "l".into() },
            ExtraKey::Unknown,
            ExtraKey::Unknown,
        ]
    );
}

#[test]
fn only_dense_runs_say_which_tokens_are_whose() {
    let dense = |hashes: usize, tokens: usize, size: u32| {
        Stored {
            hashes: vec![EngineHash::default(); hashes],
            tokens: vec![0; tokens],
            block_size: size,
            ..Stored::default()
        }
        .is_dense()
    };
    assert!(dense(2, 32, 16));
    assert!(!dense(1, 64, 16) && !dense(0, 16, 16) && !dense(1, 0, 0));
    assert!(dense(0, 0, 16));
}

#[test]
fn fields_in_any_order() {
    let event = stored(
        json!({"medium": "GPU", "block_size": 1, "token_ids": [5], "cache_salt": "s",
        "type": "BlockStored", "lora_name": null, "block_hashes": [1], "group_idx": 2}),
    );
    assert_eq!(event.hashes.len(), 1);
    assert_eq!(
        (event.tokens.len(), event.group, event.cache_salt.as_deref()),
        (1, Some(2), Some("s"))
    );
}

#[test]
fn only_what_may_have_been_a_removal_makes_a_batch_lose_removals() {
    let lost = |events: Value| batch(events).lost_removals;
    assert!(!lost(
        json!([{"type": "AllBlocksCleared"}, ["BlockStored", 1]])
    ));
    assert!(!lost(json!([{"type": "BlockStored", "block_hashes": "x"}])));
    assert!(!lost(json!([["SomethingNew", 1]])));
    assert!(lost(json!([["BlockRemoved", "x"]])));
    assert!(lost(json!([{"type": "BlockRemoved", "block_hashes": "x"}])));
    assert!(lost(json!([17])));
}
