//! From a body to endpoints. All the thinking is in core; here its parts are joined.

use std::borrow::Cow;
use std::rc::Rc;

use prefix_picker_core::blocks::Namespace;
use prefix_picker_core::blocks::prompt::{Blocks, bytes_per_token_milli, tokens};
use prefix_picker_core::pick::cost::prefill_work;
use prefix_picker_core::pick::{self, Rates};
use prefix_picker_core::prompt::{Api, ParsedRequest, Prompt, Skip, parse_request};
use prefix_picker_core::recent::{Anchor, anchors, place};
use prefix_picker_core::sync::{ReplicaHead, ReplicaState, replica_name};
use prefix_picker_core::table::{LookupLimits, ReplicaMatch, lookup};

use crate::config::Config;
use crate::feedback::{Expected, Sibling};
use crate::host::Host;
use crate::metrics::{Phase, Timer};
use crate::pools::{Table, View, Wanted};
use crate::reason::Reason;
use crate::recent::{Look, SENT};
use crate::router::choose::{Placed, choose};
use crate::router::decided::Draft;
use crate::router::held::{self, Holdings};
use crate::router::history::{self, History};
use crate::router::stored_answers;
use crate::session;
use crate::sync::poller;
use crate::vm::Vm;

/// Prompts of one request that count: the first decides, the others are noted as sent.
const PROMPTS_MAX: usize = 11;
/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Why.
    pub reason: Reason,
    /// Endpoints to name, in the order to try; empty: none.
    pub endpoints: Vec<String>,
    /// The data-parallel rank to ask them for.
    pub dp_rank: Option<u16>,
    /// What the first one has to compute, in [`prefill_work`](prefix_picker_core::pick::cost::prefill_work)
    /// tokens, as far as known.
    pub uncached_tokens: u64,
    /// When it will have computed them, behind what it has to compute already, in milliseconds.
    pub prefill_ms: u64,
    /// Prompt tokens that it will find in its cache by the table; `None`: not looked up.
    pub predicted_tokens: Option<u32>,
    /// The prompt's length in tokens, known or estimated.
    pub prompt_tokens: u32,
    /// Prompt tokens that it holds as far as known, by the table or by what was sent there; `None`: not
    /// looked up.
    pub matched_tokens: Option<u32>,
    /// The cost of the first one, in microseconds; `None`: none was picked by cost.
    pub cost_us: Option<u64>,
    /// What the response is to be compared with, if the prompt was looked up.
    pub expected: Option<Expected>,
    /// What is to be told of it, if the prompt was looked up.
    pub decided: Option<Draft>,
    /// The response is asked for as a stream.
    pub streamed: bool,
    /// The pool takes full reports of what an engine has cached.
    pub full_reports: bool,
    /// What is to be noted for requests to come, where there is no table for them.
    pub history: Option<History>,
    /// What there was to see of the prompts' having been sent before: to be noted that they are now.
    pub sent: Vec<Look>,
}

impl Plan {
    pub(super) fn nothing(reason: Reason) -> Self {
        Self {
            reason,
            endpoints: Vec::new(),
            dp_rank: None,
            uncached_tokens: 0,
            prefill_ms: 0,
            predicted_tokens: None,
            prompt_tokens: 0,
            matched_tokens: None,
            cost_us: None,
            expected: None,
            decided: None,
            streamed: false,
            full_reports: false,
            history: None,
            sent: Vec::new(),
        }
    }

    /// The name of the replica to try first.
    pub(super) fn replica(&self) -> Option<Cow<'_, str>> {
        let first = self.endpoints.first()?;
        Some(replica_name(first, self.dp_rank))
    }

    /// The same of a request that the engine computes nothing for: it brings no work, leaves nothing to
    /// be found there, and its response says nothing of the cache.
    fn computing_nothing(self) -> Self {
        Self {
            uncached_tokens: 0,
            prefill_ms: 0,
            predicted_tokens: None,
            expected: None,
            decided: None,
            full_reports: false,
            history: None,
            sent: Vec::new(),
            ..self
        }
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

/// Without a prompt: where the session goes, or the least busy replica, if the cluster has one pool
/// only.
pub fn by_load(
    vm: &mut Vm,
    host: &impl Host,
    reason: Reason,
    body_bytes: u64,
    session: Option<u64>,
) -> Plan {
    let unread = Unread {
        reason,
        body_bytes,
        session,
    };
    without_prompt(vm, host, unread)
}

/// A request whose prompt cannot be told.
#[derive(Clone, Copy)]
struct Unread {
    reason: Reason,
    body_bytes: u64,
    session: Option<u64>,
}

fn without_prompt(vm: &mut Vm, host: &impl Host, unread: Unread) -> Plan {
    let reason = unread.reason;
    let Some(view) = current_view(vm, host) else {
        return Plan::nothing(reason);
    };
    let cluster = routed_cluster(host);
    match view.only_pool(cluster.as_deref()) {
        Some(pool) => {
            let pool = (pool, Wanted::Unknown);
            in_pool_by_load(vm, host, &view, pool, unread)
        }
        None => Plan::nothing(reason),
    }
}

fn in_pool_by_load(
    vm: &mut Vm,
    host: &impl Host,
    view: &Rc<View>,
    (pool, wanted): (usize, Wanted<'_>),
    unread: Unread,
) -> Plan {
    let reason = unread.reason;
    let Some(head) = view.pool(pool) else {
        return Plan::nothing(reason);
    };
    let estimate = tokens(unread.body_bytes, bytes_per_token_milli(head));
    let prompt = Placed {
        tokens: estimate,
        prefix_key: 0,
        session: unread.session,
        looked_up: false,
        holdings: &Holdings::new(),
    };
    let plan = choose(vm, host, view, (pool, wanted), &prompt);
    Plan {
        reason,
        predicted_tokens: None,
        matched_tokens: None,
        ..plan
    }
}

/// With the whole body at hand. `session`: by the headers.
pub fn by_prompt(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    (api, body, session): (Api, &[u8], Option<u64>),
    timer: &mut Timer,
) -> Plan {
    let Some(view) = current_view(vm, host) else {
        return Plan::nothing(Reason::NoHead);
    };
    let body_bytes = body.len() as u64;
    let parsed = parse_request(api, body);
    timer.lap(host, &vm.metrics, Phase::Parse);
    let request = match parsed {
        Ok(request) => request,
        Err(skip) => return by_load(vm, host, Reason::Skipped(skip), body_bytes, session),
    };
    let session = session.or_else(|| session::of_body(config, &request));
    let read = (&request, session, body_bytes);
    let plan = by_request(vm, host, config, &view, read, timer);
    let plan = plan.unwrap_or_else(|(pool, reason)| {
        let unread = Unread {
            reason,
            body_bytes,
            session,
        };
        match pool {
            Some(pool) => in_pool_by_load(vm, host, &view, pool, unread),
            None => without_prompt(vm, host, unread),
        }
    });
    let plan = Plan {
        streamed: request.stream,
        ..plan
    };
    if api == Api::Tokenize {
        return plan.computing_nothing();
    }
    plan
}

/// With what was read of the body. Fails with the pool, if it is known, and why the prompt is not.
fn by_request<'a>(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    view: &'a Rc<View>,
    (request, session, body_bytes): (&ParsedRequest, Option<u64>, u64),
    timer: &mut Timer,
) -> Result<Plan, (Option<(usize, Wanted<'a>)>, Reason)> {
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
            return Ok(Plan::nothing(Reason::UnknownModel));
        }
        return Err((None, Reason::UnknownModel));
    };
    if let Some(plan) = pinned(host, view, pool, (request, body_bytes)) {
        return Ok(plan);
    }
    let plan = look_up(vm, host, config, (view, pool), (request, session), timer);
    plan.map_err(|reason| (Some(pool), reason))
}

/// Where the answer is kept that the request builds on: nobody else could serve it.
fn pinned(
    host: &impl Host,
    view: &View,
    (pool, wanted): (usize, Wanted<'_>),
    (request, body_bytes): (&ParsedRequest, u64),
) -> Option<Plan> {
    let id = request.previous_response_id.as_deref()?;
    let kept = stored_answers::place_of(host, id.as_bytes())?;
    let holder = match view.replica_of_place(kept) {
        Some(index) => view.replicas(pool).find(|r| r.index == index)?,
        // No rank was asked for then. They have one API server, which keeps the answers.
        None => {
            let is_there = |r: &&ReplicaHead| r.dp_rank.is_some() && place(&r.endpoint) == kept;
            view.replicas(pool).find(is_there)?
        }
    };
    // One that is to get nothing new still has what it has.
    let serves = holder.state != ReplicaState::Down && view.can_serve(holder, wanted);
    let bytes_per_token = bytes_per_token_milli(view.pool(pool)?);
    let prompt_tokens = tokens(body_bytes, bytes_per_token);
    let uncached_tokens = prefill_work(0, prompt_tokens);
    serves.then(|| Plan {
        endpoints: vec![holder.endpoint.clone()],
        dp_rank: holder.dp_rank,
        uncached_tokens,
        prefill_ms: Rates::START.prefill_us(uncached_tokens) / 1_000,
        prompt_tokens,
        ..Plan::nothing(Reason::Pinned)
    })
}

fn look_up(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    (view, (pool, wanted)): (&Rc<View>, (usize, Wanted<'_>)),
    (request, session): (&ParsedRequest, Option<u64>),
    timer: &mut Timer,
) -> Result<Plan, Reason> {
    let head = view.pool(pool).ok_or(Reason::UnknownModel)?;
    if let Some(standalone) = &config.standalone {
        let known = history::look_up(host, view, (head, wanted), request, standalone.expire_ms);
        let known = known.ok_or(Reason::Skipped(Skip::InvalidRequest))?;
        timer.lap(host, &vm.metrics, Phase::Lookup);
        return Ok(by_history(vm, host, (view, (pool, wanted)), known, session));
    }
    let table = view.table.ok_or(Reason::NoTable)?;
    if vm.freshness.age_ms(host) >= config.stale_after_ms {
        return Err(Reason::StaleTable);
    }
    let profile = vm.profiles.get(host, head)?;
    let now_s = i64::try_from(host.unix_time_ms() / 1_000).unwrap_or(i64::MAX);
    let prompts = profile.compiled.render_all(request, now_s, PROMPTS_MAX);
    let mut prompts = prompts.into_iter();
    let prompt = prompts.next().unwrap_or(Err(Skip::InvalidRequest));
    let prompt = match prompt {
        Ok(prompt) => prompt,
        Err(skip) => {
            let known = Some(head).filter(|_| has_history(skip)).and_then(|head| {
                history::look_up(host, view, (head, wanted), request, history::TTL_MS)
            });
            let known = known.ok_or(Reason::Skipped(skip))?;
            let plan = by_history(vm, host, (view, (pool, wanted)), known, session);
            if plan.reason == Reason::Predicted {
                return Ok(plan);
            }
            return Ok(Plan {
                reason: Reason::Skipped(skip),
                predicted_tokens: None,
                matched_tokens: None,
                ..plan
            });
        }
    };
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
    let blocks = Blocks::of(&prompt, head, namespace);
    if matches!(prompt, Prompt::TokenIds(_)) {
        poller::note_token_ids(vm, host, &head.name);
    }
    timer.lap(host, &vm.metrics, Phase::Hash);
    let found = matches(vm, host, &table, &blocks);
    let sent = held::look(host, &blocks, head.block_size);
    let holdings = held::holdings(view, &blocks, &found, &sent);
    timer.lap(host, &vm.metrics, Phase::Lookup);
    let kept = request.kept_tokens().unwrap_or(u32::MAX);
    let prompt_tokens = blocks.prompt_tokens(&prompt, &found).min(kept);
    let placed = Placed {
        tokens: prompt_tokens,
        prefix_key: blocks.prefix_key(),
        session,
        looked_up: true,
        holdings: &holdings,
    };
    let mut plan = choose(vm, host, view, (pool, wanted), &placed);
    if request.api == Api::Tokenize {
        // What is expected of a response is noted for siblings.
        return Ok(plan);
    }
    let whole = !matches!(&prompt, Prompt::Text(text) if text.exact_bytes < text.text.len());
    let comparable = whole && request.has_one_figure();
    plan.full_reports = head.full_reports;
    let looked_up = (&blocks, &found[..]);
    plan.decided = Draft::of((view, pool), &plan, looked_up, &holdings, comparable);
    plan.expected = expected(vm, host, (view, pool), &plan, looked_up, comparable);
    let others = prompts.flatten();
    let others =
        others.map(|other| anchors(Blocks::of(&other, head, namespace).cacheable(head.block_size)));
    let others: Vec<Anchor> = others.filter_map(|a| a.into_iter().next()).collect();
    plan.sent.push(sent);
    if !others.is_empty() {
        plan.sent.push(SENT.look(host, others));
    }
    Ok(plan)
}

/// Is there a prompt to be compared with earlier ones, if not exactly the engine's?
fn has_history(skip: Skip) -> bool {
    match skip {
        Skip::Multimodal
        | Skip::RequestTemplate
        | Skip::NoTemplate
        | Skip::PredictedOnly
        | Skip::TemplateError
        | Skip::TemplateLimit
        | Skip::Unsupported => true,
        // The engine refuses it, or has what comes before, or keeps only the end.
        Skip::InvalidJson
        | Skip::InvalidRequest
        | Skip::PromptEmbeds
        | Skip::TooComplex
        | Skip::StoredHistory
        | Skip::Truncated => false,
    }
}

/// Where requests went that began alike.
fn by_history(
    vm: &mut Vm,
    host: &impl Host,
    (view, pool): (&Rc<View>, (usize, Wanted<'_>)),
    known: history::Known,
    session: Option<u64>,
) -> Plan {
    let placed = Placed {
        tokens: known.tokens,
        prefix_key: known.prefix_key,
        session,
        looked_up: !known.holdings.is_empty(),
        holdings: &known.holdings,
    };
    let plan = choose(vm, host, view, pool, &placed);
    let reason = match plan.reason {
        Reason::Picked(pick::Reason::Prefix) => Reason::Predicted,
        reason => reason,
    };
    Plan {
        reason,
        history: Some(known.history),
        ..plan
    }
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
    let named = view.replica_called(&plan.replica()?)?;
    let replica = view.replicas(pool).find(|r| r.index == named);
    let replica = replica.filter(|r| r.state == ReplicaState::Ready)?.index;
    let known = found.iter().find(|m| m.replica == replica);
    let known = usize::try_from(known.map_or(0, |m| m.any_blocks)).unwrap_or(usize::MAX);
    let sibling = blocks.hashes.get(known).map(|&b| Sibling::of(b, replica));
    Some(Expected {
        pool: vm.feedback.name(host, &head.name)?,
        tokens: plan.predicted_tokens?,
        prompt_tokens: plan.prompt_tokens,
        prompt_len: blocks.len,
        block_len: blocks.block_len,
        engine_block: head.block_size,
        sibling,
        early: sibling.is_some_and(|sibling| sibling.starts(host)),
        comparable,
    })
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
