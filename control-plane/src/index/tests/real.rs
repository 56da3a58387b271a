//! What real engines sent: the golden payloads of 16 vLLM versions, and captures of vLLM 0.32.

use super::*;
use crate::events::{ExtraKey, decode_batch};
use serde_json::Value;

fn vector(path: &str) -> String {
    let path = format!("{}/../tests/vectors/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every id has bytes, so that every chain can be followed.
fn any_vocab() -> Arc<Vocab> {
    static ALL: LazyLock<Arc<Vocab>> = LazyLock::new(|| {
        let tokens = (0..152_000).map(|id| (id, format!(" {id}").into_bytes()));
        Arc::new(Vocab::from_tokens(tokens).unwrap())
    });
    ALL.clone()
}

fn real_fixture() -> Fixture {
    Fixture::new(IndexConfig {
        vocab: any_vocab(),
        ..config()
    })
}

#[test]
fn golden_payloads_are_held_as_they_say() {
    let golden: Vec<Value> =
        serde_json::from_str(&vector("kv-events/kv_events_golden.json")).unwrap();
    assert_eq!(golden.len(), 161);
    let vocab = any_vocab();
    for entry in &golden {
        let (version, case) = (
            entry["vllm"].as_str().unwrap(),
            entry["case"].as_str().unwrap(),
        );
        let payload = hex::decode(entry["payload_hex"].as_str().unwrap()).unwrap();
        let mut fixture = Fixture::new(IndexConfig {
            vocab: vocab.clone(),
            ..config()
        });
        let stats = fixture.index.apply(r(0), &decode_batch(&payload).unwrap());
        let index = fixture.index.stats();
        let found = (
            stats.stored,
            stats.orphans,
            stats.sparse + stats.other_group,
            index.held,
            index.pending,
        );
        let name = format!("vLLM {version} {case}: {stats:?}");
        match case {
            "int_root" | "mm_salt" => assert_eq!(found, (2, 0, 0, 2, 0), "{name}"),
            "int_child_lora" => assert_eq!(found, (0, 1, 0, 0, 1), "{name}"),
            "bytes_hash" => assert_eq!(found.3 + found.4, 1, "{name}"),
            "sparse_swa" => {
                assert_eq!((found.0, found.1, found.3, found.4), (0, 0, 0, 0), "{name}")
            }
            "cpu_placeholder" => assert_eq!(found, (0, 0, 0, 0, 1), "{name}"),
            "empty_hashes_masked" => assert_eq!((found.0, found.1, found.3), (0, 0, 0), "{name}"),
            _ => {}
        }
        fixture.drain();
        fixture.index.drop_replica(r(0));
        fixture.drain();
        assert_eq!(fixture.index.stats().nodes, 0, "{name}");
    }
}

/// What an engine holds, kept in the plainest way.
#[derive(Default)]
struct Naive {
    /// The capture's full-attention group.
    main_group: u32,
    copies: BTreeMap<u64, u32>,
    content: BTreeMap<u64, (Option<String>, Vec<u32>)>,
}

impl Naive {
    fn apply(&mut self, event: &KvEvent) {
        match event {
            KvEvent::Stored(event) => {
                if event.kind.as_deref() != Some("full_attention") {
                    return;
                }
                assert!(event.is_dense());
                let (mut salt, mut tokens) = event
                    .parent
                    .as_ref()
                    .map_or_else(Default::default, |parent| self.content[&parent.low].clone());
                if let Some([Some(keys), ..]) = event.extra_keys.as_deref()
                    && let [ExtraKey::Text(text)] = keys.as_slice()
                {
                    salt = Some(text.clone());
                }
                for (hash, block) in event
                    .hashes
                    .iter()
                    .zip(event.tokens.chunks(event.block_size as usize))
                {
                    tokens.extend(block);
                    *self.copies.entry(hash.low).or_default() += 1;
                    self.content
                        .insert(hash.low, (salt.clone(), tokens.clone()));
                }
            }
            KvEvent::Removed(event) => {
                if event.group != Some(self.main_group) {
                    return;
                }
                for hash in &event.hashes {
                    if let Some(copies) = self.copies.get_mut(&hash.low) {
                        *copies -= 1;
                    }
                }
                self.copies.retain(|_, copies| *copies > 0);
            }
            KvEvent::Cleared => self.copies.clear(),
        }
    }

    fn blocks(&self) -> BTreeSet<BlockHash> {
        let resident: BTreeSet<_> = self.copies.keys().map(|hash| &self.content[hash]).collect();
        let vocab = any_vocab();
        let mut blocks = BTreeSet::new();
        for (salt, tokens) in &resident {
            let whole = (32..tokens.len())
                .step_by(32)
                .all(|length| resident.contains(&(salt.clone(), tokens[..length].to_vec())));
            if whole {
                let text: Vec<u8> = tokens
                    .iter()
                    .flat_map(|id| vocab.bytes(*id).unwrap().to_vec())
                    .collect();
                blocks.extend(hash_text(
                    namespace_seed(Family::Text, None, salt.as_deref()),
                    &text,
                    usize::MAX,
                ));
            }
        }
        blocks
    }
}

fn replay(capture: &str, main_group: u32) -> (Fixture, usize) {
    let mut fixture = real_fixture();
    let mut naive = Naive {
        main_group,
        ..Naive::default()
    };
    let mut most = 0;
    for line in vector(capture).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(payload) = line["frames_b64"]
            .as_array()
            .and_then(|frames| frames.last())
        else {
            continue;
        };
        let payload = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            payload.as_str().unwrap(),
        )
        .unwrap();
        let batch = decode_batch(&payload).unwrap();
        batch.events.iter().for_each(|event| naive.apply(event));
        fixture.index.apply(r(0), &batch);
        let name = format!("{capture} seq {}", line["seq"]);
        assert_eq!(
            fixture.index.held_blocks(r(0)),
            naive.copies.len(),
            "{name}"
        );
        let blocks: BTreeSet<BlockHash> = fixture
            .credits()
            .into_keys()
            .map(|(hash, _)| hash)
            .collect();
        assert_eq!(blocks, naive.blocks(), "{name}");
        most = most.max(blocks.len());
    }
    (fixture, most)
}

#[test]
fn the_capture_of_one_group_is_held_as_the_engine_held_it() {
    let (fixture, most) = replay("vllm-real/capture-main.jsonl", 0);
    assert!(most > 50, "{most}");
    let stats = fixture.index.stats();
    assert_eq!(
        (
            stats.applied.unknown_removes,
            stats.applied.orphans,
            stats.applied.conflicts
        ),
        (0, 0, 0)
    );
    assert_eq!(stats.applied.cleared, 1);
}

#[test]
fn the_hybrid_capture_counts_its_full_attention_group_alone() {
    let (fixture, most) = replay("vllm-real/capture-engine3-hybrid.jsonl", 1);
    assert!(most > 20, "{most}");
    assert!(fixture.index.stats().applied.other_group > 0);
}
