//! Sums by minute.

use std::collections::VecDeque;

use prefix_picker_core::sync::decisions::Decision;

/// What is older goes, in seconds.
pub const KEPT_S: u64 = 7 * 86_400;
/// Seconds that are summed at once.
const STEP_S: u64 = 60;

/// Sums over requests; all but `told*` and `virtual*` over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests that were looked up and answered.
    pub requests: u64,
    /// Of those, served by the endpoint chosen.
    pub agreed: u64,
    /// Tokens of their prompts, known or estimated.
    pub prompt_tokens: u64,
    /// Prompt tokens held where we chose, by the table.
    pub chosen_tokens: u64,
    /// Prompt tokens held where they were served, by the table.
    pub served_tokens: u64,
    /// Requests whose response told what was cached.
    pub told: u64,
    /// Tokens of their prompts, by the engines' count.
    pub told_prompt_tokens: u64,
    /// Of those, found cached.
    pub told_cached_tokens: u64,
    /// Requests chosen for a replica with a virtual cache.
    pub virtual_requests: u64,
    /// Tokens of their prompts.
    pub virtual_prompt_tokens: u64,
    /// Of those, found in the virtual caches.
    pub virtual_hit_tokens: u64,
}

/// Both kinds of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// In shadow.
    pub shadow: Figures,
    /// Enforced.
    pub enforced: Figures,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.requests, other.requests),
            (&mut self.agreed, other.agreed),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.chosen_tokens, other.chosen_tokens),
            (&mut self.served_tokens, other.served_tokens),
            (&mut self.told, other.told),
            (&mut self.told_prompt_tokens, other.told_prompt_tokens),
            (&mut self.told_cached_tokens, other.told_cached_tokens),
            (&mut self.virtual_requests, other.virtual_requests),
            (&mut self.virtual_prompt_tokens, other.virtual_prompt_tokens),
            (&mut self.virtual_hit_tokens, other.virtual_hit_tokens),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }

    fn of(decision: &Decision, virtual_hit: Option<u64>) -> Self {
        let prompt_tokens = u64::from(decision.prompt_tokens);
        let told = decision.told.unwrap_or_default();
        Self {
            requests: 1,
            agreed: u64::from(decision.agreed),
            prompt_tokens,
            chosen_tokens: decision.chosen_tokens.into(),
            served_tokens: decision.served_tokens.into(),
            told: u64::from(decision.told.is_some()),
            told_prompt_tokens: told.prompt_tokens.into(),
            told_cached_tokens: told.cached_tokens.into(),
            virtual_requests: u64::from(virtual_hit.is_some()),
            virtual_prompt_tokens: virtual_hit.map_or(0, |_| prompt_tokens),
            virtual_hit_tokens: virtual_hit.unwrap_or(0),
        }
    }
}

impl Sums {
    /// One request more; `virtual_hit`: tokens found in the virtual cache, if there is one.
    fn add(&mut self, decision: &Decision, virtual_hit: Option<u64>) {
        let figures = if decision.enforced {
            &mut self.enforced
        } else {
            &mut self.shadow
        };
        figures.add(&Figures::of(decision, virtual_hit));
    }
}

/// The last [`KEPT_S`] seconds: the minutes that have something, in order, 184 bytes each.
#[derive(Debug, Default)]
pub struct Ring {
    minutes: VecDeque<(u64, Sums)>,
}

impl Ring {
    /// One request more, in the minute that `now_s` is in. Time goes forward only.
    pub fn add(&mut self, now_s: u64, decision: &Decision, virtual_hit: Option<u64>) {
        let minute = now_s / STEP_S;
        while let Some((first, _)) = self.minutes.front()
            && first + KEPT_S / STEP_S <= minute
        {
            self.minutes.pop_front();
        }
        match self.minutes.back_mut() {
            Some((newest, sums)) if *newest == minute => sums.add(decision, virtual_hit),
            _ => {
                let mut sums = Sums::default();
                sums.add(decision, virtual_hit);
                self.minutes.push_back((minute, sums));
            }
        }
    }

    /// The sum since then, to the minute.
    #[must_use]
    pub fn since(&self, from_s: u64) -> Sums {
        let mut sum = Sums::default();
        let late = self.minutes.iter().rev();
        for (_, minute) in late.take_while(|(minute, _)| *minute >= from_s / STEP_S) {
            sum.shadow.add(&minute.shadow);
            sum.enforced.add(&minute.enforced);
        }
        sum
    }
}
