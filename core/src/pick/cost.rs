//! What a request costs on a replica: the terms, each a function of its own.

use super::guard::Fleet;
use super::{Candidate, PickInput};

/// Context length, in tokens, at which a prompt token's attention costs as much as all the rest of
/// it: about 32K for models of 8 B parameters, more for larger ones.
pub const ATTENTION_TOKENS: u64 = 32_768;
/// Tokens that an engine computes in one step (vLLM's `max_num_batched_tokens` on a server).
pub const CHUNK_TOKENS: u64 = 8_192;
/// Tokens of an answer whose decoding a request's place is charged for. Answers are longer; the
/// first token is what routing can still hurt, so the rest counts in part.
pub const OUTPUT_TOKENS: u64 = 48;
/// Prefill counts this much more than its own time, in thousandths, on an idle fleet: what is
/// computed twice is lost to whoever comes next.
pub const BURDEN_PERMILLE: u64 = 500;
/// How much of the mean backlog a prompt counts that is not held at all, in thousandths.
pub const WASTE_PERMILLE: u64 = 500;
/// So many stalled answers count as much as the prefill that stalls them.
pub const STALL_REQUESTS: u64 = 32;
/// Share of KV memory in use, in thousandths, from which a replica may make requests wait for memory.
pub const KV_FULL_PERMILLE: u16 = 900;
/// Costs that differ by less than this are as good as equal, in microseconds.
pub const EQUAL_US: u64 = 10_000;

/// How fast a replica is: learned ([`super::learn`]), or these start values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Prompt tokens computed per second, short contexts.
    pub prefill_tokens_per_s: u32,
    /// Time between two tokens of an answer on an otherwise idle engine, in microseconds.
    pub step_us: u32,
    /// What each running request adds to that, in nanoseconds.
    pub step_ns_per_request: u32,
    /// What 1,000 tokens of running requests' context add to that, in nanoseconds.
    pub step_ns_per_kilotoken: u32,
    /// Tokens per second from a lower tier into GPU memory.
    pub tier_tokens_per_s: u32,
}

impl Rates {
    /// An 8 B model on one large GPU, on the slow side: a replica thought too slow still gets its
    /// share of the load, one thought too fast would be sent prompts that others hold.
    pub const START: Self = Self {
        prefill_tokens_per_s: 10_000,
        step_us: 10_000,
        step_ns_per_request: 50_000,
        step_ns_per_kilotoken: 40_000,
        tier_tokens_per_s: 100_000,
    };

    /// Microseconds of prefill for so many tokens of work.
    #[must_use]
    pub fn prefill_us(&self, work_tokens: u64) -> u64 {
        let ns_per_token = 1_000_000_000 / u64::from(self.prefill_tokens_per_s.max(1));
        work_tokens.saturating_mul(ns_per_token) / 1_000
    }

    /// What running requests add to a step, in nanoseconds.
    #[must_use]
    pub fn running_ns(&self, requests: u32, context_tokens: u64) -> u64 {
        let requests = u64::from(requests) * u64::from(self.step_ns_per_request);
        let context = (context_tokens >> 10).saturating_mul(u64::from(self.step_ns_per_kilotoken));
        requests.saturating_add(context)
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self::START
    }
}

/// The cost by terms, each in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    /// Before this request's prefill begins: what is queued, or memory or places to become free.
    pub queue_us: u64,
    /// Computing what of the prompt is not held.
    pub prefill_us: u64,
    /// What that computing costs others: answers stall meanwhile, prompts behind it wait.
    pub burden_us: u64,
    /// Decode steps shared with running requests.
    pub decode_us: u64,
    /// Loading what a lower tier holds.
    pub tier_us: u64,
}

impl Cost {
    /// The sum.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.queue_us
            .saturating_add(self.prefill_us)
            .saturating_add(self.burden_us)
            .saturating_add(self.decode_us)
            .saturating_add(self.tier_us)
    }
}

/// The cost of a request on a candidate.
#[must_use]
pub fn of(input: &PickInput<'_>, c: &Candidate, fleet: &Fleet) -> Cost {
    let hit = hit_tokens(c.held_tokens(), input.prompt_tokens, input.block_size);
    let on_gpu = hit_tokens(c.matched_tokens, input.prompt_tokens, input.block_size);
    let work = prefill_work(hit, input.prompt_tokens);
    let prefill_us = c.rates.prefill_us(work);
    Cost {
        queue_us: backlog_us(c).max(admission_us(c)),
        prefill_us,
        burden_us: burden_us(prefill_us, c).saturating_add(waste_us(
            input.prompt_tokens - hit,
            input.prompt_tokens,
            fleet,
        )),
        decode_us: decode_us(work, c),
        tier_us: tier_us(hit - on_gpu, c),
    }
}

/// Tokens of the prompt that a replica need not compute: whole engine blocks, and never the last
/// token, which the engine always computes to have something to sample from.
#[must_use]
pub fn hit_tokens(matched_tokens: u32, prompt_tokens: u32, block_size: u32) -> u32 {
    let hit = matched_tokens.min(prompt_tokens.saturating_sub(1));
    hit - hit % block_size.max(1)
}

/// What it takes to compute a prompt's tokens from `hit` to its end, in tokens at the start of a
/// prompt: attention makes those after a long context dearer.
#[must_use]
pub fn prefill_work(hit: u32, prompt_tokens: u32) -> u64 {
    let (hit, prompt) = (u64::from(hit), u64::from(prompt_tokens));
    let tokens = prompt.saturating_sub(hit);
    tokens.saturating_mul(2 * ATTENTION_TOKENS + hit + prompt) / (2 * ATTENTION_TOKENS)
}

/// Prefill of what was sent before, in microseconds.
#[must_use]
pub fn backlog_us(c: &Candidate) -> u64 {
    c.rates.prefill_us(c.backlog_tokens)
}

/// Waiting for a place or memory, in microseconds: as many answers must end as requests wait. It is
/// no sum with the backlog: whichever takes longer holds the queue up.
#[must_use]
pub fn admission_us(c: &Candidate) -> u64 {
    let full = c.kv_usage_permille > KV_FULL_PERMILLE;
    let ahead = u64::from(c.waiting) + u64::from(full);
    if ahead == 0 {
        return 0;
    }
    let running = u64::from(c.requests.saturating_sub(c.waiting).max(1));
    let step_us =
        u64::from(c.rates.step_us) + c.rates.running_ns(c.requests, c.context_tokens) / 1_000;
    ahead.saturating_mul(OUTPUT_TOKENS.saturating_mul(step_us)) / running
}

/// What this prefill costs others, in microseconds: the running answers that it stalls, and what
/// comes while it lasts.
#[must_use]
pub fn burden_us(prefill_us: u64, c: &Candidate) -> u64 {
    let stalled = prefill_us.saturating_mul(u64::from(c.requests)) / STALL_REQUESTS;
    stalled.saturating_add(prefill_us.saturating_mul(BURDEN_PERMILLE) / 1_000)
}

/// On a busy fleet what is computed twice is lost to all that waits: a prompt that is not held at
/// all counts as so much of the mean backlog, in microseconds. So the longer the queues, the more of
/// a difference between them does affinity outweigh, and the difference stays in proportion.
#[must_use]
pub fn waste_us(uncached_tokens: u32, prompt_tokens: u32, fleet: &Fleet) -> u64 {
    let share_permille = u64::from(uncached_tokens) * 1_000 / u64::from(prompt_tokens.max(1));
    fleet
        .backlog_us
        .saturating_mul(share_permille * WASTE_PERMILLE / 1_000)
        / 1_000
}

/// Steps shared with running requests, in microseconds: those of its prefill and backlog, which each
/// take a decode step along, and those of its answer.
#[must_use]
pub fn decode_us(work_tokens: u64, c: &Candidate) -> u64 {
    let running_ns = c.rates.running_ns(c.requests, c.context_tokens);
    let steps = OUTPUT_TOKENS + work_tokens.saturating_add(c.backlog_tokens) / CHUNK_TOKENS;
    running_ns.saturating_mul(steps) / 1_000
}

/// Loading tokens from a lower tier, in microseconds.
#[must_use]
pub fn tier_us(tokens: u32, c: &Candidate) -> u64 {
    u64::from(tokens) * 1_000_000 / u64::from(c.rates.tier_tokens_per_s.max(1))
}

/// The highest cost that is as good as `least`, in microseconds, where computing all of the prompt
/// takes `whole_us`: rates are known no better than that.
#[must_use]
pub fn as_good_as(least: u64, whole_us: u64) -> u64 {
    least.saturating_add(EQUAL_US).saturating_add(whole_us / 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ReplicaIndex;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn idle() -> Candidate {
        Candidate::new(ReplicaIndex(0))
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
    fn work_grows_with_the_context_before_it() {
        assert_eq!(prefill_work(0, 1_000), 1_015);
        // Twice the price in the middle of 64K tokens.
        assert_eq!(prefill_work(0, 65_536), 2 * 65_536);
        assert_eq!(prefill_work(65_536, 65_636), 100 * 3);
        assert_eq!(prefill_work(7, 7), 0);
        // In two parts or in one: the same.
        let parts = prefill_work(0, 40_000) + prefill_work(40_000, 100_000);
        assert!(parts.abs_diff(prefill_work(0, 100_000) + 64_000) <= 64_000 + 2);
    }

    #[test]
    fn the_backlog_is_prefill_time() {
        let busy = Candidate {
            backlog_tokens: 5_000,
            ..idle()
        };
        assert_eq!(backlog_us(&idle()), 0);
        assert_eq!(backlog_us(&busy), 500_000);
        let fast = Rates {
            prefill_tokens_per_s: 50_000,
            ..Rates::START
        };
        assert_eq!(
            backlog_us(&Candidate {
                rates: fast,
                ..busy
            }),
            100_000
        );
    }

    #[test]
    fn waiting_requests_wait_for_answers_to_end() {
        assert_eq!(admission_us(&idle()), 0);
        let waits = |waiting, requests| {
            admission_us(&Candidate {
                waiting,
                requests,
                ..idle()
            })
        };
        assert!(waits(10, 110) > 0);
        assert!(waits(20, 120) > waits(10, 110));
        // The more run, the sooner one ends.
        assert!(waits(10, 210) < waits(10, 20));
        let full = Candidate {
            kv_usage_permille: 990,
            requests: 4,
            ..idle()
        };
        assert!(admission_us(&full) > 0);
    }

    #[test]
    fn running_requests_and_their_context_slow_decoding() {
        let with = |requests, context_tokens| {
            let c = Candidate {
                requests,
                context_tokens,
                ..idle()
            };
            decode_us(1_000, &c)
        };
        assert_eq!(with(0, 0), 0);
        assert!(with(10, 0) > 0);
        assert!(with(20, 0) > with(10, 0));
        assert!(with(10, 100_000) > with(10, 10_000));
    }

    #[test]
    fn a_long_prompt_minds_running_answers_more_than_a_short_one() {
        let busy = Candidate {
            requests: 20,
            ..idle()
        };
        let long = burden_us(5_000_000, &busy);
        assert!(long > 2_500_000 + 500_000);
        assert!(burden_us(20_000, &busy) < 25_000);
        assert_eq!(burden_us(5_000_000, &idle()), 2_500_000);
    }

    #[test]
    fn what_is_computed_twice_weighs_by_the_queues() {
        let fleet = Fleet {
            backlog_us: 10_000_000,
            ..Fleet::default()
        };
        assert_eq!(waste_us(1_000, 1_000, &fleet), 5_000_000);
        assert_eq!(waste_us(250, 1_000, &fleet), 1_250_000);
        assert_eq!(waste_us(1_000, 1_000, &Fleet::default()), 0);
    }

    #[test]
    fn loading_takes_its_time() {
        assert_eq!(tier_us(100_000, &idle()), 1_000_000);
        assert_eq!(tier_us(0, &idle()), 0);
    }
}
