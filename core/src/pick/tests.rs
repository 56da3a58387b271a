use super::*;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn idle(replica: u16) -> Candidate {
    Candidate::new(ReplicaIndex(replica))
}

fn candidate(replica: u16, matched_tokens: u32, backlog_tokens: u64, requests: u32) -> Candidate {
    Candidate {
        matched_tokens,
        backlog_tokens,
        requests,
        ..idle(replica)
    }
}

fn input(candidates: &[Candidate]) -> PickInput<'_> {
    PickInput {
        prompt_tokens: 10_000,
        block_size: 16,
        candidates,
        prefix_key: 0,
        session: None,
        looked_up: true,
        // High: no draw that gives a prefix a second home.
        random: u64::MAX - 7,
    }
}

fn check(candidates: &[Candidate], expect: (u16, Reason, u32)) {
    let d = pick(&input(candidates));
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
        &[candidate(0, 320, 1_000, 1), candidate(1, 0, 0, 0)],
        (1, Reason::LoadOverPrefix, 0),
    );
    check(
        &[candidate(0, 9_000, 1_000, 2), candidate(1, 0, 0, 0)],
        (0, Reason::Prefix, 9_000),
    );
}

/// GIE #2561: a short prompt's single block is most of it, and still nothing against load.
#[test]
fn a_short_match_never_overrides_load() {
    for prompt_tokens in [70, 10_000] {
        let candidates = [candidate(0, 64, 0, 5), candidate(1, 0, 0, 0)];
        let d = pick(&PickInput {
            prompt_tokens,
            ..input(&candidates)
        });
        assert_eq!(d.endpoints[0].0, 1, "{d:?}");
        assert_eq!(d.reason, Reason::LoadOverPrefix);
    }
}

#[test]
fn without_any_prefix_load_decides() {
    check(
        &[
            candidate(0, 0, 0, 30),
            candidate(1, 0, 0, 1),
            candidate(2, 0, 999, 0),
        ],
        (1, Reason::Load, 0),
    );
}

#[test]
fn no_replica_is_named_when_there_is_none() {
    let d = pick(&input(&[]));
    assert_eq!(d.endpoints, []);
    assert_eq!(d.reason, Reason::NoReplica);
    assert_eq!((d.matched_tokens, d.work_tokens, d.cost_us), (0, 0, 0));
}

#[test]
fn what_to_book_is_what_the_first_one_computes() {
    let d = pick(&input(&[candidate(0, 9_600, 0, 0)]));
    assert_eq!(d.work_tokens, cost::prefill_work(9_600, 10_000));
    assert!(d.work_tokens > 400 && d.work_tokens < 600);
    assert!(d.cost_us >= Rates::START.prefill_us(d.work_tokens));
}

#[test]
fn a_lower_tier_counts_at_the_price_of_loading() {
    let tier = Candidate {
        any_tokens: 9_600,
        ..idle(0)
    };
    check(&[tier, idle(1)], (0, Reason::Prefix, 9_600));
    check(
        &[tier, candidate(1, 9_600, 0, 0)],
        (1, Reason::Prefix, 9_600),
    );
    let slow = Candidate {
        rates: Rates {
            tier_tokens_per_s: 1_000,
            ..Rates::START
        },
        ..tier
    };
    check(&[slow, idle(1)], (1, Reason::LoadOverPrefix, 0));
}

#[test]
fn equals_are_drawn_fairly_whatever_their_order() {
    let mut all: Vec<Candidate> = (0..4).map(idle).collect();
    // As good as equal: a learned rate is never quite the same.
    all[2].rates.prefill_tokens_per_s += 40;
    let mut counts = [0u32; 4];
    for random in 0..40_000u64 {
        let first = pick(&PickInput {
            random,
            prompt_tokens: 1_000,
            ..input(&all)
        });
        counts[usize::from(first.endpoints[0].0)] += 1;
    }
    assert!(
        counts.iter().all(|c| (9_500..10_500).contains(c)),
        "{counts:?}"
    );
    let one = pick(&input(&all));
    all.reverse();
    assert_eq!(one, pick(&input(&all)));
}

/// llm-d-router #298, #1598, PR #2515: a burst must not follow one score to one endpoint.
#[test]
fn ten_cold_prompts_at_once_use_at_least_three_of_four_replicas() {
    for seed in 0..200u64 {
        let mut all: Vec<Candidate> = (0..4).map(idle).collect();
        for n in 0..10u64 {
            let d = pick(&PickInput {
                random: draw(seed * 100 + n, ReplicaIndex(0)),
                prefix_key: n + 1,
                ..input(&all)
            });
            let to = &mut all[usize::from(d.endpoints[0].0)];
            to.requests += 1;
            to.backlog_tokens += d.work_tokens;
        }
        let used = all.iter().filter(|c| c.requests > 0).count();
        assert!(used >= 3, "seed {seed}: {all:?}");
    }
}

/// llm-d-router #1726, dynamo PR #8276: siblings of one prefix stay together before any event, if
/// what was sent is taken for held.
#[test]
fn eight_siblings_at_once_use_at_most_two_replicas() {
    for (seed, prompt_tokens) in (0..300u64).flat_map(|s| [1_200u32, 6_000, 40_000].map(|p| (s, p)))
    {
        let mut all: Vec<Candidate> = (0..6).map(idle).collect();
        for n in 0..8u64 {
            let d = pick(&PickInput {
                prompt_tokens,
                prefix_key: 99,
                random: draw(seed * 100 + n, ReplicaIndex(1)),
                ..input(&all)
            });
            let to = &mut all[usize::from(d.endpoints[0].0)];
            to.requests += 1;
            to.backlog_tokens += d.work_tokens;
            to.matched_tokens = prompt_tokens - 100;
        }
        assert!(all.iter().all(|c| c.announced_tokens == 0));
        let used = all.iter().filter(|c| c.requests > 0).count();
        assert!(used <= 2, "{prompt_tokens}: {all:?}");
    }
}

#[test]
fn a_session_goes_where_it_went_where_holdings_are_not_known() {
    let mut all: Vec<Candidate> = (0..8).map(|r| candidate(r, 0, 0, u32::from(r))).collect();
    let ask = |all: &[Candidate], session, random| {
        pick(&PickInput {
            session: Some(session),
            looked_up: false,
            random,
            ..input(all)
        })
    };
    for session in 0..50 {
        let first = ask(&all, session, 1);
        assert_eq!(first.reason, Reason::Session);
        assert_eq!(first.endpoints, ask(&all, session, 2).endpoints);
        // Its second home takes over when the first is gone or has too much, and no other session moves.
        let gone: Vec<Candidate> = all
            .iter()
            .copied()
            .filter(|c| c.replica != first.endpoints[0])
            .collect();
        assert_eq!(ask(&gone, session, 3).endpoints[0], first.endpoints[1]);
    }
    let home = ask(&all, 5, 1).endpoints[0];
    all[usize::from(home.0)].requests = 100;
    assert_ne!(ask(&all, 5, 1).endpoints[0], home);
}

#[test]
fn as_good_as_equal_goes_by_number() {
    // A block of match is less than the estimate is worth.
    let all = [candidate(0, 64, 0, 2), candidate(1, 0, 0, 1), idle(2)];
    for random in 0..50 {
        let d = pick(&PickInput {
            random,
            prompt_tokens: 500,
            ..input(&all)
        });
        assert_eq!(d.endpoints.first(), Some(&ReplicaIndex(2)));
    }
}

#[test]
fn a_session_breaks_ties_and_only_ties() {
    let mut all: Vec<Candidate> = (0..5).map(idle).collect();
    let ask = |all: &[Candidate], random| {
        pick(&PickInput {
            session: Some(1234),
            random,
            ..input(all)
        })
    };
    let first = ask(&all, 1);
    assert_eq!(first.reason, Reason::Session);
    assert!((0..20).all(|random| ask(&all, random) == first));
    all[usize::from(first.endpoints[0].0)].backlog_tokens = 50_000;
    assert_ne!(ask(&all, 1).endpoints[0], first.endpoints[0]);
}

#[test]
fn all_that_are_named_have_the_first_ones_rank() {
    // Two endpoints with ranks 0 and 1 each, and one without; replica 3 holds the prompt.
    let of = |replica: u16, dp_rank| Candidate {
        dp_rank,
        ..candidate(replica, if replica == 3 { 4_000 } else { 0 }, 0, 0)
    };
    let mut all: Vec<Candidate> = (0..4).map(|r| of(r, Some(r % 2))).collect();
    all.push(of(4, None));
    let named = |candidates: &[Candidate]| pick(&input(candidates)).endpoints;
    assert_eq!(named(&all), [ReplicaIndex(3), ReplicaIndex(1)]);
    assert_eq!(named(&[of(4, None), of(0, Some(0))]).len(), 1);
    assert_eq!(named(&[of(4, None), of(0, None)]).len(), 2);
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn any_candidate()(
            matched_tokens in 0u32..5_000, any_tokens in 0u32..5_000, backlog_tokens in 0u64..50_000,
            requests in 0u32..50, waiting in 0u32..20, kv_usage_permille in 0u16..1_100,
            ramp_permille in 0u16..1_200, context_tokens in 0u64..1_000_000,
        ) -> Candidate {
            Candidate {
                matched_tokens, any_tokens, backlog_tokens, requests, waiting, kv_usage_permille,
                ramp_permille, context_tokens, ..idle(0)
            }
        }
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        proptest::collection::vec(any_candidate(), 0..9).prop_map(|list| {
            (0u16..)
                .zip(list)
                .map(|(r, c)| Candidate {
                    replica: ReplicaIndex(r),
                    ..c
                })
                .collect()
        })
    }

    /// Cost and penalty, as the pick should see them.
    fn guarded(input: &PickInput<'_>, c: &Candidate) -> u64 {
        let fleet = Fleet::of(input);
        cost::of(input, c, &fleet).total_us() + guard::penalty_us(c, &fleet)
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_full_sort(
            candidates in candidates(), prompt_tokens in 0u32..6_000, block_size in 0u32..40,
            prefix_key: u64, session: Option<u64>, looked_up: bool, random: u64,
        ) {
            let input = PickInput {
                prompt_tokens, block_size, candidates: &candidates, prefix_key, session, looked_up, random,
            };
            let d = pick(&input);
            prop_assert_eq!(d.endpoints.len(), candidates.len().min(ENDPOINTS_MAX));
            let mut unique = d.endpoints.clone();
            unique.sort_unstable();
            unique.dedup();
            prop_assert_eq!(unique.len(), d.endpoints.len());
            let of = |r: &ReplicaIndex| candidates.iter().find(|c| c.replica == *r).unwrap();
            if let Some(first) = d.endpoints.first() {
                prop_assert_eq!(of(first).held_tokens(), d.matched_tokens);
                // By cost, and what is as good as equal first, unless a guard or the session decided.
                if matches!(d.reason, Reason::Prefix | Reason::LoadOverPrefix | Reason::HotSpot | Reason::Load)
                    && (looked_up || session.is_none())
                    && candidates.iter().all(|c| c.ramp_permille >= RAMPED)
                {
                    let least = candidates.iter().map(|c| guarded(&input, c)).min().unwrap();
                    prop_assert!(guarded(&input, of(first)) <= cost::as_good_as(least, Fleet::of(&input).whole_us));
                    let named: Vec<u64> = d.endpoints.iter().map(|r| guarded(&input, of(r))).collect();
                    let worst = named.iter().copied().max().unwrap().max(cost::as_good_as(least, Fleet::of(&input).whole_us));
                    let better = candidates.iter().filter(|c| guarded(&input, c) < worst);
                    prop_assert!(better.count() >= d.endpoints.len().saturating_sub(1).min(1));
                    let dear = |c: &u64| *c > cost::as_good_as(least, Fleet::of(&input).whole_us);
                    prop_assert!(named.iter().filter(|c| dear(c)).is_sorted());
                }
            }
        }

        #[test]
        fn more_matched_tokens_never_make_it_worse(
            candidates in candidates(), more in 0u32..5_000, random: u64,
        ) {
            let input = PickInput { prompt_tokens: 4_000, random, ..input(&candidates) };
            let fleet = Fleet::of(&input);
            if let Some(&first) = candidates.first() {
                let better = Candidate { matched_tokens: first.matched_tokens + more, ..first };
                let (a, b) = (cost::of(&input, &better, &fleet), cost::of(&input, &first, &fleet));
                prop_assert!(a.total_us() <= b.total_us());
            }
        }

        #[test]
        fn nothing_overflows(
            matched: u32, any: u32, backlog: u64, requests: u32, waiting: u32, context: u64,
            usage: u16, ramp: u16, rate: u32, prompt_tokens: u32, block_size: u32, random: u64,
        ) {
            let c = Candidate {
                dp_rank: None,
                replica: ReplicaIndex(1), matched_tokens: matched, any_tokens: any, announced_tokens: any, backlog_tokens: backlog,
                requests, waiting, context_tokens: context, kv_usage_permille: usage, ramp_permille: ramp,
                rates: Rates {
                    prefill_tokens_per_s: rate, step_us: rate, step_ns_per_request: rate,
                    step_ns_per_kilotoken: rate, tier_tokens_per_s: rate,
                },
            };
            let two = [c, Candidate { replica: ReplicaIndex(2), ..c }];
            let d = pick(&PickInput { prompt_tokens, block_size, random, ..input(&two) });
            prop_assert_eq!(d.endpoints.len(), 2);
        }
    }
}
