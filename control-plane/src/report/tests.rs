use prefix_picker_core::ids::BlockHash;
use prefix_picker_core::sync::decisions::{Mark, Told, marks};
use proptest::prelude::*;

use super::virtual_cache::ENTRIES_MAX;
use super::*;

fn book() -> Book {
    let replica = |pool, label: &str| ReplicaSays {
        pool,
        label: label.into(),
        name: format!("{label}:1"),
    };
    let pools = ["one", "two"].map(String::from);
    let replicas = [replica(0, "a"), replica(0, "b"), replica(1, "c")];
    let mut book = Book::new(pools.into_iter());
    for (slot, says) in (0..).zip(replicas) {
        book.add(ReplicaIndex(slot), says);
    }
    book
}

fn decision(replica: &str, marks: &[Mark]) -> Decision {
    Decision {
        chosen: place(&format!("{replica}:1")),
        prompt_tokens: 100,
        chosen_tokens: 80,
        served_tokens: 16,
        marks: marks.to_vec(),
        ..Decision::default()
    }
}

fn tell(book: &mut Book, now_s: u64, records: Vec<Decision>) {
    let told = Decisions {
        records,
        ..Decisions::default()
    };
    book.take(&told, now_s);
}

fn json(book: &Book, since_s: u64, now_s: u64) -> serde_json::Value {
    serde_json::to_value(book.answer(since_s, now_s)).unwrap()
}

/// A prompt of blocks of 16 tokens; block hashes are those of all before, as ours are.
fn prompt(blocks: &[u8]) -> Vec<Mark> {
    let ends = 1..=blocks.len();
    let hashes: Vec<BlockHash> = ends
        .map(|end| {
            let fnv =
                |hash: u64, &block: &u8| (hash ^ u64::from(block)).wrapping_mul(0x100_0000_01b3);
            BlockHash(blocks[..end].iter().fold(0xcbf2_9ce4_8422_2325, fnv))
        })
        .collect();
    marks(&hashes, |blocks| blocks * 16)
}

#[test]
fn kinds_and_pools_are_summed_apart() {
    let mut book = book();
    book.set_capacity(ReplicaIndex(0), 1_000);
    let shadow = Decision {
        told: Some(Told {
            prompt_tokens: 96,
            cached_tokens: 32,
        }),
        ..decision("a", &prompt(&[1, 2, 3]))
    };
    let enforced = Decision {
        enforced: true,
        agreed: true,
        ..decision("a", &prompt(&[1, 2, 4]))
    };
    let elsewhere = decision("c", &prompt(&[1, 2, 3]));
    tell(&mut book, 7, vec![shadow, enforced, elsewhere]);
    tell(&mut book, 7, vec![decision("nobody", &[])]);
    book.take(
        &Decisions {
            lost: 5,
            ..Decisions::default()
        },
        8,
    );
    let told = json(&book, 3_600, 100);
    assert_eq!(
        told,
        serde_json::json!({
            "schema": "prefix-picker.report/1", "since_s": 3_600, "covered_s": 100,
            "lost": 5, "unknown_replica": 1,
            "pools": [{
                "pool": "one",
                "shadow": {
                    "requests": 1, "agreed": 0, "prompt_tokens": 100,
                    "measured": {"requests": 1, "prompt_tokens": 96, "cached_tokens": 32},
                    "predicted_today": {"chosen_hit_tokens": 80, "served_hit_tokens": 16},
                    "counterfactual": {"requests": 1, "prompt_tokens": 100, "hit_tokens": 0},
                },
                "enforced": {
                    "requests": 1, "agreed": 1, "prompt_tokens": 100,
                    "measured": {"requests": 0, "prompt_tokens": 0, "cached_tokens": 0},
                    "predicted_today": {"chosen_hit_tokens": 80, "served_hit_tokens": 16},
                    "counterfactual": {"requests": 1, "prompt_tokens": 100, "hit_tokens": 32},
                },
                "virtual_caches": [
                    {"replica": "a", "capacity_tokens": 1_000, "held_tokens": 64, "cut_short": false},
                    {"replica": "b", "capacity_tokens": null, "held_tokens": null, "cut_short": false},
                ],
            }, {
                "pool": "two",
                "shadow": {
                    "requests": 1, "agreed": 0, "prompt_tokens": 100,
                    "measured": {"requests": 0, "prompt_tokens": 0, "cached_tokens": 0},
                    "predicted_today": {"chosen_hit_tokens": 80, "served_hit_tokens": 16},
                    // No capacity is known there.
                    "counterfactual": {"requests": 0, "prompt_tokens": 0, "hit_tokens": 0},
                },
                "enforced": {
                    "requests": 0, "agreed": 0, "prompt_tokens": 0,
                    "measured": {"requests": 0, "prompt_tokens": 0, "cached_tokens": 0},
                    "predicted_today": {"chosen_hit_tokens": 0, "served_hit_tokens": 0},
                    "counterfactual": {"requests": 0, "prompt_tokens": 0, "hit_tokens": 0},
                },
                "virtual_caches": [
                    {"replica": "c", "capacity_tokens": null, "held_tokens": null, "cut_short": false},
                ],
            }],
        })
    );
}

#[test]
fn what_is_older_does_not_count_and_goes() {
    let mut book = book();
    let week = ring::KEPT_S;
    for now_s in [0, 30, 3_000, 7_000, 7_300] {
        tell(&mut book, now_s, vec![decision("a", &[])]);
    }
    let requests = |book: &Book, since_s, now_s| {
        let told = json(book, since_s, now_s);
        let sum = told["pools"][0]["shadow"]["requests"].as_u64().unwrap();
        (sum, told["covered_s"].as_u64().unwrap())
    };
    assert_eq!(requests(&book, 60, 7_320), (1, 60));
    assert_eq!(requests(&book, 3_600, 7_320), (2, 3_600));
    assert_eq!(requests(&book, week, 7_320), (5, 7_320));
    tell(&mut book, week + 3_000, vec![decision("a", &[])]);
    assert_eq!(requests(&book, u64::MAX, week + 3_000), (3, week));
}

#[test]
fn a_conversation_that_grows_is_found_and_not_held_twice() {
    let mut cache = VirtualCache::new(ENTRIES_MAX);
    let talk: Vec<u8> = (0..200u32).flat_map(|n| [(n % 251) as u8; 2]).collect();
    let (mut asked, mut hits) = (0, 0);
    for blocks in (40..=400).step_by(10) {
        hits += cache.request(&prompt(&talk[..blocks]), 1 << 20);
        asked += 16 * (blocks as u64 - 10);
    }
    assert!(hits > asked * 94 / 100, "{hits} of {asked}");
    // Each turn's marks stand for what the finer ones of shorter turns do, which know it once they are
    // used again.
    for blocks in (40..=400).step_by(10) {
        cache.request(&prompt(&talk[..blocks]), 1 << 20);
    }
    let held = cache.held_tokens() / 16;
    assert!((400..420).contains(&held), "{held} blocks");
    for other in 0..10 {
        let other: Vec<u8> = (0..100u32)
            .map(|n| 252 + (n * other + n) as u8 % 4)
            .collect();
        cache.request(&prompt(&other), 500 * 16);
        cache.request(&prompt(&talk), 500 * 16);
    }
    assert!(cache.held_tokens() <= 500 * 16);
    assert_eq!(cache.request(&prompt(&talk), 500 * 16), 400 * 16);
}

#[test]
fn entries_are_bounded_and_that_is_said() {
    let mut cache = VirtualCache::new(ENTRIES_MAX);
    for n in 0..=(ENTRIES_MAX as u64 / 2) {
        assert!(!cache.is_cut_short());
        let mark = |at: u32| Mark {
            key: 2 * n + u64::from(at),
            tokens: 16 * at,
        };
        cache.request(&[mark(1), mark(2)], u64::MAX);
    }
    assert!(cache.is_cut_short());
    assert_eq!(cache.held_tokens(), 16 * ENTRIES_MAX as u64);
}

/// Blocks as an engine holds them, by their whole prefix, the one to go next first.
#[derive(Default)]
struct Naive(Vec<Vec<u8>>);

impl Naive {
    fn request(&mut self, blocks: &[u8], capacity: u64) -> u64 {
        let prefixes = (1..=blocks.len()).map(|end| blocks[..end].to_vec());
        let hit = prefixes.clone().take_while(|p| self.0.contains(p)).count();
        for prefix in prefixes.rev() {
            self.0.retain(|held| *held != prefix);
            self.0.push(prefix);
        }
        let excess = self.0.len().saturating_sub(capacity as usize);
        self.0.drain(..excess);
        hit as u64
    }
}

fn prompts(blocks: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Runs of one of few values, so that many prompts begin alike.
    let run = (0u8..3, 1usize..30).prop_map(|(block, len)| vec![block; len]);
    let prompt = proptest::collection::vec(run, 1..10).prop_map(|runs| runs.concat());
    let prompt = prompt.prop_map(move |mut prompt| {
        prompt.truncate(blocks.end);
        prompt
    });
    proptest::collection::vec(prompt, 1..40)
}

proptest! {
    /// While each block is a mark it is what an engine's cache is.
    #[test]
    fn short_prompts_fare_as_in_an_engine(prompts in prompts(0..32), capacity in 1u64..100) {
        let (mut cache, mut naive) = (VirtualCache::new(ENTRIES_MAX), Naive::default());
        for blocks in prompts {
            let hit = cache.request(&prompt(&blocks), capacity * 16);
            prop_assert_eq!(hit, naive.request(&blocks, capacity) * 16);
            prop_assert_eq!(cache.held_tokens(), naive.0.len() as u64 * 16);
        }
    }

    /// Longer ones by one part in 16 of the longest, and never too well.
    #[test]
    fn long_prompts_fare_almost_as_in_an_engine(prompts in prompts(0..300), capacity in 1u64..600) {
        let (mut cache, mut naive) = (VirtualCache::new(ENTRIES_MAX), Naive::default());
        let longest = prompts.iter().map(Vec::len).max().unwrap() as u64;
        for blocks in &prompts {
            let hit = cache.request(&prompt(blocks), u64::MAX);
            let real = naive.request(blocks, u64::MAX);
            prop_assert!(hit <= real * 16, "{hit} of {real} blocks");
            prop_assert!(hit + 16 * longest.div_ceil(16) > real * 16, "{hit} of {real} blocks");
        }
        let mut small = VirtualCache::new(ENTRIES_MAX);
        for blocks in &prompts {
            small.request(&prompt(blocks), capacity * 16);
            prop_assert!(small.held_tokens() <= capacity * 16);
        }
    }
}
