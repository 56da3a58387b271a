//! What a gateway would decide about a request now, and why: each replica's matches, load and cost.
//!
//! The same code as in the gateway (core's rendering, hashing, look-up and picker) over the table as
//! gateways get it. Nothing is recorded, and ties go by a fixed seed, so that asking twice gives the
//! same answer. Absent here, since only a gateway knows it: what it has sent a moment ago, its sessions,
//! and whose requests those are that an engine says it has.

use std::collections::HashMap;

use prefix_picker_core::blocks::prompt::{Blocks, bytes_per_token_milli, tokens};
use prefix_picker_core::blocks::{Family, Namespace};
use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::pick::cost::{self, hit_tokens};
use prefix_picker_core::pick::guard::{self, Fleet};
use prefix_picker_core::pick::{Candidate, Decision, PickInput, pace, pick};
use prefix_picker_core::prompt::{Api, ParsedRequest, Prompt, parse_request};
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::news::PlaceWork;
use prefix_picker_core::sync::{Head, LoraHead, Pace, PoolHead, ReplicaHead, ReplicaState};
use prefix_picker_core::table::ReplicaMatch;
use serde::Deserialize;
use serde_json::Value;

use crate::engine::Engine;

mod answer;

pub use answer::{Answer, SCHEMA};

/// The replicas' names by their numbers.
type Names = HashMap<ReplicaIndex, String>;

/// In place of a gateway's random draw.
const SEED: u64 = 0x5eed;

/// What is asked: a request, or a prompt in token ids.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ask {
    /// The request's path, like `/v1/chat/completions`.
    pub path: Option<String>,
    /// Its body.
    pub request: Option<Value>,
    /// In place of both: a prompt.
    pub token_ids: Option<Vec<u32>>,
    /// The model of `token_ids`; a request says its own.
    pub model: Option<String>,
    /// The `cache_salt` of `token_ids`; a request says its own.
    pub cache_salt: Option<String>,
    /// The Envoy cluster that the request is routed to, where several pools serve the model.
    pub cluster: Option<String>,
    /// The pool, where that is not told by model and cluster.
    pub pool: Option<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What is asked makes no sense.
    #[error("{0}")]
    Bad(String),
    /// There is no such pool or model.
    #[error("{0}")]
    Unknown(String),
}

/// What is known of the prompt.
pub(super) struct Asked<'a> {
    api: Option<Api>,
    adapter: Option<&'a LoraHead>,
    /// `Err`: why it is not looked up, as in metrics and in a sentence.
    blocks: Result<Blocks, (&'static str, String)>,
    prompt_tokens: u32,
    found: Vec<ReplicaMatch>,
}

/// Answers. `now_s` is the time, for templates
/// that print it, in seconds since 1970.
///
/// # Errors
/// Where what is asked cannot be answered.
pub fn explain(engine: &Engine, ask: &Ask, now_s: i64) -> Result<Answer, Refusal> {
    let head = engine.head();
    let members = engine.members().into_iter();
    let names: Names = members.map(|m| (m.head.index, m.name)).collect();
    let read = Read::of(ask)?;
    let (at, adapter) = pool_of(&head, ask, read.model.as_deref())?;
    let pool = head.pools.get(at);
    let pool = pool.ok_or_else(|| Refusal::Unknown("no such pool".into()))?;
    let asked = look_up(engine, (at, pool), adapter, &read, now_s)?;
    let replicas: Vec<&ReplicaHead> = of_pool(&head, at).collect();
    let able: Vec<&ReplicaHead> = replicas
        .iter()
        .copied()
        .filter(|r| can_serve(r, adapter))
        .collect();
    let work = engine.gateways().totals();
    let candidates = able.iter().map(|r| candidate(r, &asked.found, &work));
    let mut candidates: Vec<Candidate> = candidates.collect();
    let paces: Vec<Pace> = able.iter().map(|r| r.pace).collect();
    pace::set_rates(&mut candidates, &paces);
    let input = PickInput {
        prompt_tokens: asked.prompt_tokens,
        block_size: pool.block_size,
        candidates: &candidates,
        prefix_key: asked.blocks.as_ref().map_or(0, Blocks::prefix_key),
        session: None,
        looked_up: asked.blocks.is_ok(),
        random: SEED,
    };
    let decision = pick(&input);
    Ok(answer::of(
        &names, pool, &replicas, &asked, &input, &decision,
    ))
}

/// A question, read.
struct Read {
    model: Option<String>,
    salt: Option<String>,
    prompt: Wanted,
}

enum Wanted {
    Ids(Vec<u32>),
    Request(Api, Vec<u8>),
}

impl Read {
    fn of(ask: &Ask) -> Result<Self, Refusal> {
        let bad = |text: &str| Err(Refusal::Bad(text.to_owned()));
        match (&ask.path, &ask.request, &ask.token_ids) {
            (Some(path), Some(request), None) => {
                let Some(api) = Api::of_path(path) else {
                    return bad(&format!(
                        "{path}: gateways do not look into requests of this path"
                    ));
                };
                let body = serde_json::to_vec(request).unwrap_or_default();
                let parsed = parse_request(api, &body).ok();
                Ok(Self {
                    model: parsed.as_ref().and_then(|parsed| parsed.model.clone()),
                    salt: parsed.and_then(|parsed| parsed.cache_salt),
                    prompt: Wanted::Request(api, body),
                })
            }
            (None, None, Some(ids)) => Ok(Self {
                model: ask.model.clone(),
                salt: ask.cache_salt.clone(),
                prompt: Wanted::Ids(ids.clone()),
            }),
            _ => bad("expected either path and request, or token_ids"),
        }
    }
}

/// The pool by its name, or as a gateway finds it: by model among the cluster's, a base model's name
/// before an adapter's.
fn pool_of<'a>(
    head: &'a Head,
    ask: &Ask,
    model: Option<&str>,
) -> Result<(usize, Option<&'a LoraHead>), Refusal> {
    let pools = head.pools.iter().enumerate();
    let open: Vec<(usize, &PoolHead)> = pools
        .filter(|(_, pool)| ask.pool.as_ref().is_none_or(|name| pool.name == *name))
        .filter(|(_, pool)| {
            let on = |cluster| pool.clusters.is_empty() || pool.clusters.contains(cluster);
            ask.cluster.as_ref().is_none_or(on)
        })
        .collect();
    let Some(model) = model else {
        return one(&open, "a request without a model").map(|(at, _)| (at, None));
    };
    let base = |(_, pool): &&(usize, &PoolHead)| pool.models.iter().any(|name| name == model);
    let bases: Vec<_> = open.iter().filter(base).copied().collect();
    if !bases.is_empty() {
        return one(&bases, model).map(|(at, _)| (at, None));
    }
    let adapters = open.iter().filter(|(_, pool)| pool.lora(model).is_some());
    let adapters: Vec<_> = adapters.copied().collect();
    if !adapters.is_empty() {
        return one(&adapters, model).map(|(at, pool)| (at, pool.lora(model)));
    }
    let models = head.pools.iter().flat_map(|pool| &pool.models);
    let models: Vec<&str> = models.map(String::as_str).collect();
    Err(Refusal::Unknown(format!(
        "no pool {}serves {model:?}; models are {}",
        if ask.pool.is_some() || ask.cluster.is_some() {
            "of that name or cluster "
        } else {
            ""
        },
        models.join(", ")
    )))
}

fn one<'a>(pools: &[(usize, &'a PoolHead)], what: &str) -> Result<(usize, &'a PoolHead), Refusal> {
    match pools {
        [one] => Ok(*one),
        [] => Err(Refusal::Unknown("no such pool or cluster".into())),
        several => {
            let names: Vec<&str> = several.iter().map(|(_, pool)| pool.name.as_str()).collect();
            Err(Refusal::Bad(format!(
                "{what}: several pools serve it: {}; say pool or cluster",
                names.join(", ")
            )))
        }
    }
}

fn look_up<'a>(
    engine: &Engine,
    (at, pool): (usize, &PoolHead),
    adapter: Option<&'a LoraHead>,
    read: &Read,
    now_s: i64,
) -> Result<Asked<'a>, Refusal> {
    let known = engine.pools().get(at);
    let known = known.ok_or_else(|| Refusal::Unknown("no such pool".into()))?;
    let compiled = known
        .compiled()
        .map_err(|error| Refusal::Bad(format!("the pool's template: {error}")))?;
    let (api, bytes, kept, prompt) = match &read.prompt {
        Wanted::Ids(ids) => {
            let prompt = Ok(Prompt::TokenIds(ids.clone()));
            (None, ids.len() as u64 * 4, None, prompt)
        }
        Wanted::Request(api, body) => {
            let parsed = parse_request(*api, body);
            let kept = parsed.as_ref().ok().and_then(ParsedRequest::kept_tokens);
            let prompt = parsed.and_then(|request| compiled.render(&request, now_s));
            (Some(*api), body.len() as u64, kept, prompt)
        }
    };
    let unread = |reason, text: String| Asked {
        api,
        adapter,
        blocks: Err((reason, text)),
        prompt_tokens: tokens(bytes, bytes_per_token_milli(pool)),
        found: Vec::new(),
    };
    let prompt = match prompt {
        Ok(prompt) => prompt,
        Err(skip) => return Ok(unread(skip.as_str(), skip.explain().to_owned())),
    };
    let ids = matches!(prompt, Prompt::TokenIds(_));
    if ids && !known.has_token_ids() {
        let text = "prompts in token ids are not indexed in this pool (yet)";
        let mut asked = unread("token_ids_off", text.to_owned());
        if let Prompt::TokenIds(ids) = &prompt {
            asked.prompt_tokens = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        }
        return Ok(asked);
    }
    let namespace = |family: Family| Namespace {
        family,
        profile_hash: compiled.profile().seed_hash(),
        lora: adapter.map(|adapter| adapter.name.as_str()),
        salt: read.salt.as_deref(),
    };
    let blocks = Blocks::of(&prompt, pool, namespace);
    let found = engine.lookup(&blocks.hashes).replicas;
    Ok(Asked {
        api,
        adapter,
        prompt_tokens: blocks
            .prompt_tokens(&prompt, &found)
            .min(kept.unwrap_or(u32::MAX)),
        blocks: Ok(blocks),
        found,
    })
}

fn of_pool(head: &Head, at: usize) -> impl Iterator<Item = &ReplicaHead> {
    head.replicas
        .iter()
        .filter(move |r| usize::from(r.pool) == at)
}

/// May a gateway name it for this?
fn can_serve(replica: &ReplicaHead, adapter: Option<&LoraHead>) -> bool {
    replica.state.is_pickable() && adapter.is_none_or(|adapter| adapter.is_on(replica.index))
}

/// What of the prompt it holds, as far as that is to be believed.
fn held_by(replica: &ReplicaHead, found: &[ReplicaMatch]) -> Option<ReplicaMatch> {
    let found = found.iter().find(|m| m.replica == replica.index).copied();
    found.filter(|_| replica.state == ReplicaState::Ready)
}

/// `work`: what all gateways have in flight.
fn candidate(replica: &ReplicaHead, found: &[ReplicaMatch], work: &[PlaceWork]) -> Candidate {
    let held = held_by(replica, found);
    let place = place(&replica.name());
    let work = work.iter().find(|work| work.place == place);
    let work = work.copied().unwrap_or_default();
    let scraped = replica.running.saturating_add(replica.waiting);
    Candidate {
        matched_tokens: held.map_or(0, |m| m.gpu_tokens),
        any_tokens: held.map_or(0, |m| m.any_tokens),
        requests: scraped.max(work.requests),
        backlog_tokens: work.tokens,
        context_tokens: work.context,
        waiting: replica.waiting,
        kv_usage_permille: replica.kv_usage_permille,
        ramp_permille: replica.pace.ramp_permille,
        dp_rank: replica.dp_rank,
        ..Candidate::new(replica.index)
    }
}

#[cfg(test)]
mod tests;
