//! The long poll: exactly one in flight, each answer applied before the next is asked for.

use prefix_picker_core::sync::{ANSWER_BYTES_MAX, Answer, Head, MAJOR, Poll, PoolFeedback};

use super::apply::{Apply, NEXT_HEAD_KEY, SLICE_US};
use super::choice::FAILURES_MAX;
use super::complaints::Complaints;
use super::state::{self, State};
use super::{BUSY_TICK_MS, HEARD_KEY, TICK_MS, TOKEN_ID_POOLS_KEY, post};
use crate::config::Config;
use crate::feedback::POOLS_MAX;
use crate::host::Host;
use crate::metrics::PollResult;
use crate::pools;
use crate::profiles;
use crate::vm::{Random, Vm};

/// How long the control plane may wait for news, in milliseconds.
pub const WAIT_MS: u32 = 2_000;
/// When Envoy gives up on a poll, in milliseconds.
const TIMEOUT_MS: u32 = WAIT_MS + 5_000;
/// A poll whose callback never came is given up after this long, in microseconds.
const LOST_US: u64 = (TIMEOUT_MS as u64 + 5_000) * 1_000;
/// First wait after a failure, in microseconds; doubles up to [`BACKOFF_MAX_US`].
const BACKOFF_US: u64 = 100_000;
/// Longest wait after a failure, in microseconds.
const BACKOFF_MAX_US: u64 = 2_000_000;
/// Wait after an answer without news, in microseconds: the control plane waits for news, and
/// should it not, it must not be asked in a tight loop.
const NO_NEWS_US: u64 = 20_000;
/// The name of this process.
const GATEWAY_KEY: &str = "pp/gateway";

#[derive(Debug)]
enum Step {
    /// Nothing in flight; poll from this time on.
    Idle { from_us: u64 },
    /// A poll is in flight, sent by a root context.
    Waiting {
        token: u32,
        root: u32,
        since_us: u64,
    },
    /// Its answer is being applied.
    Applying(Box<Apply>),
}

/// A VM's poller: works only while the VM holds the lease.
#[derive(Debug)]
pub struct Poller {
    step: Step,
    state: State,
    cas: u32,
    failures: u32,
    complaints: Complaints,
    tick_ms: u32,
}

impl Default for Poller {
    fn default() -> Self {
        Self {
            step: Step::Idle { from_us: 0 },
            state: State::default(),
            cas: 0,
            failures: 0,
            complaints: Complaints::default(),
            tick_ms: TICK_MS,
        }
    }
}

impl Poller {
    /// The lease was lost: what is in hand is dropped; a poll in flight is ignored when it ends.
    pub fn stand_down(&mut self) {
        if matches!(self.step, Step::Applying(_)) {
            self.step = Step::Idle { from_us: 0 };
        }
    }

    /// Takes the state as the last holder left it.
    pub fn take_over(&mut self, host: &impl Host) {
        (self.state, self.cas) = State::read(host);
    }

    /// A root context is gone, and with it the callback of a poll it sent.
    pub fn root_gone(&mut self, root: u32) {
        if matches!(self.step, Step::Waiting { root: sender, .. } if sender == root) {
            self.step = Step::Idle { from_us: 0 };
        }
    }

    /// Remembers the state, or finds that somebody else is at it.
    fn save(&mut self, host: &impl Host) {
        match self.state.write(host, self.cas) {
            Ok(cas) => self.cas = cas,
            Err(_) => (self.state, self.cas) = State::read(host),
        }
    }

    /// Is the state still what this VM knows, and the head in use its head? Not so if the lease moved
    /// while this VM was held up between a look at the lease and now.
    fn is_current(&self, host: &impl Host) -> bool {
        let head = host.shared(pools::KEY).bytes;
        let used = pools::decode(&head).ok().and_then(|(table, _)| table);
        host.shared(state::KEY).cas == self.cas && used == self.state.table.map(|t| t.table())
    }

    /// Overwrites pages that no table uses any more.
    fn clean(&mut self, host: &impl Host, start_us: u64) -> bool {
        let mut cleaned = false;
        while let Some((slot, index)) = self.state.left_over() {
            let _ = host.set_shared(&slot.page_key(index), &[], 0);
            if let Some(filled) = self.state.filled.get_mut(slot.index()) {
                *filled = index;
            }
            cleaned = true;
            if host.monotonic_us().saturating_sub(start_us) >= SLICE_US {
                break;
            }
        }
        if cleaned {
            self.save(host);
        }
        self.state.left_over().is_some()
    }

    fn set_tick(&mut self, host: &impl Host, busy: bool) {
        let ms = if busy { BUSY_TICK_MS } else { TICK_MS };
        if ms != self.tick_ms {
            self.tick_ms = ms;
            host.set_tick_period_ms(ms);
        }
    }
}

/// The holder's share of a tick.
pub fn step(vm: &mut Vm, host: &impl Host, config: &Config, root: u32) {
    let now_us = host.monotonic_us();
    let age_ms = vm.freshness.age_ms(host);
    host.record(vm.metrics.table_age, age_ms / 1_000);
    match &vm.poller.step {
        Step::Idle { from_us } if now_us >= *from_us => send(vm, host, config, root),
        Step::Waiting { since_us, .. } if now_us.saturating_sub(*since_us) >= LOST_US => {
            failed(vm, host, config, PollResult::Reset);
        }
        Step::Applying(_) => {
            go_on(vm, host, config, root, now_us);
        }
        _ => {}
    }
    let cleaning = vm.poller.clean(host, now_us);
    let busy = cleaning || matches!(vm.poller.step, Step::Applying(_));
    vm.poller.set_tick(host, busy);
}

/// The callback of a poll. `num_headers` and `body_bytes` are the host's.
pub fn answered(
    vm: &mut Vm,
    host: &impl Host,
    config: &Config,
    (root, token): (u32, u32),
    (num_headers, body_bytes): (usize, usize),
) {
    if !matches!(vm.poller.step, Step::Waiting { token: t, .. } if t == token) {
        return;
    }
    let start_us = host.monotonic_us();
    vm.poller.step = Step::Idle { from_us: 0 };
    let held_before = vm.lease.is_held();
    if !vm.lease.tick(host, start_us / 1_000) {
        vm.metrics.poll(host, PollResult::LeaseLost);
        return;
    }
    if !held_before {
        vm.poller.take_over(host);
        vm.choice.take_over(host, config);
    }
    let answer = host.call_answer(num_headers, body_bytes.min(ANSWER_BYTES_MAX * 2));
    let result = match answer.status {
        None => PollResult::Reset,
        Some(200) => match take(vm, host, &answer.body) {
            Ok(()) => PollResult::Ok,
            Err(error) => {
                let (at, result) = (vm.choice.current(), PollResult::BadAnswer);
                if vm.poller.complaints.due(at, result, start_us) {
                    log::warn!("an answer of {} cannot be used: {error}", config.plane(at));
                }
                PollResult::BadAnswer
            }
        },
        Some(401 | 403) => PollResult::Unauthorized,
        Some(_) => PollResult::Status,
    };
    if result != PollResult::Ok {
        failed(vm, host, config, result);
        return;
    }
    heard(vm, host);
    go_on(vm, host, config, root, start_us);
    let busy = matches!(vm.poller.step, Step::Applying(_));
    vm.poller.set_tick(host, busy);
}

fn take(vm: &mut Vm, host: &impl Host, body: &[u8]) -> Result<(), String> {
    host.add(vm.metrics.sync_bytes, body.len() as u64);
    let answer = Answer::decode(body).map_err(|e| e.to_string())?;
    let apply = Apply::new(answer, &mut vm.poller.state)?;
    vm.poller.step = Step::Applying(Box::new(apply));
    Ok(())
}

fn heard(vm: &mut Vm, host: &impl Host) {
    vm.metrics.poll(host, PollResult::Ok);
    let _ = host.set_shared(HEARD_KEY, &[1], 0);
    vm.freshness.observe(host);
    if vm.poller.failures > 0 && vm.poller.complaints.over() {
        log::info!("the control plane answers again");
    }
}

/// Applies a slice; once the answer is done with, asks for the next.
fn go_on(vm: &mut Vm, host: &impl Host, config: &Config, root: u32, start_us: u64) {
    let Step::Applying(apply) = &mut vm.poller.step else {
        return;
    };
    if !apply.slice(host, &vm.metrics, start_us) {
        return;
    }
    let step = std::mem::replace(&mut vm.poller.step, Step::Idle { from_us: 0 });
    let Step::Applying(apply) = step else { return };
    if !vm.poller.is_current(host) {
        log::warn!("another VM polls too; continuing where it is");
        vm.poller.take_over(host);
        return;
    }
    let news = apply.is_news();
    let whole = apply.finish(host, &vm.metrics, &mut vm.poller.state);
    vm.poller.save(host);
    if let Some(table) = vm.poller.state.table {
        host.record(vm.metrics.table_seq, table.seq);
        host.record(vm.metrics.table_pages, u64::from(table.page_count));
    }
    if !whole {
        failed(vm, host, config, PollResult::BadAnswer);
        return;
    }
    vm.poller.failures = 0;
    vm.choice.worked();
    if news {
        send(vm, host, config, root);
    } else {
        let from_us = host.monotonic_us().saturating_add(NO_NEWS_US);
        vm.poller.step = Step::Idle { from_us };
    }
}

fn send(vm: &mut Vm, host: &impl Host, config: &Config, root: u32) {
    let mut poll = poll(&vm.poller.state, host, &mut vm.random);
    poll.feedback = feedback(vm, host);
    let body = serde_json::to_vec(&poll).unwrap_or_default();
    let to = ("/v1/sync", "application/json");
    match post(vm, host, config, to, (&body, TIMEOUT_MS)) {
        Ok(token) => {
            let since_us = host.monotonic_us();
            vm.poller.step = Step::Waiting {
                token,
                root,
                since_us,
            };
        }
        Err(_) => failed(vm, host, config, PollResult::Refused),
    }
}

/// Keeps the table and tries again later.
fn failed(vm: &mut Vm, host: &impl Host, config: &Config, result: PollResult) {
    let now_us = host.monotonic_us();
    vm.metrics.poll(host, result);
    let longest = (BACKOFF_US << vm.poller.failures.min(10)).min(BACKOFF_MAX_US);
    vm.poller.failures = vm.poller.failures.saturating_add(1);
    let wait_us = longest / 2 + vm.random.draw() % (longest / 2);
    vm.poller.step = Step::Idle {
        from_us: now_us.saturating_add(wait_us),
    };
    let at = vm.choice.current();
    let moved = vm.choice.failed(host, config);
    if vm.poller.complaints.due(at, result, now_us) {
        let why = match result {
            PollResult::Refused => "Envoy would not send the poll (is the cluster there?)",
            PollResult::Unauthorized => "it refuses the token",
            PollResult::Status => {
                "it answers with another status than 200, or Envoy in its place since nobody does (503)"
            }
            PollResult::BadAnswer => "its answer cannot be used",
            _ => "it does not answer",
        };
        log::warn!("{}: {why}; the table is kept", config.plane(at));
    }
    if moved && vm.poller.failures == FAILURES_MAX {
        log::warn!("{} is asked from now on", config.plane(vm.choice.current()));
    }
}

fn poll(state: &State, host: &impl Host, random: &mut Random) -> Poll {
    let (have, loading) = (state.have(), state.loading());
    let epoch = loading.map(|l| l.epoch).or(have.map(|h| h.epoch));
    let head = host.shared(pools::KEY).bytes;
    let installed = pools::decode(&head)
        .map(|(_, head)| head)
        .unwrap_or_default();
    let waiting = host.shared(NEXT_HEAD_KEY).bytes;
    let version = |head: &[u8]| {
        let (of, version) = Head::version_of(head).ok()?;
        (Some(of.0) == epoch).then_some(version)
    };
    Poll {
        protocol: MAJOR,
        gateway: gateway(host, random),
        have,
        loading,
        head_version: version(&waiting)
            .or_else(|| version(installed))
            .unwrap_or(0),
        profiles: profiles_held(host, [installed, &waiting]),
        wait_ms: WAIT_MS,
        token_id_pools: token_id_pools(host),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        feedback: Vec::new(),
    }
}

/// What this process's responses said of the predictions, by pools of the head that requests use.
fn feedback(vm: &mut Vm, host: &impl Host) -> Vec<PoolFeedback> {
    let Some(view) = vm.heads.read(host) else {
        return Vec::new();
    };
    let pools = view.head.pools.iter().take(POOLS_MAX);
    vm.feedback
        .totals(host, pools.map(|pool| pool.name.as_str()))
}

fn profiles_held(host: &impl Host, heads: [&[u8]; 2]) -> Vec<u64> {
    let pools = heads
        .into_iter()
        .filter_map(|h| Head::decode(h).ok())
        .flat_map(|h| h.pools);
    let mut held: Vec<u64> = pools
        .filter_map(|p| profiles::hash_of(&host.shared(&profiles::key(&p.name)).bytes))
        .collect();
    held.sort_unstable();
    held.dedup();
    held
}

/// The name of this process.
pub fn gateway(host: &impl Host, random: &mut Random) -> String {
    let known = host.shared(GATEWAY_KEY).bytes;
    if let Ok(name) = String::from_utf8(known)
        && !name.is_empty()
    {
        return name;
    }
    let name = format!("envoy-{:016x}", random.draw());
    let _ = host.set_shared(GATEWAY_KEY, name.as_bytes(), 0);
    name
}

fn token_id_pools(host: &impl Host) -> Vec<String> {
    let lines = host.shared(TOKEN_ID_POOLS_KEY).bytes;
    String::from_utf8_lossy(&lines)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// A pool got a token-id prompt: the control plane may have to make such blocks from now on.
pub fn note_token_ids(vm: &mut Vm, host: &impl Host, pool: &str) {
    if vm.token_id_pools.iter().any(|known| known == pool) {
        return;
    }
    let mut lines = host.shared(TOKEN_ID_POOLS_KEY);
    if !String::from_utf8_lossy(&lines.bytes)
        .lines()
        .any(|known| known == pool)
    {
        lines.bytes.extend_from_slice(pool.as_bytes());
        lines.bytes.push(b'\n');
        if host
            .set_shared(TOKEN_ID_POOLS_KEY, &lines.bytes, lines.cas)
            .is_err()
        {
            return;
        }
    }
    vm.token_id_pools.push(pool.to_owned());
}
