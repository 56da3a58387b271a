//! A frozen page, read and written, natively and as wasm.
//!
//! The file comes from another implementation, `tests/vectors/wire/v1/generate.py`.

use std::collections::BTreeMap;

use serde_json::Value;
// Plain tests natively and under WASI; this where there is no test harness.
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

const FILE: &str = include_str!("../../../../tests/vectors/wire/v1/page.json");

fn vectors() -> Value {
    serde_json::from_str(FILE).expect("JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> u32 {
    value.as_u64().expect("a number") as u32
}

fn bytes(value: &Value) -> Vec<u8> {
    let digits = value.as_str().expect("a string").as_bytes();
    let pairs = digits.as_chunks::<2>().0.iter();
    pairs
        .map(|pair| {
            let pair = core::str::from_utf8(pair).expect("hex digits");
            u8::from_str_radix(pair, 16).expect("hex digits")
        })
        .collect()
}

fn hashes(value: &Value) -> Vec<BlockHash> {
    let hash = |digits: &Value| {
        BlockHash(u64::from_str_radix(digits.as_str().expect("a string"), 16).expect("hex digits"))
    };
    list(value).iter().map(hash).collect()
}

fn run(value: &Value) -> RunSpec {
    let holder = |holder: &Value| Holder {
        replica: ReplicaIndex(number(&holder[0]) as u16),
        gpu: number(&holder[1]) as u8,
        any: number(&holder[2]) as u8,
    };
    RunSpec {
        start: number(&value["start"]) as u8,
        hashes: hashes(&value["hashes"]),
        tokens: list(&value["tokens"]).iter().map(number).collect(),
        holders: list(&value["holders"]).iter().map(holder).collect(),
    }
}

fn groups(vectors: &Value) -> Vec<(GroupSpec, Vec<u8>)> {
    list(&vectors["groups"])
        .iter()
        .map(|group| {
            let spec = GroupSpec {
                base_tokens: number(&group["spec"]["base_tokens"]),
                split: group["spec"]["split"].as_u64().map(|split| split as u8),
                runs: list(&group["spec"]["runs"]).iter().map(run).collect(),
            };
            (spec, bytes(&group["body"]))
        })
        .collect()
}

#[test]
fn frozen_groups() {
    for (spec, body) in groups(&vectors()) {
        assert_eq!(encode_group(&spec), Ok(body));
    }
}

#[test]
fn frozen_page() {
    let vectors = vectors();
    let meta = &vectors["meta"];
    let epoch = Epoch(meta["epoch"].as_u64().expect("a number"));
    let expected = bytes(&vectors["page"]);

    let header = PageRef::verify(&expected).expect("a good page").header();
    assert_eq!(
        (header.epoch, header.generation),
        (epoch, number(&meta["generation"]))
    );
    assert_eq!(
        (header.index, header.seq),
        (number(&meta["index"]), u64::from(number(&meta["seq"])))
    );

    // A delta on an empty page of that generation gives the same bytes.
    let empty = super::super::page::build_page(PageHeader { seq: 0, ..header }, &[]);
    let delta = groups(&vectors)
        .into_iter()
        .map(|(spec, body)| GroupChange {
            anchor: spec.runs[0].hashes[0],
            body: Some(body),
        })
        .collect();
    let meta = PageMeta {
        epoch,
        generation: header.generation,
        index: header.index,
        to_seq: header.seq,
    };
    let page = apply_change(Some(&empty), meta, &PageContent::Delta(delta));
    assert_eq!(page, Ok(Some(expected)));
}

#[test]
fn frozen_look_ups() {
    let vectors = vectors();
    let page = bytes(&vectors["page"]);
    let header = PageRef::verify(&page).expect("a good page").header();
    let shape = TableShape {
        epoch: header.epoch,
        generation: header.generation,
        page_count: number(&vectors["page_count"]),
    };
    for look_up in list(&vectors["lookups"]) {
        let hashes = hashes(&look_up["hashes"]);
        let matches = lookup(
            &shape,
            &hashes,
            &mut |_| Some(page.clone()),
            LookupLimits::default(),
        );
        let found: BTreeMap<String, [u32; 4]> = matches
            .replicas
            .iter()
            .map(|m| {
                let counts = [m.gpu_blocks, m.gpu_tokens, m.any_blocks, m.any_tokens];
                (m.replica.0.to_string(), counts)
            })
            .collect();
        let expected: BTreeMap<String, [u32; 4]> = look_up["matches"]
            .as_object()
            .expect("an object")
            .iter()
            .map(|(replica, counts)| {
                (
                    replica.clone(),
                    core::array::from_fn(|i| number(&counts[i])),
                )
            })
            .collect();
        assert_eq!(found, expected);
        assert_eq!(matches.reads, 1);
    }
}
