//! From a body to endpoints. All the thinking is in core; here its parts are joined.

use std::ops::ControlFlow;
use std::rc::Rc;

use hashbrown::HashMap;
use prefix_picker_core::blocks::{
    BlockHash, Family, IDS_PER_BLOCK, MAX_BLOCK_BYTES, MediaKey, Namespace, Seed, TARGET_BYTES,
    TextBlock, TextChain, hash_ids, seed,
};
use prefix_picker_core::pick::{Candidate, PickInput, hit_tokens, pick};
use prefix_picker_core::prompt::{Api, ParsedRequest, Prompt, PromptText, parse_request};
use prefix_picker_core::sync::{PoolHead, ReplicaState};
use prefix_picker_core::table::{LookupLimits, ReplicaMatch, lookup};

use crate::config::Config;
use crate::feedback::{Expected, Sibling};
use crate::host::Host;
use crate::metrics::{Phase, Timer};
use crate::pools::{Table, View, Wanted};
use crate::reason::Reason;
use crate::router::complexity::is_too_complex;
use crate::sync::poller;
use crate::vm::Vm;

/// Blocks hashed at most: about 2 M tokens.
const BLOCKS_MAX: usize = 1 << 15;
/// What the control plane says of the engines' load is believed while it was heard within this time,
/// in milliseconds: it answers every poll within [`poller::WAIT_MS`]. Otherwise a replica that was
/// busy when the control plane went away would get nothing until it is back.
const LOADS_FRESH_MS: u64 = poller::WAIT_MS as u64 + 1_000;
/// Prompt bytes per token, in thousandths, until the pool has learned better.
const BYTES_PER_TOKEN_MILLI: u32 = 4_000;

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Why.
    pub reason: Reason,
    /// Endpoints to name, in the order to try; empty: none.
    pub endpoints: Vec<String>,
    /// What the first one has to compute, in [`prefill_work`](prefix_picker_core::pick::cost::prefill_work)
    /// tokens, as far as known.
    pub uncached_tokens: u64,
    /// Prompt tokens that it will find in its cache; `None`: not looked up.
    pub predicted_tokens: Option<u32>,
    /// The prompt's length in tokens, known or estimated.
    pub prompt_tokens: u32,
    /// What the response is to be compared with, if the prompt was looked up.
    pub expected: Option<Expected>,
    /// The pool takes full reports of what an engine has cached.
    pub full_reports: bool,
}

impl Plan {
    fn nothing(reason: Reason) -> Self {
        Self {
            reason,
            endpoints: Vec::new(),
            uncached_tokens: 0,
            predicted_tokens: None,
            prompt_tokens: 0,
            expected: None,
            full_reports: false,
        }
    }
}

/// A prompt in blocks.
struct Blocks {
    hashes: Vec<BlockHash>,
    /// Where each block ends: bytes of a text, ids of a token-id prompt.
    ends: Vec<usize>,
    len: usize,
    /// Thousandths of bytes (or ids) per token.
    per_token_milli: u32,
    /// Bytes (or ids) in the longest block.
    block_len: usize,
}

impl Blocks {
    /// The same for all prompts that begin alike; 0 where there is no whole block.
    fn prefix_key(&self) -> u64 {
        let at = self.hashes.len().min(PREFIX_KEY_BLOCKS);
        let last = at.checked_sub(1).and_then(|at| self.hashes.get(at));
        last.map_or(0, |hash| hash.0)
    }

    /// Tokens after the first `blocks` blocks, at least one: a block only ends where something
    /// follows, or the engine computes the last token anyway.
    fn tokens_after(&self, blocks: u32) -> u32 {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        let end = blocks
            .checked_sub(1)
            .and_then(|at| self.ends.get(at))
            .copied()
            .unwrap_or(0);
        tokens(self.len.saturating_sub(end) as u64, self.per_token_milli).max(1)
    }
}

/// Blocks by whose hash prompts are told to begin alike: about 500 tokens of text.
const PREFIX_KEY_BLOCKS: usize = 8;

fn tokens(bytes: u64, per_token_milli: u32) -> u32 {
    let tokens = bytes
        .saturating_mul(1_000)
        .div_ceil(u64::from(per_token_milli.max(1)));
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

fn bytes_per_token_milli(pool: &PoolHead) -> u32 {
    if pool.bytes_per_token_milli == 0 {
        BYTES_PER_TOKEN_MILLI
    } else {
        pool.bytes_per_token_milli
    }
}

fn routed_cluster(host: &impl Host) -> Option<String> {
    let name = host.property(&["xds", "cluster_name"])?;
    String::from_utf8(name).ok().filter(|n| !n.is_empty())
}

/// What the control plane last told, and a note of when that was.
fn current_view(vm: &mut Vm, host: &impl Host) -> Option<Rc<View>> {
    vm.freshness.observe(host);
    vm.heads.read(host)
}

/// Without a prompt: the least busy replica, if the cluster has one pool only.
pub fn by_load(vm: &mut Vm, host: &impl Host, reason: Reason, body_bytes: u64) -> Plan {
    let Some(view) = current_view(vm, host) else {
        return Plan::nothing(reason);
    };
    let cluster = routed_cluster(host);
    match view.only_pool(cluster.as_deref()) {
        Some(pool) => {
            let pool = (pool, Wanted::Unknown);
            in_pool_by_load(vm, host, &view, pool, reason, body_bytes)
        }
        None => Plan::nothing(reason),
    }
}

fn in_pool_by_load(
    vm: &mut Vm,
    host: &impl Host,
    view: &View,
    (pool, wanted): (usize, Wanted<'_>),
    reason: Reason,
    body_bytes: u64,
) -> Plan {
    let Some(head) = view.pool(pool) else {
        return Plan::nothing(reason);
    };
    let estimate = tokens(body_bytes, bytes_per_token_milli(head));
    let prompt = PromptLike {
        tokens: estimate,
        prefix_key: 0,
        looked_up: false,
    };
    let plan = choose(vm, host, view, (pool, wanted), prompt, &HashMap::new());
    Plan {
        reason,
        predicted_tokens: None,
        ..plan
    }
}

/// With the whole body at hand.
pub fn by_prompt(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    api: Api,
    body: &[u8],
    timer: &mut Timer,
) -> Plan {
    let Some(view) = current_view(vm, host) else {
        return Plan::nothing(Reason::NoHead);
    };
    let bytes = body.len() as u64;
    if is_too_complex(body) {
        return by_load(vm, host, Reason::TooComplex, bytes);
    }
    let parsed = parse_request(api, body);
    timer.lap(host, &vm.metrics, Phase::Parse);
    let request = match parsed {
        Ok(request) => request,
        Err(skip) => return by_load(vm, host, Reason::Skipped(skip), bytes),
    };
    let cluster = routed_cluster(host);
    let pool = match &request.model {
        Some(model) => view.pool_of(cluster.as_deref(), model),
        None => view
            .only_pool(cluster.as_deref())
            .map(|pool| (pool, Wanted::Base)),
    };
    let Some(pool) = pool else {
        // It may be an adapter that was loaded a moment ago, on who knows which replica.
        if view.has_adapters(cluster.as_deref()) {
            return Plan::nothing(Reason::UnknownModel);
        }
        return by_load(vm, host, Reason::UnknownModel, bytes);
    };
    match look_up(vm, host, config, (&view, pool), &request, timer) {
        Ok(plan) => plan,
        Err(reason) => in_pool_by_load(vm, host, &view, pool, reason, bytes),
    }
}

fn look_up(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    (view, (pool, wanted)): (&Rc<View>, (usize, Wanted<'_>)),
    request: &ParsedRequest,
    timer: &mut Timer,
) -> Result<Plan, Reason> {
    let head = view.pool(pool).ok_or(Reason::UnknownModel)?;
    let table = view.table.ok_or(Reason::NoTable)?;
    if vm.freshness.age_ms(host) >= config.stale_after_ms {
        return Err(Reason::StaleTable);
    }
    let profile = vm.profiles.get(host, head)?;
    let now_s = i64::try_from(host.unix_time_ns() / 1_000_000_000).unwrap_or(i64::MAX);
    let rendered = profile.compiled.render(request, now_s);
    let prompt = rendered.map_err(Reason::Skipped)?;
    timer.lap(host, &vm.metrics, Phase::Render);
    let lora = match wanted {
        Wanted::Adapter(lora) => Some(lora.name.as_str()),
        Wanted::Base | Wanted::Unknown => None,
    };
    let namespace = |family| Namespace {
        family,
        profile_hash: profile.seed_hash,
        lora,
        salt: request.cache_salt.as_deref(),
    };
    let blocks = hash(&prompt, head, namespace);
    if matches!(prompt, Prompt::TokenIds(_)) {
        poller::note_token_ids(vm, host, &head.name);
    }
    timer.lap(host, &vm.metrics, Phase::Hash);
    let found = matches(vm, host, &table, &blocks);
    timer.lap(host, &vm.metrics, Phase::Lookup);
    let matched: HashMap<u16, Held> = found.iter().map(|m| (m.replica.0, Held::of(m))).collect();
    let best = found.iter().max_by_key(|m| m.any_tokens);
    let prompt_tokens = match (&prompt, best) {
        (Prompt::TokenIds(ids), _) => u32::try_from(ids.len()).unwrap_or(u32::MAX),
        (Prompt::Text(_), None) => blocks.tokens_after(0),
        (Prompt::Text(_), Some(best)) => best
            .any_tokens
            .saturating_add(blocks.tokens_after(best.any_blocks)),
    };
    let kept = request.kept_tokens().unwrap_or(u32::MAX);
    let prompt_tokens = prompt_tokens.min(kept);
    let prompt_like = PromptLike {
        tokens: prompt_tokens,
        prefix_key: blocks.prefix_key(),
        looked_up: true,
    };
    let mut plan = choose(vm, host, view, (pool, wanted), prompt_like, &matched);
    let whole = !matches!(&prompt, Prompt::Text(text) if text.exact_bytes < text.text.len());
    let comparable = whole && request.has_one_figure();
    plan.full_reports = head.full_reports;
    plan.expected = expected(vm, host, (view, pool), &plan, (&blocks, &found), comparable);
    Ok(plan)
}

/// What the response is to be compared with. `None` where the replica's blocks are not known: then
/// nothing was predicted.
fn expected(
    vm: &mut Vm,
    host: &impl Host,
    (view, pool): (&View, usize),
    plan: &Plan,
    (blocks, found): (&Blocks, &[ReplicaMatch]),
    comparable: bool,
) -> Option<Expected> {
    let head = view.pool(pool)?;
    let replica = view.replica_at(plan.endpoints.first()?)?;
    let mut replicas = view.replicas(pool);
    replicas.find(|r| r.index == replica && r.state == ReplicaState::Ready)?;
    let known = found.iter().find(|m| m.replica == replica);
    let known = usize::try_from(known.map_or(0, |m| m.any_blocks)).unwrap_or(usize::MAX);
    let sibling = blocks.hashes.get(known).map(|&b| Sibling::of(b, replica));
    let now_us = host.monotonic_us();
    Some(Expected {
        pool: vm.feedback.name(host, &head.name)?,
        tokens: plan.predicted_tokens?,
        prompt_tokens: plan.prompt_tokens,
        prompt_len: blocks.len,
        block_len: blocks.block_len,
        engine_block: head.block_size,
        sibling,
        early: sibling.is_some_and(|sibling| vm.settling.starts(sibling, now_us)),
        comparable,
    })
}

fn hash<'n>(
    prompt: &Prompt,
    pool: &PoolHead,
    namespace: impl Fn(Family) -> Namespace<'n>,
) -> Blocks {
    let start = |family| seed(&pool.key, &namespace(family));
    match prompt {
        Prompt::Text(text) => {
            let (hashes, ends) = hash_text(start(Family::Text), text);
            Blocks {
                hashes,
                ends,
                len: text.text.len(),
                per_token_milli: bytes_per_token_milli(pool),
                block_len: MAX_BLOCK_BYTES,
            }
        }
        Prompt::TokenIds(ids) => {
            let hashes = hash_ids(start(Family::TokenIds), ids, BLOCKS_MAX);
            let ends = (1..=hashes.len()).map(|n| n * IDS_PER_BLOCK).collect();
            Blocks {
                hashes,
                ends,
                len: ids.len(),
                per_token_milli: 1_000,
                block_len: IDS_PER_BLOCK,
            }
        }
    }
}

/// Block hashes of a text and where each block ends.
fn hash_text(seed: Seed, text: &PromptText) -> (Vec<BlockHash>, Vec<usize>) {
    let bytes = text.text.as_bytes().get(..text.exact_bytes);
    let bytes = bytes.unwrap_or_default();
    let capacity = (bytes.len() / TARGET_BYTES + 1).min(BLOCKS_MAX);
    let mut hashing = Hashing {
        chain: TextChain::new(seed),
        hashes: Vec::with_capacity(capacity),
        ends: Vec::with_capacity(capacity),
    };
    let _ = hash_parts(&mut hashing, bytes, text);
    (hashing.hashes, hashing.ends)
}

struct Hashing {
    chain: TextChain,
    hashes: Vec<BlockHash>,
    ends: Vec<usize>,
}

/// Text and media items in turn. Ends where an item is not where it says, or has no usable
/// identifier: from there on nothing is known.
fn hash_parts(hashing: &mut Hashing, bytes: &[u8], text: &PromptText) -> ControlFlow<()> {
    let mut done = 0;
    for item in &text.media {
        let end = item.at.saturating_add(item.len);
        let parts = bytes.get(done..item.at).zip(bytes.get(item.at..end));
        let (Some((before, placeholder)), Some(key)) = (parts, MediaKey::of(&item.identifier))
        else {
            // What comes before the item is known all the same.
            let before = bytes.get(done..item.at.min(bytes.len()));
            return hash_bytes(hashing, done, before.unwrap_or_default());
        };
        hash_bytes(hashing, done, before)?;
        let Hashing {
            chain,
            hashes,
            ends,
        } = hashing;
        chain.feed_media_while(key, placeholder, |block| note(hashes, ends, item.at, block))?;
        done = end;
    }
    hash_bytes(hashing, done, bytes.get(done..).unwrap_or_default())
}

/// A function of its own on purpose: the engine that runs the filter optimises a function only when
/// it is entered again, and large ones late.
#[inline(never)]
fn hash_bytes(hashing: &mut Hashing, start: usize, bytes: &[u8]) -> ControlFlow<()> {
    let Hashing {
        chain,
        hashes,
        ends,
    } = hashing;
    chain.feed_while(bytes, |block| note(hashes, ends, start, block))
}

#[inline]
fn note(
    hashes: &mut Vec<BlockHash>,
    ends: &mut Vec<usize>,
    start: usize,
    block: TextBlock,
) -> ControlFlow<()> {
    hashes.push(block.hash);
    ends.push(start + block.end);
    if hashes.len() < BLOCKS_MAX {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

fn matches(vm: &Vm, host: &impl Host, table: &Table, blocks: &Blocks) -> Vec<ReplicaMatch> {
    let mut page = |index: u32| {
        let page = host.shared(&table.slot.page_key(index)).bytes;
        (!page.is_empty()).then_some(page)
    };
    let found = lookup(
        &table.shape,
        &blocks.hashes,
        &mut page,
        LookupLimits::default(),
    );
    host.add(vm.metrics.page_reads, u64::from(found.reads));
    found.replicas
}

/// What of the prompt a replica holds, in tokens.
#[derive(Clone, Copy, Default)]
struct Held {
    gpu: u32,
    any: u32,
}

impl Held {
    fn of(found: &ReplicaMatch) -> Self {
        Self {
            gpu: found.gpu_tokens,
            any: found.any_tokens,
        }
    }
}

/// What is to be known of a prompt to place it.
#[derive(Clone, Copy)]
struct PromptLike {
    tokens: u32,
    prefix_key: u64,
    looked_up: bool,
}

/// Load and matches -> endpoints.
fn choose(
    vm: &mut Vm,
    host: &impl Host,
    view: &View,
    (pool, wanted): (usize, Wanted<'_>),
    prompt: PromptLike,
    matched: &HashMap<u16, Held>,
) -> Plan {
    let prompt_tokens = prompt.tokens;
    vm.loads.refresh(host, view);
    let fresh = vm.freshness.age_ms(host) <= LOADS_FRESH_MS;
    let replicas = view
        .replicas(pool)
        .filter(|r| r.state.is_pickable() && view.can_serve(r, wanted));
    let candidates: Vec<Candidate> = replicas
        .map(|r| {
            let ours = vm.loads.on(r.index, &r.endpoint);
            // The blocks of a replica that is not ready are not to be believed.
            let known = r.state == ReplicaState::Ready;
            let matched = matched.get(&r.index.0).copied().filter(|_| known);
            let matched = matched.unwrap_or_default();
            let candidate = Candidate {
                matched_tokens: matched.gpu,
                any_tokens: matched.any,
                backlog_tokens: ours.tokens,
                requests: ours.requests,
                rates: r.pace.rates(),
                ..Candidate::new(r.index)
            };
            if !fresh {
                return candidate;
            }
            Candidate {
                requests: ours.requests.max(r.running.saturating_add(r.waiting)),
                waiting: r.waiting,
                kv_usage_permille: r.kv_usage_permille,
                ramp_permille: r.pace.ramp_permille,
                ..candidate
            }
        })
        .collect();
    let block_size = view.pool(pool).map_or(0, |p| p.block_size);
    let random = vm.random.draw();
    let decision = pick(&PickInput {
        prompt_tokens,
        block_size,
        candidates: &candidates,
        prefix_key: prompt.prefix_key,
        session: None,
        looked_up: prompt.looked_up,
        random,
    });
    let predicted = hit_tokens(decision.matched_tokens, prompt_tokens, block_size);
    let endpoints = decision.endpoints.iter();
    Plan {
        reason: Reason::Picked(decision.reason),
        endpoints: endpoints
            .filter_map(|&r| view.endpoint(r))
            .map(str::to_owned)
            .collect(),
        uncached_tokens: decision.work_tokens,
        predicted_tokens: Some(predicted),
        prompt_tokens,
        expected: None,
        full_reports: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_picker_core::prompt::MediaItem;

    const SEED: Seed = Seed(7);

    /// Prose with an image's placeholder in two places.
    fn prompt(first: &str, second: &str) -> PromptText {
        let (mut text, mut media) = (String::new(), Vec::new());
        for (words, identifier) in [(90, first), (70, second)] {
            text.push_str(&"some words of prose ".repeat(words));
            media.push(MediaItem {
                at: text.len(),
                len: "<|image_pad|>".len(),
                identifier: identifier.to_owned(),
            });
            text.push_str("<|image_pad|>");
        }
        text.push_str(&" and so on".repeat(100));
        PromptText {
            exact_bytes: text.len(),
            text,
            media,
        }
    }

    #[test]
    fn items_are_mixed_in_where_they_stand() {
        let (text, other) = (prompt("cat", "dog"), prompt("cat", "cow"));
        let (hashes, ends) = hash_text(SEED, &text);
        let plain = hash_text(SEED, &PromptText::from(text.text.clone()));
        // The same cuts, and the same hashes up to the first item.
        assert_eq!(ends, plain.1);
        let before = |at: usize| ends.iter().filter(|end| **end <= at).count();
        let first = before(text.media[0].at);
        assert!(first > 5);
        assert_eq!(hashes[..first], plain.0[..first]);
        assert!(hashes[first..].iter().all(|hash| !plain.0.contains(hash)));
        let second = before(text.media[1].at);
        let other = hash_text(SEED, &other).0;
        assert_eq!(hashes[..second], other[..second]);
        assert!(hashes[second..].iter().all(|hash| !other.contains(hash)));
    }

    #[test]
    fn nothing_is_hashed_from_an_item_on_that_is_not_where_it_says() {
        let text = prompt("cat", "dog");
        let (hashes, ends) = hash_text(SEED, &text);
        let at = text.media[1].at;
        let known = ends.iter().filter(|end| **end < at).count();
        for change in [
            |item: &mut MediaItem| item.len = usize::MAX,
            |item: &mut MediaItem| item.at += 10_000,
            |item: &mut MediaItem| item.identifier = "x".repeat(5_000),
        ] {
            let mut broken = text.clone();
            change(&mut broken.media[1]);
            let found = hash_text(SEED, &broken).0;
            assert!(found.len() >= known);
            assert_eq!(found[..known], hashes[..known]);
        }
        let mut unordered = text.clone();
        unordered.media.swap(0, 1);
        assert!(hash_text(SEED, &unordered).0.len() < hashes.len());
        let cut = PromptText {
            exact_bytes: at,
            media: text.media[..1].to_vec(),
            ..text
        };
        assert_eq!(hash_text(SEED, &cut).0, hashes[..known]);
    }
}
