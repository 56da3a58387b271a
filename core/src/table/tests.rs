//! Tests of the table. All run natively and as wasm, but for the property tests.

mod damage;
mod fan_out;
mod pages;
#[cfg(not(target_arch = "wasm32"))]
mod properties;
#[cfg(not(target_arch = "wasm32"))]
mod sync;
mod trie;
mod vectors;

use super::*;
use crate::ids::{BlockHash, Epoch, ReplicaIndex};
use trie::Trie;

const EPOCH: Epoch = Epoch(7);

/// Reads everything, refines everybody.
const UNLIMITED: LookupLimits = LookupLimits {
    max_reads: 100_000,
    refine: usize::MAX,
};

/// A chain's next hash: `salt` tells siblings apart.
fn next_hash(parent: u64, salt: u64) -> BlockHash {
    let mut x = parent ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    BlockHash(x ^ (x >> 31))
}

/// The first `shared` hashes of `prefix`, then `more` of a branch of its own.
fn branch(prefix: &[BlockHash], shared: usize, salt: u64, more: usize) -> Vec<BlockHash> {
    let mut chain: Vec<BlockHash> = prefix[..shared.min(prefix.len())].to_vec();
    for at in 0..more as u64 {
        let parent = chain.last().map_or(1, |hash| hash.0);
        chain.push(next_hash(parent, if at == 0 { salt } else { 1 }));
    }
    chain
}

/// Tokens up to each block's end: about 64 a block, by the block's hash, so that chains that share
/// blocks share counts.
fn tokens_of(chain: &[BlockHash]) -> Vec<u32> {
    let mut total = 0;
    chain
        .iter()
        .map(|hash| {
            total += 50 + (hash.0 % 30) as u32;
            total
        })
        .collect()
}

fn shape(store: &TableStore) -> TableShape {
    TableShape {
        epoch: store.epoch(),
        generation: store.generation(),
        page_count: store.page_count(),
    }
}

fn look_up(store: &TableStore, hashes: &[BlockHash], limits: LookupLimits) -> Matches {
    lookup(
        &shape(store),
        hashes,
        &mut |index| Some(store.page(index)),
        limits,
    )
}

fn filled(trie: &Trie, limit: usize, mut store: TableStore) -> TableStore {
    trie.groups(limit, |anchor, body| {
        assert!(store.upsert(anchor, body), "each anchor once");
    });
    store
}
