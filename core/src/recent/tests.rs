use super::*;
use crate::ids::BlockHash;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

const SIZE: usize = 4;
/// The longest claim.
const CLAIM_BYTES: usize = 35 + 2 * MARKS_MAX;

/// A claim that says nothing of what follows.
fn claim(key: u64, place: u64, (now_ms, ttl_ms): (u64, u64)) -> Claim {
    Claim {
        key,
        place,
        marks: Marks::default(),
        since_ms: now_ms,
        until_ms: now_ms + ttl_ms,
    }
}

fn live(bucket: &Bucket, now_ms: u64) -> Vec<(u64, u64)> {
    bucket.live(now_ms).map(|c| (c.key, c.place)).collect()
}

#[test]
fn a_claim_counts_for_its_time() {
    let mut bucket = Bucket::default();
    assert_eq!(bucket.put(claim(1, 7, (1_000, 100)), SIZE), Put::Made);
    assert_eq!(live(&bucket, 1_099), [(1, 7)]);
    assert_eq!(live(&bucket, 1_100), []);
    // The clock was set back, and it is from the future now; a little is only two workers' clocks.
    assert_eq!(live(&bucket, 0), [(1, 7)]);
    let mut bucket = Bucket::default();
    bucket.put(claim(1, 7, (5_000, 100)), SIZE);
    assert_eq!(live(&bucket, 3_900), []);
    assert_eq!(bucket.on(1, 5_000).count(), 1);
    assert_eq!(bucket.on(2, 5_000).count(), 0);
}

#[test]
fn a_claim_keeps_its_beginning_while_it_lasts() {
    let mut bucket = Bucket::default();
    bucket.put(claim(1, 7, (1_000, 100)), SIZE);
    assert_eq!(bucket.put(claim(1, 7, (1_025, 100)), SIZE), Put::Kept);
    assert_eq!(bucket.put(claim(1, 7, (1_026, 100)), SIZE), Put::Renewed);
    let there = *bucket.on(1, 1_030).next().unwrap();
    assert_eq!((there.since_ms, there.until_ms), (1_000, 1_126));
    // Over, and made anew.
    assert_eq!(bucket.put(claim(1, 7, (1_126, 100)), SIZE), Put::Made);
    assert_eq!(bucket.on(1, 1_130).next().unwrap().since_ms, 1_126);
    assert_eq!(bucket.live(1_130).count(), 1);
}

#[test]
fn the_claim_that_ends_first_gives_way() {
    let mut bucket = Bucket::default();
    for (key, ttl) in [(1, 400), (2, 100), (3, 300), (4, 200)] {
        bucket.put(claim(key, 7, (0, ttl)), SIZE);
    }
    bucket.put(claim(5, 7, (10, 50)), SIZE);
    assert_eq!(live(&bucket, 20), [(1, 7), (5, 7), (3, 7), (4, 7)]);
    // One that is over goes before any that is not.
    bucket.put(claim(6, 7, (60, 1_000)), SIZE);
    assert_eq!(live(&bucket, 60), [(1, 7), (6, 7), (3, 7), (4, 7)]);
    // One of a former future too, however long it says to last.
    bucket.put(claim(2, 7, (1_000_000, 1_000_000)), SIZE);
    bucket.put(claim(3, 8, (60, 100)), SIZE);
    assert!(live(&bucket, 70).contains(&(3, 8)));
    bucket.put(claim(9, 9, (60, 100)), SIZE);
    assert_eq!(bucket.encode().len(), 1 + SIZE * 35);
}

#[test]
fn bytes_that_are_no_bucket_are_an_empty_one() {
    for bytes in [&[][..], &[0; 33], &[2; 65], &[VERSION], &[VERSION; 31]] {
        assert_eq!(Bucket::decode(bytes), Bucket::default());
    }
    let mut bucket = Bucket::default();
    bucket.put(claim(1, 7, (0, 100)), SIZE);
    let mut torn = bucket.encode();
    torn.extend([0; 34]);
    assert_eq!(Bucket::decode(&torn), bucket);
}

#[test]
fn a_claim_can_be_made_to_end_sooner_but_not_later() {
    let mut bucket = Bucket::default();
    bucket.put(claim(1, 7, (0, 100)), SIZE);
    assert!(bucket.shorten(&claim(1, 7, (5, 5)), 50));
    assert!(!bucket.shorten(&claim(1, 7, (5, 5)), 80));
    assert!(!bucket.shorten(&claim(1, 8, (5, 5)), 10));
    assert_eq!(live(&bucket, 49), [(1, 7)]);
    assert_eq!(live(&bucket, 50), []);
}

#[test]
fn one_start_with_two_continuations_is_two_claims() {
    let mut bucket = Bucket::default();
    let marks = |seed| anchors(&hashes(seed, 30)).last().unwrap().marks;
    let with = |seed| Claim {
        marks: marks(seed),
        ..claim(1, 7, (0, 100))
    };
    for seed in [1, 2] {
        assert_eq!(bucket.put(with(seed), SIZE), Put::Made);
        assert_eq!(bucket.put(with(seed), SIZE), Put::Kept);
    }
    assert_eq!(Bucket::decode(&bucket.encode()), bucket);
    assert!(bucket.encode().len() <= 1 + 2 * CLAIM_BYTES);
    assert!(bucket.take(&with(1)));
    let left: Vec<Claim> = bucket.on(1, 50).copied().collect();
    assert_eq!(left, [with(2)]);
}

#[test]
fn digests_tell_names_and_uses_apart() {
    assert_eq!(place("10.0.0.1:8000"), place("10.0.0.1:8000"));
    assert_ne!(place("10.0.0.1:8000"), place("10.0.0.1:8001"));
    assert_ne!(digest("a", b"x"), digest("b", b"x"));
}

/// splitmix64.
fn hashes(seed: u64, count: usize) -> Vec<BlockHash> {
    let mut state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        BlockHash(x ^ (x >> 31))
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn anchors_are_few_distinct_and_begin_with_the_first_block() {
    assert!(anchors(&[]).is_empty());
    for count in [1, 2, 16, 17, 64, 65, 1_600, 32_768, 70_000] {
        let hashes = hashes(1, count);
        let found = anchors(&hashes);
        assert!(found.len() <= ANCHORS_MAX, "{count}: {}", found.len());
        assert_eq!(found.last().unwrap().at, 0);
        assert!(found.windows(2).all(|w| w[0].at > w[1].at));
        for anchor in &found {
            assert_eq!(anchor.key, hashes[anchor.at].0);
            // The same prompt again: as far as the marks go, which for the deepest is its end.
            let deepest = anchor.marks.deepest(&hashes, anchor.at);
            assert_eq!(deepest, anchor.at + usize::from(anchor.marks.span));
        }
        if count <= 4_096 {
            let deepest = found[0].marks.deepest(&hashes, found[0].at);
            assert_eq!(deepest, count - 1);
        }
    }
}

/// The share of a common prefix that a prompt sees of another that went before: mean and worst.
fn seen(shared: usize, ends: (usize, usize)) -> (f64, f64) {
    const TRIES: u64 = 200;
    let tries = (0..TRIES).map(|seed| {
        let common = hashes(seed * 3 + 1, shared);
        let with_end = |seed, len| [common.clone(), hashes(seed, len)].concat();
        let before = anchors(&with_end(seed * 3 + 2, ends.0));
        let hashes = with_end(seed * 3 + 3, ends.1);
        let both = anchors(&hashes).into_iter().filter_map(|anchor| {
            let there = before.iter().find(|there| there.key == anchor.key)?;
            Some(there.marks.deepest(&hashes, anchor.at) + 1)
        });
        let deepest = both.max().unwrap_or(0);
        assert!(deepest <= shared, "{deepest} of {shared}");
        deepest as f64 / shared as f64
    });
    let all: Vec<f64> = tries.collect();
    let worst = all.iter().copied().fold(1.0, f64::min);
    (all.iter().sum::<f64>() / TRIES as f64, worst)
}

#[test]
fn siblings_see_most_of_what_they_share() {
    // Blocks shared, and each one's own: about 64 tokens a block.
    for (shared, ends, mean, worst) in [
        (1_550, (1, 1), 0.99, 0.9),
        (1_550, (50, 20), 0.98, 0.9),
        (130, (10, 10), 0.96, 0.9),
        (64, (8, 8), 0.95, 0.9),
        (64, (1_500, 900), 0.9, 0.8),
        (300, (300, 300), 0.9, 0.8),
        (20, (0, 3), 0.95, 0.9),
        (5, (1_000, 1_000), 0.7, 0.6),
        (20_000, (500, 500), 0.9, 0.8),
    ] {
        let found = seen(shared, ends);
        println!("{shared} shared, {ends:?}: {found:.3?}");
        assert!(
            found.0 >= mean && found.1 >= worst,
            "{shared} shared, {ends:?}: {found:?}"
        );
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u64, u64),
        Take(u64, u64),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..5u64, 0..3u64, 1..200u64).prop_map(|(k, p, ttl)| Step::Put(k, p, ttl)),
            1 => (0..5u64, 0..3u64).prop_map(|(k, p)| Step::Take(k, p)),
            3 => (0..120u64).prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        /// Against a map without a limit: with room for all, the same; with less, never more.
        #[test]
        fn a_bucket_is_a_bounded_map(steps in steps(), size in 1..20usize) {
            let (mut bucket, mut model) = (Bucket::default(), BTreeMap::new());
            let mut now = 10_000;
            for step in steps {
                match step {
                    Step::Wait(ms) => now += ms,
                    Step::Take(k, p) => {
                        let there = bucket.on(k, now).any(|c| c.place == p);
                        prop_assert!(bucket.take(&claim(k, p, (0, 0))) || !there);
                        model.remove(&(k, p));
                    }
                    Step::Put(k, p, ttl) => {
                        let put = bucket.put(claim(k, p, (now, ttl)), size);
                        let there: Option<&mut (u64, u64)> = model.get_mut(&(k, p));
                        match there.filter(|there| there.1 > now) {
                            Some(there) if put != Put::Made => {
                                if there.1 - now < ttl - ttl / 4 {
                                    there.1 = now + ttl;
                                }
                            }
                            _ => {
                                prop_assert_eq!(put, Put::Made);
                                model.insert((k, p), (now, now + ttl));
                            }
                        }
                    }
                }
                model.retain(|_, (_, until)| *until > now);
                let live: BTreeMap<_, _> = bucket
                    .live(now)
                    .map(|c| ((c.key, c.place), (c.since_ms, c.until_ms)))
                    .collect();
                prop_assert!(live.len() <= size);
                if size >= 15 {
                    prop_assert_eq!(&live, &model);
                }
                prop_assert!(live.iter().all(|(claim, times)| model.get(claim) == Some(times)));
                let bytes = bucket.encode();
                prop_assert!(bytes.len() <= 1 + size * CLAIM_BYTES);
                prop_assert_eq!(Bucket::decode(&bytes), bucket.clone());
            }
        }

        #[test]
        fn any_bytes_decode(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            let hashes = hashes(1, 40);
            for claim in Bucket::decode(&bytes).claims {
                prop_assert!(claim.marks.deepest(&hashes, 0) < 40);
            }
        }
    }
}
