//! Guards: what keeps affinity from doing harm. On by default, with no switch.

use super::{Candidate, PickInput, RAMPED, cost};
use crate::ids::ReplicaIndex;

/// A replica may have this much of the mean load, in thousandths, before affinity stops counting.
pub const BOUND_PERMILLE: u64 = 1_250;
/// And this many requests above the mean in any case, so that a few siblings may stay together.
pub const BOUND_SLACK: u64 = 8;
/// Each request above the bound counts for this many microseconds.
pub const OVER_BOUND_US: u64 = 50_000;
/// A new replica is given prompts that others hold while it has less than this share of the mean
/// load, in thousandths.
pub const STARVED_PERMILLE: u64 = 700;
/// And those only that it can compute within this time, in microseconds, beyond the cheapest.
pub const NEWCOMER_US: u64 = 5_000_000;
/// A replica is new for this long after it was added or came back, in milliseconds.
pub const RAMP_MS: u64 = 30_000;
/// One that was away for less than this is as it was before, in milliseconds.
pub const AWAY_MS: u64 = 3_000;

/// [`Candidate::ramp_permille`] of a replica that was added or came back so long ago.
#[must_use]
pub fn ramp_permille(since_ms: u64) -> u16 {
    let share = since_ms.saturating_mul(RAMPED.into()) / RAMP_MS;
    u16::try_from(share).map_or(RAMPED, |share| share.min(RAMPED))
}

/// Of a million requests whose holder is above the bound, and has more than twice as much to do as one
/// that does not hold their prefix, so many go there.
pub const SPREAD_PER_MILLION: u64 = 90_000;
/// And so many where one request makes the difference, which may be chance.
pub const SPREAD_LITTLE_PER_MILLION: u64 = 8_000;
/// And only where there are no more requests than this: a busy replica has no time for it, and the
/// cost tells where a prefix must go.
pub const SPREAD_REQUESTS: u32 = 4;
/// Half as many if they are served this much later there, in microseconds.
pub const SPREAD_US: u64 = 40_000_000;
/// And half as many if no more than this is to be gained, in microseconds.
pub const SPREAD_GAIN_US: u64 = 50_000;

/// What is to be known of all candidates together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Candidates.
    pub count: u64,
    /// Their requests.
    pub requests: u64,
    /// The most of the prompt that one of them holds, in tokens.
    pub most_held: u32,
    /// Computing all of the prompt on the fastest, in microseconds.
    pub whole_us: u64,
    /// Mean backlog, in microseconds.
    pub backlog_us: u64,
}

impl Fleet {
    /// Sums up the candidates.
    #[must_use]
    pub fn of(input: &PickInput<'_>) -> Self {
        let mut fleet = Self::default();
        let mut backlog_us = 0u64;
        let mut fastest = 1;
        for c in input.candidates {
            fastest = fastest.max(c.rates.prefill_tokens_per_s);
            fleet.count += 1;
            fleet.requests += u64::from(c.requests);
            fleet.most_held = fleet.most_held.max(c.held_tokens());
            backlog_us = backlog_us.saturating_add(cost::backlog_us(c));
        }
        let work = cost::prefill_work(0, input.prompt_tokens);
        fleet.whole_us = work.saturating_mul(1_000_000) / u64::from(fastest);
        fleet.backlog_us = backlog_us / fleet.count.max(1);
        fleet
    }

    /// Requests that a replica may have before affinity stops counting there; fewer while it is new.
    #[must_use]
    pub fn bound(&self, c: &Candidate) -> u64 {
        let mean_milli = self.requests.saturating_mul(1_000) / self.count.max(1);
        let bound_milli = (mean_milli.saturating_mul(BOUND_PERMILLE) / 1_000)
            .max(mean_milli.saturating_add(BOUND_SLACK * 1_000));
        let ramp = u64::from(c.ramp_permille.clamp(1, RAMPED));
        bound_milli.saturating_mul(ramp) / 1_000_000
    }
}

/// What a candidate's place beyond the bound adds to its cost, in microseconds.
#[must_use]
pub fn penalty_us(c: &Candidate, fleet: &Fleet) -> u64 {
    let over = u64::from(c.requests).saturating_sub(fleet.bound(c));
    over.saturating_mul(OVER_BOUND_US)
}

/// Whether a candidate is within the bound.
#[must_use]
pub fn has_room(c: &Candidate, fleet: &Fleet) -> bool {
    u64::from(c.requests) <= fleet.bound(c)
}

/// The new replica that is to get this request although others hold more of it, if any: one with
/// too little to do, chosen by lot so that it gets its share of the prompts and not all of them.
#[must_use]
pub fn newcomer(input: &PickInput<'_>, fleet: &Fleet, least_us: u64) -> Option<ReplicaIndex> {
    if fleet.most_held == 0 || fleet.requests < fleet.count {
        return None;
    }
    let lot = (input.random >> 32).wrapping_mul(fleet.count) >> 32;
    let c = input
        .candidates
        .iter()
        .filter(|c| c.ramp_permille < RAMPED)
        .min_by_key(|c| (c.requests, rendezvous(input.random, c.replica)))?;
    let share = u64::from(c.requests).saturating_mul(fleet.count * 1_000) / fleet.requests.max(1);
    let affordable = cost::of(input, c, fleet).total_us() <= least_us.saturating_add(NEWCOMER_US);
    // Twice its share of the requests, until it has enough.
    (lot < 2 && share < STARVED_PERMILLE && affordable).then_some(c.replica)
}

/// The replica that is to become another home of this prompt's prefix, if any: one with much less to do
/// than `home`, the cheapest, where that has more than its share, and not every time. A prefix that is asked for often comes to be where
/// there is room; one that is asked for now and then is seldom computed twice.
#[must_use]
pub fn second_home(input: &PickInput<'_>, fleet: &Fleet, home: &Candidate) -> Option<ReplicaIndex> {
    let idler = |c: &&Candidate| {
        c.held_tokens() < fleet.most_held / 2
            && 2 * u64::from(c.requests) < u64::from(home.requests)
            && c.requests <= SPREAD_REQUESTS
            && c.waiting == 0
            && c.kv_usage_permille <= cost::KV_FULL_PERMILLE
            && c.ramp_permille >= RAMPED
    };
    let above = |requests: u32| {
        let permille = u64::from(requests).saturating_mul(fleet.count * 1_000);
        permille > fleet.requests.saturating_mul(BOUND_PERMILLE)
    };
    let holds = fleet.most_held > 0 && home.held_tokens() >= fleet.most_held / 2;
    if !above(home.requests) || !holds {
        return None;
    }
    // Not while somebody computes it, so not for siblings that come at once.
    let underway = |c: &Candidate| {
        c.held_tokens() >= fleet.most_held / 2 && c.announced_tokens < fleet.most_held / 2
    };
    if input.candidates.iter().any(underway) {
        return None;
    }
    let c = input
        .candidates
        .iter()
        .filter(idler)
        .min_by_key(|c| (c.requests, !rendezvous(input.prefix_key, c.replica)))?;
    let there = cost::of(input, home, fleet);
    let extra_us = cost::of(input, c, fleet)
        .total_us()
        .saturating_sub(there.total_us());
    let crowd_us = there.queue_us.saturating_add(there.decode_us);
    let per_million = if above(home.requests.saturating_sub(1)) {
        SPREAD_PER_MILLION
    } else {
        SPREAD_LITTLE_PER_MILLION
    };
    let part = |of: u64, (a, b): (u64, u64)| of.saturating_mul(a) / a.saturating_add(b).max(1);
    let chance = part(per_million, (SPREAD_US, extra_us));
    let chance = part(chance, (crowd_us.min(SPREAD_US), SPREAD_GAIN_US));
    let lot = (input.random & 0xffff_ffff).wrapping_mul(1_000_000) >> 32;
    (lot < chance).then_some(c.replica)
}

/// A replica's weight for a key: the replica of the highest weight is the key's home, the next its
/// second home, and so on. Adding or removing a replica moves only the keys that are its own.
#[must_use]
pub fn rendezvous(key: u64, replica: ReplicaIndex) -> u64 {
    let mut x = key ^ (u64::from(replica.0) + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn fleet(requests: &[u32]) -> Vec<Candidate> {
        (0u16..)
            .zip(requests)
            .map(|(r, &requests)| Candidate {
                requests,
                ..Candidate::new(ReplicaIndex(r))
            })
            .collect()
    }

    fn input(candidates: &[Candidate], random: u64) -> PickInput<'_> {
        PickInput {
            prompt_tokens: 4_000,
            block_size: 16,
            candidates,
            prefix_key: 1,
            session: None,
            looked_up: true,
            random,
        }
    }

    #[test]
    fn the_bound_is_a_quarter_above_the_mean_and_leaves_siblings_room() {
        let busy = fleet(&[100, 100, 100, 100]);
        let all = Fleet::of(&input(&busy, 0));
        assert_eq!(all.bound(&busy[0]), 125);
        let quiet = fleet(&[1, 0, 0, 3]);
        assert_eq!(Fleet::of(&input(&quiet, 0)).bound(&quiet[0]), 9);
        let mut hot = fleet(&[300, 10, 10, 10]);
        let all = Fleet::of(&input(&hot, 0));
        assert!(penalty_us(&hot[0], &all) > 0);
        assert_eq!(penalty_us(&hot[1], &all), 0);
        // A new replica reaches its bound sooner.
        hot[1].ramp_permille = 50;
        assert!(penalty_us(&hot[1], &all) > 0);
    }

    #[test]
    fn a_newcomer_gets_a_share_and_not_all() {
        let mut all = fleet(&[10, 10, 10, 10, 10, 10, 10, 0]);
        for c in &mut all[..7] {
            c.matched_tokens = 3_200;
        }
        all[7].ramp_permille = 100;
        let given = |all: &[Candidate]| {
            (0..8_000u64)
                .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .filter(|&r| {
                    let input = input(all, r);
                    newcomer(&input, &Fleet::of(&input), 0).is_some()
                })
                .count()
        };
        let starved = given(&all);
        assert!((1_800..2_200).contains(&starved), "{starved}");
        all[7].requests = 8;
        assert_eq!(given(&all), 0);
        all[7].requests = 0;
        all[7].ramp_permille = RAMPED;
        assert_eq!(given(&all), 0);
    }

    #[test]
    fn a_prefix_that_crowds_one_replica_gets_a_second_home_now_and_then() {
        let mut all = fleet(&[6, 0, 1, 0]);
        (all[0].matched_tokens, all[0].announced_tokens) = (3_200, 3_200);
        all[0].backlog_tokens = 20_000;
        let given = |all: &[Candidate]| -> Vec<ReplicaIndex> {
            (0..10_000u64)
                .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
                .filter_map(|r| {
                    let input = input(all, r);
                    second_home(&input, &Fleet::of(&input), &all[0])
                })
                .collect()
        };
        let homes = given(&all);
        assert!((700..1_000).contains(&homes.len()), "{}", homes.len());
        // The same one each time: the first of the idle ones in the prefix's own order.
        let first = [1, 3].map(ReplicaIndex);
        let first = first.into_iter().max_by_key(|&r| rendezvous(1, r));
        assert!(homes.iter().all(|&home| Some(home) == first));
        // Not once it holds the prefix or is about to, not while memory is short, and not from a replica that has no
        // more than its share.
        let mut held = all.clone();
        for c in &mut held[1..] {
            c.matched_tokens = 3_200;
        }
        assert_eq!(given(&held), []);
        held[1].matched_tokens = 0;
        assert_eq!(given(&held), []);
        let mut full = all.clone();
        for c in &mut full[1..] {
            c.kv_usage_permille = 950;
        }
        assert_eq!(given(&full), []);
        all[0].requests = 2;
        all[1].requests = 2;
        all[3].requests = 2;
        assert_eq!(given(&all), []);
    }

    #[test]
    fn rendezvous_moves_only_what_must_move() {
        let home = |key, replicas: u16| {
            (0..replicas)
                .map(ReplicaIndex)
                .max_by_key(|&r| rendezvous(key, r))
        };
        let mut counts = [0u32; 9];
        for key in 0..9_000u64 {
            let (eight, nine) = (home(key, 8).unwrap(), home(key, 9).unwrap());
            assert!(nine == eight || nine == ReplicaIndex(8));
            counts[usize::from(nine.0)] += 1;
        }
        assert!(
            counts.iter().all(|c| (850..1_150).contains(c)),
            "{counts:?}"
        );
    }
}
