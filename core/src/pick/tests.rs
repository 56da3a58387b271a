use super::*;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn candidate(replica: u16, matched_tokens: u32, backlog_tokens: u64, requests: u32) -> Candidate {
    Candidate {
        replica: ReplicaIndex(replica),
        matched_tokens,
        backlog_tokens,
        requests,
    }
}

fn check(candidates: &[Candidate], expect: (u16, Reason, u32)) {
    let input = PickInput {
        prompt_tokens: 10_000,
        block_size: 16,
        candidates,
        random: 7,
    };
    let d = pick(&input);
    assert_eq!(
        (d.endpoints[0].0, d.reason, d.matched_tokens),
        expect,
        "{candidates:?}"
    );
}

#[test]
fn the_longest_prefix_wins_among_idle_replicas() {
    check(
        &[
            candidate(0, 64, 0, 0),
            candidate(1, 320, 0, 0),
            candidate(2, 0, 0, 0),
        ],
        (1, Reason::Prefix, 320),
    );
}

#[test]
fn a_busy_holder_loses_to_an_idle_replica() {
    check(
        &[candidate(0, 320, 400, 0), candidate(1, 0, 0, 0)],
        (1, Reason::LoadOverPrefix, 0),
    );
    check(
        &[candidate(0, 320, 0, 2), candidate(1, 0, 0, 0)],
        (1, Reason::LoadOverPrefix, 0),
    );
    check(
        &[candidate(0, 9_000, 400, 2), candidate(1, 0, 0, 0)],
        (0, Reason::Prefix, 9_000),
    );
}

#[test]
fn without_any_prefix_load_decides() {
    check(
        &[
            candidate(0, 0, 0, 3),
            candidate(1, 0, 0, 1),
            candidate(2, 0, 999, 0),
        ],
        (1, Reason::Load, 0),
    );
}

#[test]
fn no_replica_is_named_when_there_is_none() {
    let d = pick(&PickInput {
        prompt_tokens: 5,
        block_size: 16,
        candidates: &[],
        random: 1,
    });
    assert_eq!(
        d,
        Decision {
            endpoints: vec![],
            reason: Reason::NoReplica,
            matched_tokens: 0
        }
    );
}

#[test]
fn a_hit_is_whole_blocks_and_never_the_last_token() {
    assert_eq!(hit_tokens(100, 100, 16), 96);
    assert_eq!(hit_tokens(96, 96, 16), 80);
    assert_eq!(hit_tokens(97, 1000, 16), 96);
    assert_eq!(hit_tokens(97, 1000, 0), 97);
    assert_eq!(hit_tokens(5, 0, 16), 0);
}

#[test]
fn equals_are_drawn_fairly_whatever_their_order() {
    let mut all: Vec<Candidate> = (0..4).map(|r| candidate(r, 0, 0, 0)).collect();
    let mut counts = [0u32; 4];
    for random in 0..40_000u64 {
        let input = PickInput {
            prompt_tokens: 100,
            block_size: 16,
            candidates: &all,
            random,
        };
        let first = pick(&input).endpoints[0];
        counts[usize::from(first.0)] += 1;
    }
    assert!(
        counts.iter().all(|c| (9_500..10_500).contains(c)),
        "{counts:?}"
    );
    let one = pick(&PickInput {
        prompt_tokens: 1,
        block_size: 1,
        candidates: &all,
        random: 3,
    });
    all.reverse();
    let two = pick(&PickInput {
        prompt_tokens: 1,
        block_size: 1,
        candidates: &all,
        random: 3,
    });
    assert_eq!(one, two);
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        proptest::collection::vec((0u32..5_000, 0u64..5_000, 0u32..50), 0..9).prop_map(|list| {
            (0u16..)
                .zip(list)
                .map(|(r, (m, b, q))| candidate(r, m, b, q))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn a_pick_is_always_a_live_endpoint_of_least_cost(
            candidates in candidates(), prompt_tokens in 0u32..6_000, block_size in 0u32..40, random: u64,
        ) {
            let input = PickInput { prompt_tokens, block_size, candidates: &candidates, random };
            let d = pick(&input);
            prop_assert_eq!(d.endpoints.len(), candidates.len().min(ENDPOINTS_MAX));
            let of = |r: &ReplicaIndex| candidates.iter().find(|c| c.replica == *r);
            let costs: Vec<u64> = d.endpoints.iter().map(|r| cost(&input, of(r).unwrap())).collect();
            prop_assert!(costs.is_sorted());
            if let Some(least) = candidates.iter().map(|c| cost(&input, c)).min() {
                prop_assert_eq!(costs[0], least);
                prop_assert_eq!(of(&d.endpoints[0]).unwrap().matched_tokens, d.matched_tokens);
            }
            let mut unique = d.endpoints.clone();
            unique.sort_unstable();
            unique.dedup();
            prop_assert_eq!(unique.len(), d.endpoints.len());
        }

        #[test]
        fn more_matched_tokens_never_make_it_worse(
            candidates in candidates(), more in 0u32..5_000, random: u64,
        ) {
            let input = PickInput { prompt_tokens: 4_000, block_size: 16, candidates: &candidates, random };
            if let Some(&first) = candidates.first() {
                let better = Candidate { matched_tokens: first.matched_tokens + more, ..first };
                prop_assert!(cost(&input, &better) <= cost(&input, &first));
            }
        }
    }
}
