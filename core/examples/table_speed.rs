//! What hashing, the table and a look-up cost: `cargo run --release -p prefix-picker-core --example
//! table_speed [continuations]` (default: a million), natively or for wasm32-wasip1 under node.

#![allow(
    clippy::expect_used,
    reason = "a measurement, not a part of the product"
)]

use std::hint::black_box;
use std::time::Instant;

use prefix_picker_core::blocks::{BlockHash, Seed, hash_ids, hash_text};
use prefix_picker_core::ids::{Epoch, ReplicaIndex};
use prefix_picker_core::table::{
    GROUP_DEPTH, GroupChange, GroupSpec, Holder, LookupLimits, PAGE_TARGET_BYTES, PageContent,
    PageMeta, RunSpec, TableShape, TableStore, apply_change, encode_group, lookup, page_of,
};

fn main() {
    hashing();
    let continuations = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let mut table = Table::new();
    // One system prompt of 4K tokens and a bit, so that the fan-out is inside a group.
    let system = chain(1, 0, 70);
    table.put(&system, 0, &[0, 1, 2, 3, 4, 5, 6, 7], Some(70));
    let continuation = |n: u64| branch(&system, n + 10, 4 + (n % 9) as usize);
    for n in 0..continuations {
        table.put(&continuation(n), 70, &[(n % 8) as u16], None);
    }
    table.report("one system prompt, many continuations");
    table.look_up("a continuation", |n| {
        continuation((n * 7919) % continuations)
    });

    let mut table = Table::new();
    let first = |n: u64| chain(2, n, 8);
    for n in 0..continuations {
        table.put(&first(n), 0, &[(n % 8) as u16], None);
    }
    table.report("many first blocks");
    table.look_up("one of them", |n| first((n * 7919) % continuations));

    for replicas in [8u16, 256] {
        let mut table = Table::new();
        let prompts = (continuations / 200).max(1);
        let long = |n: u64| chain(3, n, 1600);
        for n in 0..prompts {
            let holders: Vec<u16> = match replicas {
                8 => vec![(n % 8) as u16],
                all => (0..all).collect(),
            };
            table.put(&long(n), 0, &holders, None);
        }
        table.report(&format!("100K-token prompts, {replicas} replicas"));
        table.look_up("all of one", |n| long((n * 7919) % prompts));
        table.look_up("half of one", |n| {
            branch(&long((n * 7919) % prompts)[..800], 5, 800)
        });
    }
}

fn hashing() {
    let text = "The quick brown fox jumps over the lazy dog, twice. ".repeat(8270);
    let wide = "日本語の長いテキスト。".repeat(13030);
    let ids: Vec<u32> = (0..100_000).collect();
    let ms = |work: &mut dyn FnMut()| 1e3 * best(20, work);
    println!(
        "hash {} KB of prose: {:.3} ms",
        text.len() / 1000,
        ms(&mut || {
            black_box(hash_text(Seed(1), black_box(text.as_bytes()), usize::MAX));
        })
    );
    println!(
        "hash {} KB without a space: {:.3} ms",
        wide.len() / 1000,
        ms(&mut || {
            black_box(hash_text(Seed(1), black_box(wide.as_bytes()), usize::MAX));
        })
    );
    println!(
        "hash 100K ids: {:.3} ms",
        ms(&mut || {
            black_box(hash_ids(Seed(1), black_box(&ids), usize::MAX));
        })
    );
}

/// Seconds of the fastest of `times` runs.
fn best(times: u32, work: &mut dyn FnMut()) -> f64 {
    let run = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..times).map(run).fold(f64::MAX, f64::min)
}

struct Table {
    store: TableStore,
    blocks: usize,
    started: Instant,
}

impl Table {
    fn new() -> Self {
        let store = TableStore::new(Epoch(1), PAGE_TARGET_BYTES);
        Self {
            store,
            blocks: 0,
            started: Instant::now(),
        }
    }

    /// The groups of an unbranched chain from block `from` on, all of it at `holders`; `split`: the
    /// depth at which its last group is cut.
    fn put(&mut self, chain: &[BlockHash], from: usize, holders: &[u16], split: Option<usize>) {
        let depth = GROUP_DEPTH as usize;
        let mut start = from;
        while start < chain.len() {
            let end = (start / depth + 1) * depth;
            let split = split
                .filter(|split| *split < end)
                .map(|split| (split - start) as u8);
            let hashes = chain[start..end.min(chain.len())].to_vec();
            let len = hashes.len();
            let run = RunSpec {
                start: 0,
                hashes,
                tokens: (start..start + len).map(|at| tokens_at(at + 1)).collect(),
                holders: holders
                    .iter()
                    .map(|replica| Holder {
                        replica: ReplicaIndex(*replica),
                        gpu: len as u8,
                        any: len as u8,
                    })
                    .collect(),
            };
            let spec = GroupSpec {
                base_tokens: tokens_at(start),
                split,
                runs: vec![run],
            };
            let body = encode_group(&spec).expect("a good group");
            self.store.upsert(chain[start], body);
            self.blocks += len;
            start = end;
        }
    }

    fn report(&self, name: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        println!(
            "{name}: {} blocks, {} groups, {} pages, {:.2} bytes a block; made at {:.2} M groups/s",
            self.blocks,
            self.store.len(),
            self.store.page_count(),
            self.store.bytes() as f64 / self.blocks as f64,
            self.store.len() as f64 / seconds / 1e6,
        );
        let index = self.store.page_count() / 2;
        let page = self.store.page(index);
        let anchor =
            BlockHash(((u64::from(index) << 32) / u64::from(self.store.page_count())) << 32);
        assert_eq!(page_of(anchor, self.store.page_count()), index);
        let delta = PageContent::Delta(vec![GroupChange {
            anchor,
            body: Some(vec![0; 180]),
        }]);
        let meta = PageMeta {
            epoch: self.store.epoch(),
            generation: self.store.generation(),
            index,
            to_seq: self.store.seq() + 1,
        };
        let seconds = best(1000, &mut || {
            black_box(apply_change(Some(&page), meta, &delta)).expect("it applies");
        });
        println!(
            "  one change applied to a page of {} bytes: {:.2} us",
            page.len(),
            1e6 * seconds
        );
    }

    fn look_up(&self, name: &str, prompt: impl Fn(u64) -> Vec<BlockHash>) {
        let shape = TableShape {
            epoch: self.store.epoch(),
            generation: self.store.generation(),
            page_count: self.store.page_count(),
        };
        let pages: Vec<Vec<u8>> = (0..shape.page_count)
            .map(|index| self.store.page(index))
            .collect();
        let prompts: Vec<Vec<BlockHash>> = (0..500).map(prompt).collect();
        let mut reads = 0;
        let mut best_blocks = u32::MAX;
        let mut seconds = Vec::new();
        for _ in 0..4 {
            for prompt in &prompts {
                let start = Instant::now();
                let found = lookup(
                    &shape,
                    prompt,
                    &mut |index| pages.get(index as usize).cloned(),
                    LookupLimits::default(),
                );
                seconds.push(start.elapsed().as_secs_f64());
                reads += found.reads;
                let deepest = found.replicas.iter().map(|found| found.gpu_blocks).max();
                best_blocks = best_blocks.min(deepest.unwrap_or(0));
            }
        }
        seconds.sort_by(f64::total_cmp);
        let median = seconds[seconds.len() / 2];
        let reads = f64::from(reads) / seconds.len() as f64;
        println!(
            "  {name}: at least {best_blocks} blocks found, {reads:.1} reads, p50 {:.2} us, {:.2} us a read, p99 {:.2} us",
            1e6 * median,
            1e6 * median / reads,
            1e6 * seconds[seconds.len() * 99 / 100],
        );
    }
}

fn tokens_at(blocks: usize) -> u32 {
    64 * blocks as u32
}

fn chain(family: u64, n: u64, len: usize) -> Vec<BlockHash> {
    branch(&[BlockHash(family)], n, len).split_off(1)
}

fn branch(prefix: &[BlockHash], salt: u64, more: usize) -> Vec<BlockHash> {
    let mut chain = prefix.to_vec();
    for at in 0..more as u64 {
        let parent = chain.last().map_or(1, |hash| hash.0);
        let salt = if at == 0 { salt + 2 } else { 1 };
        let mut x = parent ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chain.push(BlockHash(x ^ (x >> 31)));
    }
    chain
}
