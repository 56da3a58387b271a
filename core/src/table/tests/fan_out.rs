//! Tables that would break a naive grouping, and what they cost.

// Plain tests natively and under WASI; this where there is no test harness.
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::trie::Truth;
use super::*;

/// Fewer under wasm, which runs unoptimised.
const MANY: u64 = if cfg!(target_arch = "wasm32") {
    5_000
} else {
    200_000
};

struct Cost<'a> {
    trie: &'a Trie,
    bytes_per_block: f64,
    largest_page: usize,
    store: TableStore,
}

fn cost<'a>(name: &str, trie: &'a Trie) -> Cost<'a> {
    let store = filled(
        trie,
        GROUP_TARGET_BYTES,
        TableStore::new(EPOCH, PAGE_TARGET_BYTES),
    );
    let bytes_per_block = store.bytes() as f64 / trie.blocks() as f64;
    let largest_page = (0..store.page_count())
        .map(|index| store.page(index).len())
        .max()
        .unwrap_or(0);
    println!(
        "{name}: {} blocks in {} groups, {} pages, {bytes_per_block:.1} bytes a block, largest page {largest_page}",
        trie.blocks(),
        store.len(),
        store.page_count(),
    );
    Cost {
        trie,
        bytes_per_block,
        largest_page,
        store,
    }
}

/// Finds `chain` whole, at `replica`, in few reads.
fn check(cost: &Cost<'_>, chain: &[BlockHash], replica: u16, max_reads: u32) {
    let found = look_up(&cost.store, chain, LookupLimits::default());
    assert!(found.reads <= max_reads, "{} reads", found.reads);
    let owner = found
        .replicas
        .iter()
        .find(|found| found.replica.0 == replica)
        .expect("a match");
    let truth = Truth {
        gpu_blocks: owner.gpu_blocks,
        gpu_tokens: owner.gpu_tokens,
        any_blocks: owner.any_blocks,
        any_tokens: owner.any_tokens,
    };
    assert_eq!(truth, cost.trie.truth(chain, ReplicaIndex(replica)));
    assert_eq!(owner.gpu_blocks as usize, chain.len());
    assert!(
        found
            .replicas
            .iter()
            .all(|other| other.gpu_blocks <= owner.gpu_blocks)
    );
}

#[test]
fn one_system_prompt_with_many_continuations() {
    // 4K tokens and a bit: the fan-out is inside a group.
    for trunk_blocks in [64, 70] {
        let trunk = branch(&[], 0, 1, trunk_blocks);
        let continuation = |n: u64| branch(&trunk, trunk_blocks, n + 2, 4 + (n % 9) as usize);
        let mut trie = Trie::default();
        for replica in 0..8 {
            let tokens = tokens_of(&trunk);
            trie.hold(
                &trunk,
                &tokens,
                ReplicaIndex(replica),
                trunk_blocks,
                trunk_blocks,
            );
        }
        for n in 0..MANY {
            let chain = continuation(n);
            let (tokens, len) = (tokens_of(&chain), chain.len());
            trie.hold_from(
                trunk_blocks,
                &chain,
                &tokens,
                ReplicaIndex((n % 8) as u16),
                len,
                len,
            );
        }
        let cost = cost(
            &format!("{MANY} continuations of {trunk_blocks} blocks"),
            &trie,
        );
        assert!(cost.bytes_per_block <= 16.0);
        assert!(cost.largest_page < 4 * PAGE_TARGET_BYTES);
        for n in (0..MANY).step_by(MANY as usize / 50) {
            check(&cost, &continuation(n), (n % 8) as u16, 6);
        }
    }
}

#[test]
fn many_distinct_first_blocks() {
    let chain = |n: u64| branch(&[], 0, n + 1, 8);
    let mut trie = Trie::default();
    for n in 0..MANY {
        let chain = chain(n);
        trie.hold(
            &chain,
            &tokens_of(&chain),
            ReplicaIndex((n % 8) as u16),
            8,
            8,
        );
    }
    let cost = cost(&format!("{MANY} distinct first blocks"), &trie);
    assert!(cost.bytes_per_block <= 16.0);
    assert!(cost.largest_page < 4 * PAGE_TARGET_BYTES);
    for n in (0..MANY).step_by(MANY as usize / 50) {
        check(&cost, &chain(n), (n % 8) as u16, 1);
    }
}

#[test]
fn a_branch_at_every_block() {
    // The worst case for splits: each block of a long trunk has a thousand continuations.
    let trunk = branch(&[], 0, 1, 128);
    let width = MANY / 1000;
    let mut trie = Trie::default();
    for at in 1..128usize {
        for n in 0..width {
            let chain = branch(&trunk, at, n + 2, 2);
            trie.hold(
                &chain,
                &tokens_of(&chain),
                ReplicaIndex((n % 8) as u16),
                at + 2,
                at + 2,
            );
        }
    }
    let cost = cost("a branch at every block", &trie);
    assert!(cost.largest_page < 8 * PAGE_TARGET_BYTES);
    for at in [1, 31, 32, 33, 63, 100, 127] {
        let chain = branch(&trunk, at, 3, 2);
        let found = look_up(&cost.store, &chain, LookupLimits::default());
        assert!(found.reads <= 40);
        let best = found.replicas.iter().map(|found| found.gpu_blocks).max();
        println!("  branch at {at}: {} reads, {best:?} blocks", found.reads);
        if found.reads < 40 {
            assert_eq!(best, Some(at as u32 + 2));
        }
    }
}

#[test]
fn long_prefixes_at_8_and_256_replicas() {
    let prompts = if cfg!(target_arch = "wasm32") { 2 } else { 12 };
    for replicas in [8u64, 256] {
        // Everybody holds a system prompt; each 1600-block prompt is at one replica whole, at the
        // others to depths of their own, in both tiers.
        let system = branch(&[], 0, 1, 70);
        let mut trie = Trie::default();
        let prompt = |n: u64| branch(&system, 70, n + 2, 1530);
        for n in 0..prompts {
            let chain = prompt(n);
            let tokens = tokens_of(&chain);
            for replica in 0..replicas {
                let depth = next_hash(n, replica).0;
                let any = 70 + (depth as u32 % 1530) as usize;
                let gpu = 70 + (depth >> 32) as usize % (any - 69);
                trie.hold(&chain, &tokens, ReplicaIndex(replica as u16), gpu, any);
            }
            let owner = ReplicaIndex((n % replicas) as u16);
            trie.hold(&chain, &tokens, owner, chain.len(), chain.len());
        }
        let cost = cost(
            &format!("1600-block prompts, {replicas} replicas, all depths"),
            &trie,
        );
        assert!(cost.bytes_per_block <= 16.0, "at {replicas} replicas");
        for n in 0..prompts {
            check(&cost, &prompt(n), (n % replicas) as u16, 40);
        }
    }
}
