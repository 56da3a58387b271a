//! Which replica should get a request, and why.
//!
//! The cost of a replica is the work that stands between the request and its first token, counted
//! in prompt tokens to prefill: what the replica would have to compute of this prompt, what it has
//! still to compute of prompts sent before, and a share for every request it is decoding. The
//! cheapest wins; equal costs are drawn fairly, so that no replica is the default.

use crate::ids::ReplicaIndex;

/// What one request in flight costs a new one, in prompt tokens: decode steps it shares the engine
/// with. At 10 requests more than its peer a replica must hold 2,000 tokens more to be preferred.
pub const REQUEST_COST_TOKENS: u64 = 200;

/// Endpoints named in one decision: the choice and what to try if it cannot be reached.
pub const ENDPOINTS_MAX: usize = 3;

/// A replica that may get the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which replica.
    pub replica: ReplicaIndex,
    /// Tokens of this prompt's prefix that it holds.
    pub matched_tokens: u32,
    /// Prompt tokens sent to it whose prefill has not ended, as far as known.
    pub backlog_tokens: u64,
    /// Requests it is working on or has waiting, as far as known.
    pub requests: u32,
}

/// One request to place.
#[derive(Clone, Copy, Debug)]
pub struct PickInput<'a> {
    /// The prompt's length in tokens: exact or estimated.
    pub prompt_tokens: u32,
    /// The engines' block size in tokens; 0 where unknown. A hit is whole blocks only.
    pub block_size: u32,
    /// The live replicas. Order does not matter.
    pub candidates: &'a [Candidate],
    /// 64 random bits, for the draw among equals.
    pub random: u64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Replicas in the order to try, at most [`ENDPOINTS_MAX`]; empty: name none.
    pub endpoints: Vec<ReplicaIndex>,
    /// Why the first one.
    pub reason: Reason,
    /// Tokens of the prompt that the first one holds, by the table.
    pub matched_tokens: u32,
}

/// Why a replica was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It holds as much of the prefix as any other, and more than nothing.
    Prefix,
    /// Another holds more of the prefix, but is so busy that computing it here is sooner done.
    LoadOverPrefix,
    /// No replica holds any of the prefix: the least busy one.
    Load,
    /// There is no live replica to name.
    NoReplica,
}

impl Reason {
    /// All of them, for metrics.
    pub const ALL: [Self; 4] = [
        Self::Prefix,
        Self::LoadOverPrefix,
        Self::Load,
        Self::NoReplica,
    ];

    /// Its name in metrics, logs and docs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::LoadOverPrefix => "load_over_prefix",
            Self::Load => "load",
            Self::NoReplica => "no_replica",
        }
    }
}

/// Tokens of the prompt that a replica need not compute: whole engine blocks, and never the last
/// token, which the engine always computes to have something to sample from.
#[must_use]
pub fn hit_tokens(matched_tokens: u32, prompt_tokens: u32, block_size: u32) -> u32 {
    let hit = matched_tokens.min(prompt_tokens.saturating_sub(1));
    hit - hit % block_size.max(1)
}

/// Places one request.
#[must_use]
pub fn pick(input: &PickInput<'_>) -> Decision {
    let mut order: Vec<(u64, u64, &Candidate)> = input
        .candidates
        .iter()
        .map(|c| (cost(input, c), draw(input.random, c.replica), c))
        .collect();
    order.sort_unstable_by_key(|&(cost, draw, _)| (cost, draw));
    let Some(&(_, _, first)) = order.first() else {
        return Decision {
            endpoints: Vec::new(),
            reason: Reason::NoReplica,
            matched_tokens: 0,
        };
    };
    let most = input
        .candidates
        .iter()
        .map(|c| c.matched_tokens)
        .max()
        .unwrap_or(0);
    let reason = match first.matched_tokens {
        _ if most == 0 => Reason::Load,
        matched if matched == most => Reason::Prefix,
        _ => Reason::LoadOverPrefix,
    };
    Decision {
        endpoints: order
            .iter()
            .take(ENDPOINTS_MAX)
            .map(|&(_, _, c)| c.replica)
            .collect(),
        reason,
        matched_tokens: first.matched_tokens,
    }
}

fn cost(input: &PickInput<'_>, c: &Candidate) -> u64 {
    let hit = hit_tokens(c.matched_tokens, input.prompt_tokens, input.block_size);
    u64::from(input.prompt_tokens - hit)
        .saturating_add(c.backlog_tokens)
        .saturating_add(u64::from(c.requests) * REQUEST_COST_TOKENS)
}

/// A replica's lot in this request's draw: a hash of both, so that the order of the candidates
/// does not matter and every replica has the same chance.
fn draw(random: u64, replica: ReplicaIndex) -> u64 {
    let mut x = random ^ (u64::from(replica.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests;
