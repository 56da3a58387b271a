//! Which replica should get a request, and why.
//!
//! The cost of a replica is an estimate, in microseconds, of what it takes to serve the request
//! there: the prefill of what it does not hold, behind what it has still to compute; the decode
//! steps that it shares; waiting for memory; loading from a lower tier. The cheapest wins; costs
//! that are as good as equal are drawn fairly, so that no replica is the default. Guards keep a hot
//! prefix from flooding its holder and a new replica from being flooded or starved.
//!
//! `docs/picking.md` has the formula with the reasons; [`cost`] has the terms, [`guard`] the guards
//! and [`learn`] the rates.

pub mod cost;
pub mod guard;
pub mod learn;
pub mod pace;

use crate::ids::ReplicaIndex;
use guard::Fleet;

pub use cost::{Rates, hit_tokens};
pub use guard::rendezvous;

/// Endpoints named in one decision: the choice and what to try if it cannot be reached.
pub const ENDPOINTS_MAX: usize = 3;

/// [`Candidate::ramp_permille`] of a replica that is not new.
pub const RAMPED: u16 = 1_000;

/// A replica that may get the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which replica.
    pub replica: ReplicaIndex,
    /// Its data-parallel rank, if it is one of several behind its endpoint.
    pub dp_rank: Option<u16>,
    /// How far it has come since it was added: 0 new, [`RAMPED`] not new (any more).
    pub ramp_permille: u16,
    /// Share of its KV memory that running requests use, by the last scrape; 0 where unknown.
    pub kv_usage_permille: u16,
    /// Tokens of this prompt's prefix that it holds in GPU memory.
    pub matched_tokens: u32,
    /// The same in any tier; never taken for less than `matched_tokens`.
    pub any_tokens: u32,
    /// The part of those that it has announced; the rest was sent to it a moment ago.
    pub announced_tokens: u32,
    /// Requests that it is working on or has waiting, as far as known.
    pub requests: u32,
    /// Requests in the engine's own queue, by the last scrape; 0 where unknown.
    pub waiting: u32,
    /// What it has still to prefill of prompts sent before, in [`cost::prefill_work`] tokens.
    pub backlog_tokens: u64,
    /// Tokens, prompt and answer, of the requests that it is working on; 0 where unknown.
    pub context_tokens: u64,
    /// How fast it is.
    pub rates: Rates,
}

impl Candidate {
    /// An idle, ramped replica that holds nothing, of unknown speed.
    #[must_use]
    pub fn new(replica: ReplicaIndex) -> Self {
        Self {
            replica,
            dp_rank: None,
            ramp_permille: RAMPED,
            kv_usage_permille: 0,
            matched_tokens: 0,
            any_tokens: 0,
            announced_tokens: 0,
            requests: 0,
            waiting: 0,
            backlog_tokens: 0,
            context_tokens: 0,
            rates: Rates::default(),
        }
    }

    /// Tokens of the prompt that it holds in any tier.
    #[must_use]
    pub fn held_tokens(&self) -> u32 {
        self.any_tokens.max(self.matched_tokens)
    }
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
    /// Hash of the prompt's first blocks, the same for all prompts that begin alike: the order in
    /// which replicas become its second and third home. 0: unknown.
    pub prefix_key: u64,
    /// Hash of the session: decides among equals, and where holdings are not known.
    pub session: Option<u64>,
    /// Whether the candidates' holdings are known. If not, a session goes where it went before.
    pub looked_up: bool,
    /// 64 random bits, for the draw among equals.
    pub random: u64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Replicas in the order to try, at most [`ENDPOINTS_MAX`]; empty: name none. All of the first
    /// one's rank: a request asks for one, wherever it is tried.
    pub endpoints: Vec<ReplicaIndex>,
    /// Why the first one.
    pub reason: Reason,
    /// Tokens of the prompt that the first one holds in any tier, by the table.
    pub matched_tokens: u32,
    /// What the first one has to compute, in [`cost::prefill_work`] tokens: what to add to its
    /// backlog until its prefill ends.
    pub work_tokens: u64,
    /// The first one's cost, in microseconds.
    pub cost_us: u64,
}

/// Why a replica was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It holds as much of the prefix as any other, and more than nothing.
    Prefix,
    /// Another holds more of the prefix, but is so busy that computing it here is sooner done.
    LoadOverPrefix,
    /// Another holds more, but has had more than its share of the load.
    HotSpot,
    /// Holdings are not known, or decide nothing: where this session goes.
    Session,
    /// Another holds more, but this one is new and is given its share.
    Ramp,
    /// No replica holds any of the prefix: the least busy one.
    Load,
    /// There is no live replica to name.
    NoReplica,
}

impl Reason {
    /// All of them, for metrics.
    pub const ALL: [Self; 7] = [
        Self::Prefix,
        Self::LoadOverPrefix,
        Self::HotSpot,
        Self::Session,
        Self::Ramp,
        Self::Load,
        Self::NoReplica,
    ];

    /// Its name in metrics, logs and docs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::LoadOverPrefix => "load_over_prefix",
            Self::HotSpot => "hot_spot",
            Self::Session => "session",
            Self::Ramp => "ramp",
            Self::Load => "load",
            Self::NoReplica => "no_replica",
        }
    }
}

/// Places one request.
#[must_use]
pub fn pick(input: &PickInput<'_>) -> Decision {
    let fleet = Fleet::of(input);
    let scored: Vec<Scored<'_>> = input
        .candidates
        .iter()
        .map(|c| {
            let cost = cost::of(input, c, &fleet).total_us();
            Scored {
                candidate: c,
                cost,
                guarded: cost.saturating_add(guard::penalty_us(c, &fleet)),
            }
        })
        .collect();
    let order = first_few(input, &fleet, &scored);
    let Some(first) = order.first() else {
        return Decision {
            endpoints: Vec::new(),
            reason: Reason::NoReplica,
            matched_tokens: 0,
            work_tokens: 0,
            cost_us: 0,
        };
    };
    let matched = first.scored.candidate.held_tokens();
    let hit = hit_tokens(matched, input.prompt_tokens, input.block_size);
    Decision {
        endpoints: order
            .iter()
            .map(|ranked| ranked.scored.candidate.replica)
            .collect(),
        reason: reason(first, &fleet, &scored),
        matched_tokens: matched,
        work_tokens: cost::prefill_work(hit, input.prompt_tokens),
        cost_us: first.scored.cost,
    }
}

/// A candidate with its cost.
#[derive(Clone, Copy)]
struct Scored<'a> {
    candidate: &'a Candidate,
    /// Microseconds.
    cost: u64,
    /// Cost and the guards' penalty: what the order goes by.
    guarded: u64,
}

/// A candidate with its place in the order: lowest first.
#[derive(Clone, Copy)]
struct Ranked<'a> {
    scored: Scored<'a>,
    rank: (u8, u64, u64, u64),
    /// What set it apart, if not its cost.
    by: Option<Reason>,
}

/// The best, and behind it the next best of its rank: [`ENDPOINTS_MAX`] in all, in order.
fn first_few<'a>(input: &PickInput<'_>, fleet: &Fleet, scored: &[Scored<'a>]) -> Vec<Ranked<'a>> {
    let Some(cheapest) = scored.iter().min_by_key(|s| s.guarded) else {
        return Vec::new();
    };
    let equal = cost::as_good_as(cheapest.guarded, fleet.whole_us);
    let is_equal = |s: &Scored<'_>| s.guarded <= equal;
    let holds_most = |s: &Scored<'_>| is_equal(s) && s.candidate.held_tokens() == fleet.most_held;
    let overflows = fleet.most_held > 0 && !scored.iter().any(holds_most);
    let newcomer = guard::newcomer(input, fleet, cheapest.guarded);
    let second_home = guard::second_home(input, fleet, cheapest.candidate);
    let session = input.session.filter(|_| !input.looked_up);
    let ranked = scored.iter().map(|s| {
        let replica = s.candidate.replica;
        let (rank, by) = if newcomer == Some(replica) {
            ((0, 0, 0, 0), Some(Reason::Ramp))
        } else if second_home == Some(replica) {
            ((0, 1, 0, 0), Some(Reason::HotSpot))
        } else if let Some(key) = session.filter(|_| guard::has_room(s.candidate, fleet)) {
            ((1, !rendezvous(key, replica), 0, 0), Some(Reason::Session))
        } else if is_equal(s) {
            let (lot, by) = lot(input, overflows, replica);
            let few = if overflows {
                0
            } else {
                u64::from(s.candidate.requests)
            };
            ((2, few, lot, 0), by)
        } else {
            ((3, s.guarded, draw(input.random, replica), 0), None)
        };
        Ranked {
            scored: *s,
            rank,
            by,
        }
    });
    let ranked: Vec<Ranked<'a>> = ranked.collect();
    let first = ranked.iter().min_by_key(|ranked| ranked.rank);
    let dp_rank = first.and_then(|first| first.scored.candidate.dp_rank);
    let mut few: Vec<Ranked<'a>> = Vec::with_capacity(ENDPOINTS_MAX + 1);
    for ranked in ranked {
        if ranked.scored.candidate.dp_rank != dp_rank {
            continue;
        }
        let at = few.partition_point(|other| other.rank <= ranked.rank);
        if at < ENDPOINTS_MAX {
            few.insert(at, ranked);
            few.truncate(ENDPOINTS_MAX);
        }
    }
    few
}

/// A replica's place among those of as good as equal cost: the next home of a prefix whose holders
/// are too busy, else where the session goes, else drawn.
fn lot(input: &PickInput<'_>, overflows: bool, replica: ReplicaIndex) -> (u64, Option<Reason>) {
    if overflows && input.prefix_key != 0 {
        return (!rendezvous(input.prefix_key, replica), None);
    }
    match input.session {
        Some(key) => (!rendezvous(key, replica), Some(Reason::Session)),
        None => (draw(input.random, replica), None),
    }
}

/// Why the first one is first.
fn reason(first: &Ranked<'_>, fleet: &Fleet, scored: &[Scored<'_>]) -> Reason {
    let held = first.scored.candidate.held_tokens();
    match first.by {
        _ if fleet.most_held > 0 && held == fleet.most_held => Reason::Prefix,
        Some(by) => by,
        None if fleet.most_held == 0 => Reason::Load,
        None => {
            let dearer = |s: &&Scored<'_>| s.candidate.held_tokens() == fleet.most_held;
            let holder = scored.iter().filter(dearer).map(|s| s.cost).min();
            if holder.is_some_and(|cost| cost < first.scored.cost) {
                Reason::HotSpot
            } else {
                Reason::LoadOverPrefix
            }
        }
    }
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
