//! Load and holdings -> endpoints: fills in what [`prefix_picker_core::pick`] wants to know.

use std::rc::Rc;

use prefix_picker_core::pick::cost::prefill_work;
use prefix_picker_core::pick::{self, Candidate, Decision, PickInput, hit_tokens, pace};
use prefix_picker_core::sync::{Pace, ReplicaHead, ReplicaState};

use crate::health::record::Access;
use crate::host::Host;
use crate::pools::{View, Wanted};
use crate::reason::Reason;
use crate::router::decide::Plan;
use crate::router::held::{Held, Holdings};
use crate::sync::poller;
use crate::vm::Vm;

/// What the control plane says of the engines' load is believed while it was heard within this time,
/// in milliseconds: it answers every poll within [`poller::WAIT_MS`]. Otherwise a replica that was
/// busy when the control plane went away would get nothing until it is back.
const LOADS_FRESH_MS: u64 = poller::WAIT_MS as u64 + 1_000;

/// What is to be known of a prompt to place it.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Its length in tokens, known or estimated.
    pub tokens: u32,
    /// Of its first blocks, or 0.
    pub prefix_key: u64,
    /// Whose it is, hashed.
    pub session: Option<u64>,
    /// `holdings` is what replicas hold, not only nothing known.
    pub looked_up: bool,
    /// What replicas hold of it.
    pub holdings: &'a Holdings,
}

/// Chooses among the replicas of a pool that can serve what is wanted.
pub fn choose(
    vm: &mut Vm,
    host: &impl Host,
    view: &Rc<View>,
    (pool, wanted): (usize, Wanted<'_>),
    prompt: &Placed<'_>,
) -> Plan {
    look_around(vm, host, view);
    let fresh = vm.freshness.age_ms(host) <= LOADS_FRESH_MS;
    let serves = |r: &&ReplicaHead| r.state.is_pickable() && view.can_serve(r, wanted);
    let replicas: Vec<&ReplicaHead> = view.replicas(pool).filter(serves).collect();
    let block_size = view.pool(pool).map_or(0, |p| p.block_size);
    let (candidates, decision) = pick_healthy(vm, host, replicas, |vm, replicas| {
        let candidate = |r: &&ReplicaHead| candidate(vm, host, r, prompt.holdings, fresh);
        let mut candidates: Vec<Candidate> = replicas.iter().map(candidate).collect();
        let paces: Vec<Pace> = replicas.iter().map(|r| r.pace).collect();
        pace::set_rates(&mut candidates, &paces);
        let decision = pick::pick(&PickInput {
            prompt_tokens: prompt.tokens,
            block_size,
            candidates: &candidates,
            prefix_key: prompt.prefix_key,
            session: prompt.session,
            looked_up: prompt.looked_up,
            random: vm.random.draw(),
        });
        (candidates, decision)
    });
    let named = decision.endpoints.iter().filter_map(|&r| view.replica(r));
    let named: Vec<&ReplicaHead> = named.collect();
    let plan = Plan {
        predicted_tokens: Some(0),
        prompt_tokens: prompt.tokens,
        ..Plan::nothing(Reason::Picked(decision.reason))
    };
    let Some(first) = named.first() else {
        return plan;
    };
    let held = held_by(first, prompt.holdings);
    let ours = vm.loads.on(first.index, &first.name());
    let rates = candidates.iter().find(|c| c.replica == first.index);
    let rates = rates.map(|c| c.rates).unwrap_or_default();
    Plan {
        reason: match decision.reason {
            pick::Reason::Prefix if held.any > held.announced => Reason::Recent,
            reason => Reason::Picked(reason),
        },
        endpoints: named.iter().map(|r| r.endpoint.clone()).collect(),
        dp_rank: first.dp_rank,
        matched_tokens: Some(hit_tokens(held.any, prompt.tokens, block_size)),
        cost_us: Some(decision.cost_us),
        uncached_tokens: decision.work_tokens,
        prefill_ms: rates.prefill_us(ours.tokens.saturating_add(decision.work_tokens)) / 1_000,
        predicted_tokens: Some(hit_tokens(held.announced, prompt.tokens, block_size)),
        ..plan
    }
}

/// Picks among the replicas that are not ejected, or among all if all are. One that was ejected gets
/// one request at a time, as a probe.
fn pick_healthy(
    vm: &mut Vm,
    host: &impl Host,
    replicas: Vec<&ReplicaHead>,
    mut pick: impl FnMut(&mut Vm, &[&ReplicaHead]) -> (Vec<Candidate>, Decision),
) -> (Vec<Candidate>, Decision) {
    vm.health.refresh(host);
    let open = |r: &&&ReplicaHead| vm.health.access(host, &r.endpoint) != Access::Closed;
    let mut healthy: Vec<&ReplicaHead> = replicas.iter().filter(open).copied().collect();
    while !healthy.is_empty() {
        let picked = pick(vm, &healthy);
        let first = picked.1.endpoints.first();
        let first = healthy.iter().find(|r| Some(&r.index) == first).copied();
        match first {
            // Another worker's probe came first.
            Some(first) if !vm.health.may_send(host, &first.endpoint) => {
                healthy.retain(|r| r.endpoint != first.endpoint);
            }
            _ => return picked,
        }
    }
    if !replicas.is_empty() {
        host.add(vm.metrics.all_ejected, 1);
    }
    pick(vm, &replicas)
}

fn candidate(
    vm: &Vm,
    host: &impl Host,
    replica: &ReplicaHead,
    holdings: &Holdings,
    fresh: bool,
) -> Candidate {
    let held = held_by(replica, holdings);
    let name = replica.name();
    let ours = vm.loads.on(replica.index, &name);
    // What it refused or failed lately counts as if it waited there.
    let strain = vm.health.strain(host, &replica.endpoint);
    let requests = ours.requests;
    // What it is computing of this very prompt need not be waited for more than anywhere else.
    let under_way = prefill_work(held.announced, held.any);
    let candidate = Candidate {
        matched_tokens: held.gpu,
        any_tokens: held.any,
        announced_tokens: held.announced,
        backlog_tokens: ours.tokens.saturating_sub(under_way),
        requests: requests.saturating_add(strain),
        waiting: strain,
        context_tokens: ours.context,
        dp_rank: replica.dp_rank,
        ..Candidate::new(replica.index)
    };
    if !fresh {
        return candidate;
    }
    let waiting = vm.replicas.waiting(&name);
    let requests = requests.saturating_add(vm.replicas.foreign(&name));
    Candidate {
        requests: requests.saturating_add(strain),
        // Nobody waits any more where there are not more than can run.
        waiting: waiting
            .min(requests.saturating_sub(replica.running))
            .saturating_add(strain),
        kv_usage_permille: replica.kv_usage_permille,
        ramp_permille: replica.pace.ramp_permille,
        ..candidate
    }
}

/// Takes notice of what replicas say, while it is news. On every tick too: by the time of the next
/// request it would not be known how many of their requests were ours.
pub fn look_around(vm: &mut Vm, host: &impl Host, view: &Rc<View>) {
    vm.loads.refresh(host, view);
    let loads = &vm.loads;
    let ours = |r: &ReplicaHead| loads.on(r.index, &r.name()).requests;
    vm.replicas.observe(view, host.monotonic_us(), ours);
}

/// What a replica holds, as far as that is to be believed: not while its events are caught up with.
#[must_use]
pub fn held_by(replica: &ReplicaHead, holdings: &Holdings) -> Held {
    let held = holdings.get(&replica.index.0).copied();
    let held = held.filter(|_| replica.state == ReplicaState::Ready);
    held.unwrap_or_default()
}
