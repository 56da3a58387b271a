//! The answer's form, in JSON.

use prefix_picker_core::ids::ReplicaIndex;
use serde::Serialize;

use super::{
    Asked, Candidate, Decision, Fleet, Names, PickInput, PoolHead, ReplicaHead, ReplicaMatch,
    can_serve, cost, guard, held_by, hit_tokens,
};
use crate::engine::state_word;

/// The form's name. A field that is added keeps it; one that changes or goes does not.
pub const SCHEMA: &str = "prefix-picker.explain/1";

/// See [`super::explain`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    schema: &'static str,
    /// The pool that serves the request.
    pub pool: String,
    api: Option<&'static str>,
    /// The LoRA adapter that the request names.
    adapter: Option<String>,
    /// What the prompt's blocks say counts.
    pub looked_up: bool,
    /// Why not, if not: as in metrics, and a sentence.
    why: Option<Why>,
    /// The prompt's length in tokens: exact for token ids, else estimated beyond what is matched.
    pub prompt_tokens: u32,
    /// Its whole blocks.
    pub blocks: usize,
    /// The engines' block size in tokens, 0 while unknown.
    block_size: u32,
    /// All replicas of the pool.
    pub replicas: Vec<Replica>,
    /// What a gateway would do.
    pub decision: Choice,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Why {
    reason: &'static str,
    text: String,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replica {
    /// Its name in the configuration.
    pub replica: String,
    endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_parallel_rank: Option<u16>,
    /// Its state, as in metrics.
    pub state: &'static str,
    /// May it be named for this request? Not if it is drained or down, or lacks the adapter.
    pub candidate: bool,
    /// What of the prompt it holds.
    pub matched: Matched,
    load: Load,
    pace: Pace,
    /// What the request would cost there; null where it is no candidate.
    pub cost_us: Option<Cost>,
}

/// Tokens of the prompt's start, by tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Matched {
    /// In GPU memory.
    pub gpu_tokens: u32,
    /// In any tier.
    pub any_tokens: u32,
    gpu_blocks: u32,
    any_blocks: u32,
    /// Tokens that the engine need not compute: whole blocks of its own.
    pub hit_tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Load {
    running: u32,
    waiting: u32,
    kv_usage_permille: u16,
    /// What the cost was made with.
    requests: u32,
    backlog_tokens: u64,
    context_tokens: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Pace {
    prefill_tokens_per_s: u32,
    step_us: u32,
    /// 1,000: not new.
    ramp_permille: u16,
}

/// The terms of docs/picking.md, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    queue: u64,
    prefill: u64,
    burden: u64,
    decode: u64,
    tier: u64,
    /// What the guards add for load beyond the bound.
    guard: u64,
    /// The sum.
    pub total: u64,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Why the first one.
    pub reason: &'static str,
    /// Names in the order to try.
    pub replicas: Vec<String>,
    /// The same as endpoints.
    pub endpoints: Vec<String>,
    /// Prompt tokens that the first one will find cached.
    pub hit_tokens: u32,
}

pub(super) fn of(
    names: &Names,
    pool: &PoolHead,
    replicas: &[&ReplicaHead],
    asked: &Asked<'_>,
    input: &PickInput<'_>,
    decision: &Decision,
) -> Answer {
    let fleet = Fleet::of(input);
    let replica = |r: &&ReplicaHead| {
        let candidate = input.candidates.iter().find(|c| c.replica == r.index);
        let rates = candidate.map_or_else(|| r.pace.rates(), |c| c.rates);
        Replica {
            replica: name(names, r.index),
            endpoint: r.endpoint.clone(),
            data_parallel_rank: r.dp_rank,
            state: state_word(r.state),
            candidate: can_serve(r, asked.adapter),
            matched: matched(held_by(r, &asked.found), input),
            load: Load {
                running: r.running,
                waiting: r.waiting,
                kv_usage_permille: r.kv_usage_permille,
                requests: candidate.map_or(0, |c| c.requests),
                backlog_tokens: candidate.map_or(0, |c| c.backlog_tokens),
                context_tokens: candidate.map_or(0, |c| c.context_tokens),
            },
            pace: Pace {
                prefill_tokens_per_s: rates.prefill_tokens_per_s,
                step_us: rates.step_us,
                ramp_permille: r.pace.ramp_permille,
            },
            cost_us: candidate.map(|c| terms(input, c, &fleet)),
        }
    };
    let chosen = |r: &&ReplicaIndex| replicas.iter().find(|head| head.index == **r);
    let endpoint = |r: &ReplicaIndex| chosen(&r).map(|head| head.endpoint.clone());
    Answer {
        schema: SCHEMA,
        pool: pool.name.clone(),
        api: asked.api.map(|api| api.as_str()),
        adapter: asked.adapter.map(|adapter| adapter.name.clone()),
        looked_up: asked.blocks.is_ok(),
        why: asked.blocks.as_ref().err().map(|(reason, text)| Why {
            reason,
            text: text.clone(),
        }),
        prompt_tokens: input.prompt_tokens,
        blocks: asked
            .blocks
            .as_ref()
            .map_or(0, |blocks| blocks.hashes.len()),
        block_size: pool.block_size,
        replicas: replicas.iter().map(replica).collect(),
        decision: Choice {
            reason: decision.reason.as_str(),
            replicas: decision.endpoints.iter().map(|r| name(names, *r)).collect(),
            endpoints: decision.endpoints.iter().filter_map(endpoint).collect(),
            hit_tokens: hit_tokens(
                decision.matched_tokens,
                input.prompt_tokens,
                input.block_size,
            ),
        },
    }
}

fn name(names: &Names, replica: ReplicaIndex) -> String {
    names.get(&replica).cloned().unwrap_or_default()
}

fn matched(held: Option<ReplicaMatch>, input: &PickInput<'_>) -> Matched {
    held.map_or_else(Matched::default, |m| Matched {
        gpu_tokens: m.gpu_tokens,
        any_tokens: m.any_tokens,
        gpu_blocks: m.gpu_blocks,
        any_blocks: m.any_blocks,
        hit_tokens: hit_tokens(m.any_tokens, input.prompt_tokens, input.block_size),
    })
}

fn terms(input: &PickInput<'_>, c: &Candidate, fleet: &Fleet) -> Cost {
    let cost = cost::of(input, c, fleet);
    let guard = guard::penalty_us(c, fleet);
    Cost {
        queue: cost.queue_us,
        prefill: cost.prefill_us,
        burden: cost.burden_us,
        decode: cost.decode_us,
        tier: cost.tier_us,
        guard,
        total: cost.total_us().saturating_add(guard),
    }
}
