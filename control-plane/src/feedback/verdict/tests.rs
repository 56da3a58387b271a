//! Simulated pools, honest and not.

use super::*;

/// splitmix64.
struct Random(u64);

impl Random {
    fn chance(&mut self, p: f64) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        ((x >> 11) as f64) / ((1u64 << 53) as f64) < p
    }
}

/// How a pool behaves.
#[derive(Clone, Copy)]
struct Traffic {
    /// Share of requests with something cached.
    hits: f64,
    /// Share of those that are off, either way.
    noise: f64,
    /// Share of early ones among those with hits.
    early: f64,
    /// The filter's text is not the engine's.
    wrong_template: bool,
    /// The engine reports nothing found.
    no_reads: bool,
}

const NORMAL: Traffic = Traffic {
    hits: 0.6,
    noise: 0.01,
    early: 0.05,
    wrong_template: false,
    no_reads: false,
};

fn one(random: &mut Random, t: Traffic) -> PoolFeedback {
    let mut f = PoolFeedback::default();
    if !random.chance(t.hits) {
        f.exact = 1;
        return f;
    }
    f.telling = 1;
    if t.wrong_template {
        f.under = 1;
    } else if t.no_reads {
        f.over = 1;
    } else if random.chance(t.early) {
        f.early = 1;
    } else if random.chance(t.noise) {
        if random.chance(0.3) {
            f.over = 1;
        } else {
            f.under = 1;
        }
    } else {
        f.exact = 1;
    }
    f
}

fn add(to: &mut PoolFeedback, f: &PoolFeedback) {
    to.exact += f.exact;
    to.over += f.over;
    to.under += f.under;
    to.early += f.early;
    to.missing += f.missing;
    to.telling += f.telling;
}

/// Requests until the alarm, told in polls of `batch`.
fn requests_to_alarm(
    recent: &mut Recent,
    random: &mut Random,
    traffic: Traffic,
    batch: u64,
    max: u64,
) -> Option<u64> {
    let mut sent = 0;
    while sent < max {
        let mut poll = PoolFeedback::default();
        for _ in 0..batch {
            add(&mut poll, &one(random, traffic));
        }
        sent += batch;
        recent.take(&poll);
        if recent.verdict().is_mismatch() {
            return Some(sent);
        }
    }
    None
}

#[test]
fn a_wrong_template_is_found_within_100_requests() {
    for (seed, hits) in (0..1_000).zip([0.3, 0.5, 0.8, 1.0].into_iter().cycle()) {
        let mut random = Random(seed);
        let wrong = Traffic {
            hits,
            wrong_template: true,
            ..NORMAL
        };
        for batch in [1, 5, 20, 100] {
            let mut fresh = Recent::default();
            let at = requests_to_alarm(&mut fresh, &mut random, wrong, batch, 100);
            assert!(at.is_some(), "{hits} by {batch}");
            assert_eq!(fresh.verdict(), Verdict::TooLittle);
            // One that was right for long, until the engines got another template.
            let mut turned = Recent::default();
            for _ in 0..500 {
                turned.take(&one(&mut random, NORMAL));
            }
            let wrong = Traffic {
                hits: hits.max(0.5),
                ..wrong
            };
            let at = requests_to_alarm(&mut turned, &mut random, wrong, batch, 100);
            assert!(at.is_some(), "turned, {hits} by {batch}");
        }
    }
}

#[test]
fn engines_that_find_nothing_are_found_out() {
    let mut random = Random(1);
    let nothing = Traffic {
        no_reads: true,
        ..NORMAL
    };
    let mut recent = Recent::default();
    let at = requests_to_alarm(&mut recent, &mut random, nothing, 1, 100);
    assert!(at.is_some());
    assert_eq!(recent.verdict(), Verdict::TooMuch);
}

#[test]
fn normal_pools_raise_no_alarm() {
    let pools = [
        NORMAL,
        // Little is shared.
        Traffic {
            hits: 0.02,
            ..NORMAL
        },
        // All is, in bursts.
        Traffic {
            hits: 1.0,
            early: 0.8,
            ..NORMAL
        },
        // Five times the usual noise.
        Traffic {
            hits: 1.0,
            noise: 0.05,
            ..NORMAL
        },
        // Nothing at all.
        Traffic {
            hits: 0.0,
            ..NORMAL
        },
    ];
    for (seed, traffic) in (0..).zip(pools) {
        for batch in [1, 7, 400] {
            let (mut random, mut recent) = (Random(seed), Recent::default());
            let at = requests_to_alarm(&mut recent, &mut random, traffic, batch, 200_000);
            assert_eq!(at, None, "{seed} by {batch}");
        }
    }
}

/// The chances that the module's text gives, by dynamic programming over (seen, wrong).
#[test]
fn the_stated_false_alarm_rates_hold() {
    let filling = |p: f64| {
        // alive[w]: chance of `w` wrong ones so far and no alarm yet.
        let mut alive = vec![1.0];
        let mut alarm = 0.0;
        for n in 1..=WINDOW {
            let mut next = vec![0.0; n + 1];
            for (w, chance) in alive.iter().enumerate() {
                next[w] += chance * (1.0 - p);
                next[w + 1] += chance * p;
            }
            for (w, chance) in next.iter_mut().enumerate() {
                if n >= ENOUGH && w * 2 >= n {
                    alarm += std::mem::take(chance);
                }
            }
            alive = next;
        }
        alarm
    };
    assert!(filling(0.01) < 3e-9, "{}", filling(0.01));
    assert!(filling(0.05) < 3e-5, "{}", filling(0.05));
    let full = |p: f64| {
        let mut terms = vec![1.0];
        for _ in 0..WINDOW {
            let mut next = vec![0.0; terms.len() + 1];
            for (w, chance) in terms.iter().enumerate() {
                next[w] += chance * (1.0 - p);
                next[w + 1] += chance * p;
            }
            terms = next;
        }
        terms[WINDOW / 2..].iter().sum::<f64>()
    };
    assert!(full(0.05) < 1e-17, "{}", full(0.05));
}

#[test]
fn the_alarm_ends_once_three_quarters_agree() {
    let of = |exact, under| PoolFeedback {
        exact,
        under,
        telling: exact + under,
        ..PoolFeedback::default()
    };
    let mut recent = Recent::default();
    recent.take(&of(0, 48));
    assert_eq!(recent.verdict(), Verdict::TooLittle);
    recent.take(&of(36, 0));
    assert_eq!(recent.verdict(), Verdict::TooLittle);
    recent.take(&of(1, 0));
    assert_eq!(recent.verdict(), Verdict::Agree);
    assert_eq!(recent.seen().all(), WINDOW);
}

#[test]
fn many_at_once_count_by_their_shares() {
    let mut recent = Recent::default();
    recent.take(&PoolFeedback {
        exact: 9_000,
        under: 1_000,
        telling: 10_000,
        ..PoolFeedback::default()
    });
    let seen = recent.seen();
    assert_eq!((seen.agreed, seen.under), (43, 5));
    // Figures that contradict each other do no harm.
    recent.take(&PoolFeedback {
        over: u64::MAX,
        under: u64::MAX,
        early: 3,
        telling: 1,
        ..PoolFeedback::default()
    });
    assert!(recent.seen().all() <= WINDOW);
}

fn slices(witness: &mut Witness, n: usize, predicted: u64, queries: u64, hits: u64, missing: u64) {
    for _ in 0..n {
        witness.counted(queries, hits);
        witness.answered(&PoolFeedback {
            exact: SLICE - missing,
            missing,
            predicted_tokens: predicted,
            prompt_tokens: 100_000,
            ..PoolFeedback::default()
        });
    }
}

#[test]
fn engines_counters_speak_where_responses_do_not() {
    let verdict = |n, predicted, queries, hits, missing| {
        let mut witness = Witness::default();
        slices(&mut witness, n, predicted, queries, hits, missing);
        witness.verdict()
    };
    assert_eq!(verdict(2, 0, 100_000, 60_000, 50), Verdict::TooLittle);
    assert_eq!(
        verdict(1, 0, 100_000, 60_000, 50),
        Verdict::Unknown,
        "one slice is not enough"
    );
    assert_eq!(verdict(2, 60_000, 100_000, 0, 50), Verdict::TooMuch);
    assert_eq!(verdict(2, 58_000, 110_000, 62_000, 50), Verdict::Agree);
    assert_eq!(
        verdict(2, 0, 100_000, 3_000, 50),
        Verdict::Unknown,
        "nothing to find"
    );
    assert_eq!(
        verdict(2, 0, 300_000, 200_000, 50),
        Verdict::Unknown,
        "others send, too"
    );
    assert_eq!(verdict(2, 0, 0, 0, 50), Verdict::Unknown, "no counters");
    assert_eq!(
        verdict(2, 0, 100_000, 60_000, 10),
        Verdict::Unknown,
        "responses speak"
    );
    let mut witness = Witness::default();
    slices(&mut witness, 2, 0, 100_000, 60_000, 50);
    slices(&mut witness, 1, 60_000, 100_000, 60_000, 50);
    assert_eq!(witness.verdict(), Verdict::Agree, "it ends at once");
}
