//! Prompts that begin with something new each time: a timestamp or an id in front of what is always
//! the same. No cache can help them, however they are placed.
//!
//! Block hashes are chained, so such prompts agree in none. What gives them away is the second block's
//! own hash, whatever stands before it: seen before, and now behind a first block that was never seen.
//!
//! Pure, and bounded: of each pool's latest [`KEPT`] to twice as many blocks it is known which were
//! seen, and sums are kept for an hour.

use std::collections::HashSet;

/// Blocks remembered at least, of first and of second ones each; twice as many at most. About 1.5 MB.
pub const KEPT: usize = 16_384;
/// Seconds that are summed at once.
const STEP_S: u64 = 60;
/// Sums kept: an hour.
const STEPS: usize = 60;

/// What came in the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests whose prompt has two blocks at least.
    pub requests: u64,
    /// Tokens of their prompts.
    pub tokens: u64,
    /// Of those requests, such that began with something new in front of what was known.
    pub volatile_requests: u64,
    /// Tokens of their prompts.
    pub volatile_tokens: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.tokens += other.tokens;
        self.volatile_requests += other.volatile_requests;
        self.volatile_tokens += other.volatile_tokens;
    }
}

/// One pool's prompts.
#[derive(Debug)]
pub struct Starts {
    firsts: Seen,
    seconds: Seen,
    /// By step modulo [`STEPS`]: the step, and its sums.
    steps: [(u64, Sums); STEPS],
}

impl Default for Starts {
    fn default() -> Self {
        Self::new(KEPT)
    }
}

impl Starts {
    fn new(kept: usize) -> Self {
        Self {
            firsts: Seen::new(kept),
            seconds: Seen::new(kept),
            steps: [(0, Sums::default()); STEPS],
        }
    }

    /// A request at `now_s`: the hash of its first block, that of its second one alone, and the prompt's
    /// tokens. A hash of 0: there is no such block, or it is not known.
    pub fn request(&mut self, first: u64, second: u64, tokens: u32, now_s: u64) {
        if first == 0 || second == 0 {
            return;
        }
        let known = self.firsts.insert(first);
        // With another first block, since this one is new.
        let volatile = self.seconds.insert(second) && !known;
        let tokens = u64::from(tokens);
        let step = now_s / STEP_S;
        let at = usize::try_from(step % STEPS as u64).unwrap_or(0);
        if let Some((of, sums)) = self.steps.get_mut(at) {
            if *of != step {
                (*of, *sums) = (step, Sums::default());
            }
            sums.add(&Sums {
                requests: 1,
                tokens,
                volatile_requests: volatile.into(),
                volatile_tokens: if volatile { tokens } else { 0 },
            });
        }
    }

    /// Sums of the last hour.
    #[must_use]
    pub fn sums(&self, now_s: u64) -> Sums {
        let oldest = (now_s / STEP_S + 1).saturating_sub(STEPS as u64);
        let mut all = Sums::default();
        let recent = self.steps.iter().filter(|(step, _)| *step >= oldest);
        recent.for_each(|(_, sums)| all.add(sums));
        all
    }
}

/// The latest blocks: two generations, the older of which is forgotten as a whole.
#[derive(Debug)]
struct Seen {
    kept: usize,
    new: HashSet<u64>,
    old: HashSet<u64>,
}

impl Seen {
    fn new(kept: usize) -> Self {
        Self {
            kept,
            new: HashSet::new(),
            old: HashSet::new(),
        }
    }

    /// Notes a block. True: it was known.
    fn insert(&mut self, block: u64) -> bool {
        if self.new.contains(&block) {
            return true;
        }
        if self.new.len() >= self.kept {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(block);
        self.old.contains(&block)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_timestamp_in_front_shows() {
        let mut starts = Starts::default();
        for n in 0..10 {
            starts.request(1000 + n, 7, 500, n);
        }
        // One prompt that is as it should be, and one without a second block.
        for n in 0..10 {
            starts.request(1, 2, 100, n);
            starts.request(5000 + n, 0, 50, n);
        }
        let sums = starts.sums(10);
        assert_eq!((sums.requests, sums.tokens), (20, 6000));
        // The first one showed only by the second.
        assert_eq!((sums.volatile_requests, sums.volatile_tokens), (9, 4500));
        assert_eq!(starts.sums(3599), sums);
        assert_eq!(starts.sums(3600), Sums::default());
    }

    #[test]
    fn tenants_with_a_start_of_their_own_do_not() {
        let mut starts = Starts::default();
        for n in 0..1000 {
            starts.request(1 + n % 10, 7, 1, 0);
        }
        assert_eq!(starts.sums(0).volatile_requests, 9);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut starts = Starts::default();
        for n in 1..=(5 * KEPT as u64) {
            starts.request(n, n, 1, n);
        }
        for seen in [&starts.firsts, &starts.seconds] {
            assert!(seen.new.len() + seen.old.len() <= 2 * KEPT);
        }
        // The latest are still known.
        assert!(starts.firsts.insert(4 * KEPT as u64 + 1));
    }

    proptest! {
        #[test]
        fn a_naive_model_agrees(requests in prop::collection::vec((0u64..6, 0u64..4, 1u32..9, 0u64..200), 0..200)) {
            let mut starts = Starts::default();
            let (mut firsts, mut seconds) = (BTreeSet::new(), BTreeSet::new());
            let mut all = Vec::new();
            let mut now_s = 0;
            for (first, second, tokens, later_s) in requests {
                now_s += later_s;
                starts.request(first, second, tokens, now_s);
                if first > 0 && second > 0 {
                    let known = !seconds.insert(second);
                    all.push((now_s, tokens, firsts.insert(first) && known));
                }
                let mut sums = Sums::default();
                for (at_s, tokens, volatile) in &all {
                    if at_s / STEP_S + STEPS as u64 > now_s / STEP_S {
                        sums.requests += 1;
                        sums.tokens += u64::from(*tokens);
                        sums.volatile_requests += u64::from(*volatile);
                        sums.volatile_tokens += if *volatile { u64::from(*tokens) } else { 0 };
                    }
                }
                prop_assert_eq!(starts.sums(now_s), sums);
            }
        }
    }
}
