//! 161 payloads encoded by the real structs of 16 vLLM versions (`tests/vectors/kv-events`), and a
//! second, naive reading of their JSON to compare with.

use base64::Engine as _;

use super::*;

/// A file of `tests/vectors`.
pub(crate) fn vector(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/vectors")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const STORED: [&str; 11] = [
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
];
const REMOVED: [&str; 3] = ["block_hashes", "medium", "group_idx"];

/// The same event as a map, whichever form it had.
fn as_map(event: &Value) -> Value {
    let Value::Array(values) = event else {
        return event.clone();
    };
    let names: &[&str] = match values[0].as_str().unwrap() {
        "BlockStored" => &STORED,
        "BlockRemoved" => &REMOVED,
        _ => &[],
    };
    let fields = std::iter::once(&"type")
        .chain(names)
        .map(|name| (*name).to_owned())
        .zip(values.iter().cloned());
    Value::Object(fields.collect())
}

fn hash(value: &Value) -> EngineHash {
    match value {
        Value::Number(number) => EngineHash::from_u64(
            number
                .as_u64()
                .unwrap_or_else(|| number.as_i64().unwrap().cast_unsigned()),
        ),
        text => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text.as_str().unwrap())
                .unwrap();
            let low = u64::from_be_bytes(*bytes.last_chunk().unwrap());
            EngineHash {
                low,
                bytes: Some(bytes.into()),
            }
        }
    }
}

fn extra_key(value: &Value) -> ExtraKey {
    match value {
        Value::String(text) => ExtraKey::Text(text.clone()),
        tuple => ExtraKey::Media {
            identifier: tuple[0].as_str().unwrap().to_owned(),
            offset: tuple[1].as_i64().unwrap(),
        },
    }
}

fn list<T>(value: &Value, item: impl Fn(&Value) -> T) -> Option<Vec<T>> {
    Some(value.as_array()?.iter().map(item).collect())
}

fn uint(value: &Value) -> Option<u32> {
    value.as_u64().map(|value| u32::try_from(value).unwrap())
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// What an event's JSON means.
pub(crate) fn expected(event: &Value) -> KvEvent {
    let event = &as_map(event);
    let hashes = || list(&event["block_hashes"], hash).unwrap();
    match event["type"].as_str().unwrap() {
        "AllBlocksCleared" => KvEvent::Cleared,
        "BlockRemoved" => KvEvent::Removed(Removed {
            hashes: hashes(),
            medium: text(&event["medium"]).map(Name::Owned),
            group: uint(&event["group_idx"]),
        }),
        "BlockStored" => {
            let lookahead = list(&event["lookahead_token_ids"], |tokens| {
                list(tokens, |token| uint(token).unwrap()).unwrap()
            });
            KvEvent::Stored(Stored {
                hashes: hashes(),
                parent: event
                    .get("parent_block_hash")
                    .filter(|parent| !parent.is_null())
                    .map(hash),
                tokens: list(&event["token_ids"], |token| uint(token).unwrap()).unwrap(),
                block_size: uint(&event["block_size"]).unwrap(),
                block_size_given: true,
                lora_id: event["lora_id"].as_i64(),
                lora_name: text(&event["lora_name"]),
                medium: text(&event["medium"]).map(Name::Owned),
                extra_keys: list(&event["extra_keys"], |keys| list(keys, extra_key)),
                cache_salt: None,
                group: uint(&event["group_idx"]),
                kind: text(&event["kv_cache_spec_kind"]).map(Name::Owned),
                sliding_window: uint(&event["kv_cache_spec_sliding_window"]),
                locality: text(&event["locality"]).map(Name::Owned),
                lookahead: lookahead
                    .as_ref()
                    .map_or(0, |lists| u32::try_from(lists[0].len()).unwrap()),
                lookahead_tokens: lookahead.unwrap_or_default().concat(),
                bigram: false,
            })
        }
        other => panic!("{other}"),
    }
}

#[test]
fn all_golden_payloads_decode_to_their_json() {
    let golden: Vec<Value> =
        serde_json::from_str(&vector("kv-events/kv_events_golden.json")).unwrap();
    assert_eq!(golden.len(), 161);
    for entry in &golden {
        let name = format!("vLLM {} {}", entry["vllm"], entry["case"]);
        let payload = hex::decode(entry["payload_hex"].as_str().unwrap()).unwrap();
        let batch = decode_batch(&payload).unwrap();
        assert_eq!(
            (&batch.notes[..], &batch.problems[..]),
            (&[][..], &[][..]),
            "{name}"
        );
        let (events, rank) = match entry.get("json") {
            Some(json) => {
                assert_eq!(json[0].as_f64(), Some(batch.ts), "{name}");
                (list(&json[1], expected).unwrap(), json[2].as_i64())
            }
            None => (mixed(&golden, entry), Some(3)),
        };
        assert_eq!(batch.events, events, "{name}");
        assert_eq!(batch.rank, rank, "{name}");
    }
}

/// The batches without JSON hold a clearing and three of the same version's other cases.
fn mixed(golden: &[Value], entry: &Value) -> Vec<KvEvent> {
    assert_eq!(entry["case"], "mixed_batch_dp3");
    let case = |name: &str| {
        let found = golden
            .iter()
            .find(|other| other["vllm"] == entry["vllm"] && other["case"] == name);
        expected(&found.unwrap()["json"][1][0])
    };
    vec![
        KvEvent::Cleared,
        case("int_root"),
        case("removed"),
        case("int_child_lora"),
    ]
}
