//! Tests of the index: named cases, and random events against a naive model.

mod adapters;
mod checkpoints;
mod churn;
mod fan_out;
mod grown;
mod identity;
mod media;
mod model;
mod real;
mod scenarios;
mod snapshots;

use super::*;
use crate::events::{EngineHash, Stored};
use prefix_picker_core::blocks::{Family, Namespace, Seed, hash_ids, hash_text, seed};
use prefix_picker_core::table::GroupSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

const PROFILE: u64 = 77;

/// Token `n` below 1000: a word of some 30 bytes with a space in front. 1000 and more: the first half
/// of word `n - 1000`; 2000 and more: its rest, so that one text has several tokenisations. 3000 and
/// 3001 are placeholders of media. 5000 has no bytes.
fn word(n: u32) -> String {
    format!(" word{n:03}{}", "x".repeat(20 + n as usize % 13))
}

static VOCAB: LazyLock<Arc<Vocab>> = LazyLock::new(|| {
    let mut tokens = vec![
        (3000, b"<|image_pad|>".to_vec()),
        (3001, b"<video>".to_vec()),
    ];
    for n in 0..1000 {
        let bytes = word(n).into_bytes();
        let (first, rest) = bytes.split_at(7);
        tokens.push((1000 + n, first.to_vec()));
        tokens.push((2000 + n, rest.to_vec()));
        tokens.push((n, bytes));
    }
    Arc::new(Vocab::from_tokens(tokens).unwrap())
});

fn test_vocab() -> Arc<Vocab> {
    VOCAB.clone()
}

fn key() -> PoolKey {
    PoolKey::derive(b"a secret for tests", "pool")
}

fn config() -> IndexConfig {
    IndexConfig {
        key: key(),
        profile_hash: PROFILE,
        vocab: test_vocab(),
        text: true,
        token_ids: false,
        full_reports: false,
        check_grown: false,
        untold_salts: false,
        eagle_drops_block: false,
        memory_budget_bytes: usize::MAX,
    }
}

fn namespace_seed(family: Family, lora: Option<&str>, salt: Option<&str>) -> Seed {
    seed(
        &key(),
        &Namespace {
            family,
            profile_hash: PROFILE,
            lora,
            salt,
        },
    )
}

fn text_of(tokens: &[u32]) -> Vec<u8> {
    let vocab = test_vocab();
    tokens
        .iter()
        .flat_map(|token| vocab.bytes(*token).unwrap().to_vec())
        .collect()
}

fn text_hashes(tokens: &[u32], lora: Option<&str>, salt: Option<&str>) -> Vec<BlockHash> {
    hash_text(
        namespace_seed(Family::Text, lora, salt),
        &text_of(tokens),
        usize::MAX,
    )
}

fn r(index: u16) -> ReplicaIndex {
    ReplicaIndex(index)
}

fn hashes(values: &[u64]) -> Vec<EngineHash> {
    values
        .iter()
        .map(|value| EngineHash::from_u64(*value))
        .collect()
}

/// A GPU store as a new vLLM sends it.
fn store(of: &[u64], parent: Option<u64>, tokens: &[u32]) -> Stored {
    Stored {
        hashes: hashes(of),
        parent: parent.map(EngineHash::from_u64),
        tokens: tokens.to_vec(),
        block_size: u32::try_from(tokens.len() / of.len().max(1)).unwrap(),
        block_size_given: true,
        medium: Some("GPU".into()),
        extra_keys: Some(vec![None; of.len()]),
        ..Stored::default()
    }
}

fn remove(of: &[u64]) -> KvEvent {
    KvEvent::Removed(Removed {
        hashes: hashes(of),
        medium: Some("GPU".into()),
        group: None,
    })
}

fn remove_from(of: &[u64], medium: &'static str) -> KvEvent {
    KvEvent::Removed(Removed {
        hashes: hashes(of),
        medium: Some(medium.into()),
        group: None,
    })
}

fn placeholder(of: &[u64]) -> KvEvent {
    KvEvent::Stored(Stored {
        hashes: hashes(of),
        medium: Some("CPU".into()),
        ..Stored::default()
    })
}

fn batch(events: Vec<KvEvent>) -> KvEventBatch {
    KvEventBatch {
        events,
        ..KvEventBatch::default()
    }
}

/// An index with the table that its drains make.
struct Fixture {
    index: PoolIndex,
    table: BTreeMap<BlockHash, GroupSpec>,
}

/// (block, replica) -> (in GPU, tokens)
type Credits = BTreeMap<(BlockHash, ReplicaIndex), (bool, u32)>;

impl Fixture {
    fn new(config: IndexConfig) -> Self {
        Self {
            index: PoolIndex::new(config),
            table: BTreeMap::new(),
        }
    }

    fn apply(&mut self, replica: u16, events: Vec<KvEvent>) -> ApplyStats {
        self.index.apply(r(replica), &batch(events))
    }

    fn store(&mut self, replica: u16, event: Stored) -> ApplyStats {
        self.apply(replica, vec![KvEvent::Stored(event)])
    }

    /// Stores a whole prompt of blocks of 4 tokens, hashes `first_hash`...
    fn store_prompt(&mut self, replica: u16, first_hash: u64, tokens: &[u32]) -> Vec<u64> {
        let of: Vec<u64> = (first_hash..first_hash + tokens.len() as u64 / 4).collect();
        self.store(replica, store(&of, None, tokens));
        of
    }

    /// Brings the table up to date. Returns how many groups were written.
    fn drain(&mut self) -> usize {
        self.index.settle();
        let mut written = 0;
        let table = &mut self.table;
        self.index.drain_dirty(|anchor, spec| {
            written += 1;
            match spec {
                Some(spec) => {
                    assert_eq!(spec.runs[0].hashes[0], anchor);
                    prefix_picker_core::table::encode_group(&spec).unwrap();
                    table.insert(anchor, spec);
                }
                None => {
                    table.remove(&anchor);
                }
            }
        });
        assert!(!self.index.is_dirty());
        written
    }

    /// All that the table says.
    fn credits(&mut self) -> Credits {
        self.drain();
        let mut credits = Credits::new();
        for run in self.table.values().flat_map(|spec| &spec.runs) {
            for (at, hash) in run.hashes.iter().enumerate() {
                for holder in &run.holders {
                    if usize::from(holder.any) > at {
                        let before = credits.insert(
                            (*hash, holder.replica),
                            (usize::from(holder.gpu) > at, run.tokens[at]),
                        );
                        assert_eq!(before, None, "a block is described twice");
                    }
                }
            }
        }
        credits
    }

    /// How many of a prompt's blocks a replica is credited with: in GPU, in any tier.
    fn depth(&mut self, replica: u16, hashes: &[BlockHash]) -> (usize, usize) {
        let credits = self.credits();
        let any = hashes
            .iter()
            .take_while(|hash| credits.contains_key(&(**hash, r(replica))))
            .count();
        let gpu = hashes
            .iter()
            .take_while(|hash| {
                credits
                    .get(&(**hash, r(replica)))
                    .is_some_and(|credit| credit.0)
            })
            .count();
        (gpu, any)
    }

    fn text_depth(&mut self, replica: u16, tokens: &[u32]) -> (usize, usize) {
        self.depth(replica, &text_hashes(tokens, None, None))
    }
}

fn words(from: u32, count: u32) -> Vec<u32> {
    (from..from + count).collect()
}
