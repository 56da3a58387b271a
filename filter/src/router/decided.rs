//! What a request's record in the control plane's report is made of, see [`crate::decisions`].

use prefix_picker_core::blocks::prompt::Blocks;
use prefix_picker_core::checksum::checksum;
use prefix_picker_core::pick::hit_tokens;
use prefix_picker_core::sync::decisions::{Decision, Mark, Told, marks};
use prefix_picker_core::table::ReplicaMatch;
use prefix_picker_core::usage::{Cached, Usage};

use crate::mode::Mode;
use crate::pools::View;
use crate::reason::Reason;
use crate::router::choose::held_by;
use crate::router::decide::Plan;
use crate::router::held::Holdings;

/// What is known once it is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    prompt_tokens: u32,
    chosen_tokens: u32,
    /// Prompt tokens that replicas hold by the table, by their endpoints' checksums: the view itself
    /// would be kept for as long as the request is on its way.
    held: Vec<(u64, u32)>,
    marks: Vec<Mark>,
    /// Hashes of the first block, and of the second one alone.
    start: [u64; 2],
    /// The response's figure will be of this prompt alone.
    comparable: bool,
}

impl Draft {
    /// Of a prompt that was looked up.
    #[must_use]
    pub fn of(
        (view, pool): (&View, usize),
        plan: &Plan,
        (blocks, found): (&Blocks, &[ReplicaMatch]),
        holdings: &Holdings,
        comparable: bool,
    ) -> Option<Self> {
        let block_size = view.pool(pool)?.block_size;
        let hit = |tokens| hit_tokens(tokens, plan.prompt_tokens, block_size);
        let held = view.replicas(pool).map(|replica| {
            let tokens = hit(held_by(replica, holdings).announced);
            (checksum(&[replica.endpoint.as_bytes()]), tokens)
        });
        Some(Self {
            prompt_tokens: plan.prompt_tokens,
            chosen_tokens: plan.predicted_tokens?,
            held: held.filter(|&(_, tokens)| tokens > 0).collect(),
            marks: marks(blocks.cacheable(block_size), |end| {
                hit(tokens_up_to(blocks, found, end))
            }),
            start: [
                blocks.hashes.first().map_or(0, |hash| hash.0),
                blocks.second,
            ],
            comparable,
        })
    }

    /// It goes on its way, with a replica of this place chosen.
    pub(super) fn sent(self, mode: Mode, chosen: u64, reason: Reason) -> Decided {
        let [first, second] = self.start;
        Decided {
            held: self.held,
            comparable: self.comparable,
            is_answered: false,
            record: Decision {
                enforced: mode == Mode::Enforce,
                chosen,
                prompt_tokens: self.prompt_tokens,
                chosen_tokens: self.chosen_tokens,
                marks: self.marks,
                reason: reason.code(),
                first,
                second,
                ..Decision::default()
            },
        }
    }
}

/// Tokens of the first `end` blocks, by what the replica that holds most counted: a prompt that is known
/// is not measured by a pool's average.
fn tokens_up_to(blocks: &Blocks, found: &[ReplicaMatch], end: u32) -> u32 {
    let Some(best) = found.iter().max_by_key(|m| m.any_tokens) else {
        return blocks.tokens_between(0, end);
    };
    if end >= best.any_blocks {
        let rest = blocks.tokens_between(best.any_blocks, end);
        return best.any_tokens.saturating_add(rest);
    }
    let share = |blocks_to| u64::from(blocks.tokens_between(0, blocks_to));
    let tokens = u64::from(best.any_tokens) * share(end) / share(best.any_blocks).max(1);
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// The same, on its way.
#[derive(Debug)]
pub(super) struct Decided {
    held: Vec<(u64, u32)>,
    comparable: bool,
    is_answered: bool,
    record: Decision,
}

impl Decided {
    /// An endpoint answers it, with status 200.
    pub(super) fn answered(&mut self, by: &str, as_chosen: bool) {
        let sum = checksum(&[by.as_bytes()]);
        let held = self.held.iter().filter(|(endpoint, _)| *endpoint == sum);
        self.record.served_tokens = if as_chosen && self.record.enforced {
            self.record.chosen_tokens
        } else {
            // Of several ranks behind it the one that holds most: which of them serves is not known.
            held.map(|&(_, tokens)| tokens).max().unwrap_or(0)
        };
        self.record.agreed = as_chosen;
        self.is_answered = true;
    }

    /// What its response said.
    pub(super) fn told(&mut self, usage: Option<Usage>) {
        let Some(usage) = usage.filter(|_| self.comparable) else {
            return;
        };
        if let Cached::Tokens(cached) = usage.cached {
            let tokens = |count| u32::try_from(count).unwrap_or(u32::MAX);
            let prompt = usage.prompt_tokens.map(tokens);
            self.record.told = Some(Told {
                prompt_tokens: prompt.unwrap_or(self.record.prompt_tokens),
                cached_tokens: tokens(cached),
            });
        }
    }

    /// It is over; `None`: it was not answered.
    pub(super) fn ended(self) -> Option<Decision> {
        self.is_answered.then_some(self.record)
    }
}

#[cfg(test)]
mod tests {
    use prefix_picker_core::ids::ReplicaIndex;

    use super::*;

    #[test]
    fn what_is_known_of_a_prompt_goes_before_the_average() {
        let blocks = Blocks {
            hashes: Vec::new(),
            second: 0,
            ends: vec![100, 200, 300, 400],
            len: 450,
            per_token_milli: 4_000,
            block_len: 100,
        };
        let of = |found: &[ReplicaMatch]| [1, 2, 4].map(|end| tokens_up_to(&blocks, found, end));
        assert_eq!(of(&[]), [25, 50, 100]);
        let holds = |blocks, tokens| ReplicaMatch {
            replica: ReplicaIndex(0),
            gpu_blocks: blocks,
            gpu_tokens: tokens,
            any_blocks: blocks,
            any_tokens: tokens,
        };
        assert_eq!(of(&[holds(1, 90), holds(2, 160)]), [80, 160, 210]);
    }
}
