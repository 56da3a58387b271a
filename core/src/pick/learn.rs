//! How fast a replica is, from what its requests took.

use super::Rates;

/// Work below this many tokens says more about the network than about prefill.
const WORK_MIN: u64 = 1_024;
/// The rate stays within these bounds, in tokens per second, whatever is observed.
const RATE_MIN: f32 = 200.0;
const RATE_MAX: f32 = 1_000_000.0;
/// Time between two tokens stays within these bounds, in microseconds.
const STEP_MIN: f32 = 200.0;
const STEP_MAX: f32 = 500_000.0;
/// The first observations move an estimate by this factor's logarithm at most, later ones less.
const GAIN_FIRST: f32 = 0.5;
const GAIN_LAST: f32 = 0.03;
/// A first token is late for many reasons and early for none, so the rate follows the fast ones: of
/// four observations one is faster.
const FAST: f32 = 0.75;
/// Time between tokens on an otherwise idle engine: of four observations one is shorter.
const SHORT: f32 = 0.25;

/// From so many observations on an estimate stands on its own.
const SEEN_ENOUGH: f32 = 32.0;
/// Replicas whose estimates differ by less than this factor are taken for equal: the estimates are no
/// better, and equal replicas must get equal shares.
const ALIKE: f32 = 1.3;

/// Learns one replica's [`Rates`]. Robust: no single observation moves an estimate far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLearner {
    prefill: Quantile,
    step: Quantile,
}

/// A quantile of a stream of positive numbers, followed in small steps of its logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quantile {
    value: f32,
    gain: f32,
    seen: u32,
}

impl Quantile {
    fn new(value: f32) -> Self {
        Self {
            value,
            gain: GAIN_FIRST,
            seen: 0,
        }
    }

    fn observe(&mut self, sample: f32, quantile: f32, (low, high): (f32, f32)) {
        if !(sample.is_finite() && sample > 0.0) {
            return;
        }
        let step = if sample > self.value {
            1.0 + self.gain * quantile
        } else {
            1.0 / (1.0 + self.gain * (1.0 - quantile))
        };
        self.value = (self.value * step).clamp(low, high);
        self.gain = (self.gain * 0.93).max(GAIN_LAST);
        self.seen = self.seen.saturating_add(1);
    }

    /// Its own estimate as far as it has seen enough and differs for certain, else the other's.
    fn blend(&self, other: &Self) -> f32 {
        if self.value < other.value * ALIKE && other.value < self.value * ALIKE {
            return other.value;
        }
        let own = (self.seen as f32 / SEEN_ENOUGH).min(1.0);
        self.value * own + other.value * (1.0 - own)
    }
}

impl RateLearner {
    /// Nothing observed yet: [`Rates::START`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            prefill: Quantile::new(Rates::START.prefill_tokens_per_s as f32),
            step: Quantile::new(Rates::START.step_us as f32),
        }
    }

    /// A first token came `ttft_us` after the request was sent. `work_tokens`: what was to be computed
    /// before it, its own and the backlog that it found, in [`super::cost::prefill_work`] tokens.
    pub fn observe_first_token(&mut self, work_tokens: u64, ttft_us: u64) {
        if work_tokens < WORK_MIN || ttft_us == 0 {
            return;
        }
        let rate = work_tokens as f32 / (ttft_us as f32 / 1e6);
        self.prefill.observe(rate, FAST, (RATE_MIN, RATE_MAX));
    }

    /// An answer of `tokens` tokens after its first took `us` with `requests` running.
    pub fn observe_answer(&mut self, tokens: u32, us: u64, requests: u32) {
        if tokens < 8 {
            return;
        }
        let step = us as f32 / tokens as f32;
        let others = Rates::START.running_ns(requests, 0) as f32 / 1e3;
        self.step
            .observe((step - others).max(STEP_MIN), SHORT, (STEP_MIN, STEP_MAX));
    }

    /// What is known now.
    #[must_use]
    pub fn rates(&self) -> Rates {
        self.rates_in(self)
    }

    /// What is known now of one replica of a pool; `pool` has observed all of its replicas. Without it
    /// a replica that has had little to do would keep its start value, look slow beside the others and
    /// get less still.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped above
    pub fn rates_in(&self, pool: &Self) -> Rates {
        Rates {
            prefill_tokens_per_s: self.prefill.blend(&pool.prefill) as u32,
            step_us: self.step.blend(&pool.step) as u32,
            ..Rates::START
        }
    }
}

impl Default for RateLearner {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// Noise in 0..1, the same every time.
    fn noise(n: u64) -> f32 {
        (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1u64 << 24) as f32
    }

    #[test]
    fn it_starts_safely_and_finds_the_rate() {
        assert_eq!(RateLearner::new().rates(), Rates::START);
        for (true_rate, after) in [(2_000.0f32, 60u64), (40_000.0, 60), (150_000.0, 120)] {
            let mut learner = RateLearner::default();
            for n in 0..after {
                // Late by up to half, for whatever reason.
                let work = 2_000 + n * 37 % 9_000;
                let ttft = work as f32 / true_rate * (1.0 + 0.5 * noise(n));
                learner.observe_first_token(work, (ttft * 1e6) as u64);
            }
            let rate = learner.rates().prefill_tokens_per_s as f32;
            assert!(
                (0.7..1.15).contains(&(rate / true_rate)),
                "{true_rate}: {rate}"
            );
        }
    }

    #[test]
    fn no_observation_moves_it_far_or_out_of_bounds() {
        let mut learner = RateLearner::new();
        for n in 0..100 {
            learner.observe_first_token(4_000, 200_000 + n * 100);
        }
        let before = learner.rates().prefill_tokens_per_s;
        learner.observe_first_token(u64::MAX, 1);
        learner.observe_first_token(2_000, u64::MAX);
        let after = learner.rates().prefill_tokens_per_s;
        assert!(after.abs_diff(before) < before / 20, "{before} {after}");
        for _ in 0..10_000 {
            learner.observe_first_token(u64::MAX, 1);
            learner.observe_answer(u32::MAX, 0, 0);
        }
        assert!(learner.rates().prefill_tokens_per_s <= 1_000_000);
        assert!(learner.rates().step_us >= 200);
    }

    #[test]
    fn a_replica_that_did_little_is_taken_for_its_peers_equal() {
        let (mut pool, mut own) = (RateLearner::new(), RateLearner::new());
        for _ in 0..200 {
            pool.observe_first_token(4_000, 100_000);
        }
        assert_eq!(own.rates_in(&pool), pool.rates());
        for _ in 0..100 {
            own.observe_first_token(4_000, 400_000);
        }
        let rate = own.rates_in(&pool).prefill_tokens_per_s;
        assert!((9_000..11_000).contains(&rate), "{rate}");
    }

    #[test]
    fn small_prompts_and_short_answers_tell_nothing() {
        let mut learner = RateLearner::new();
        learner.observe_first_token(100, 1);
        learner.observe_first_token(100_000, 0);
        learner.observe_answer(3, 1, 0);
        assert_eq!(learner.rates(), Rates::START);
    }

    #[test]
    fn the_step_is_that_of_an_idle_engine() {
        let mut learner = RateLearner::new();
        for n in 0..200u64 {
            let requests = (n % 40) as u32;
            let step = 7_000.0 + 50.0 * requests as f32 + 500.0 * noise(n);
            learner.observe_answer(100, (step * 100.0) as u64, requests);
        }
        let step = learner.rates().step_us;
        assert!((6_500..7_600).contains(&step), "{step}");
    }
}
