//! Guards: what keeps affinity from doing harm. On by default, with no switch.

use super::{Candidate, PickInput, RAMPED, Rates, cost};
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

/// What is to be known of all candidates together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Candidates.
    pub count: u64,
    /// Their requests.
    pub requests: u64,
    /// The most of the prompt that one of them holds, in tokens.
    pub most_held: u32,
    /// How much longer a unit of work delays those that come after it, in thousandths of itself: 0
    /// on an idle fleet.
    pub congestion_permille: u64,
}

impl Fleet {
    /// Sums up the candidates.
    #[must_use]
    pub fn of(input: &PickInput<'_>) -> Self {
        let mut fleet = Self::default();
        let mut backlog_us = 0u64;
        for c in input.candidates {
            fleet.count += 1;
            fleet.requests += u64::from(c.requests);
            fleet.most_held = fleet.most_held.max(c.held_tokens());
            backlog_us = backlog_us.saturating_add(cost::backlog_us(c));
        }
        let mean_us = backlog_us / fleet.count.max(1);
        let own = cost::prefill_work(0, input.prompt_tokens);
        let own_us = Rates::START.prefill_us(own).max(1);
        fleet.congestion_permille = (mean_us.saturating_mul(1_000) / own_us).min(2_000);
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
