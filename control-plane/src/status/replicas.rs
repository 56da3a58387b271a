//! Replicas, one by one.

use std::borrow::Cow;

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::ReplicaState;

use super::form::ReplicaStatus;
use crate::engine::{Details, Engine, Member, Standing, Trouble, state_word};
use crate::live::{Counted, Figures, Now};

/// Sums over replicas.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) figures: Figures,
    pub(super) counted: Counted,
}

impl Sums {
    pub(super) fn of(all: &[Self]) -> Self {
        use crate::live::window::Sum as _;
        let mut sum = Self::default();
        for part in all {
            sum.figures.add(&part.figures);
            sum.counted.add(&part.counted);
        }
        sum
    }
}

pub(super) fn replica(
    engine: &Engine,
    member: &Member,
    block: u32,
    now: &Now,
) -> (ReplicaStatus, Sums) {
    let details = engine.details(member.slot).unwrap_or_default();
    let head = &member.head;
    let figures = now.places.get(&place(&head.name())).copied();
    let figures = figures.unwrap_or_default();
    let blocks = engine.replica_blocks(member.slot);
    let status = ReplicaStatus {
        replica: member.name.clone(),
        endpoint: head.endpoint.clone(),
        data_parallel_rank: head.dp_rank,
        state: state_word(head.state),
        why: why(head.state, &details),
        synced: details.synced,
        running: head.running,
        waiting: head.waiting,
        kv_usage: f64::from(head.kv_usage_permille) / 1_000.0,
        cached_blocks: blocks,
        cached_tokens: as_u64(blocks) * u64::from(block),
        recent: (&figures).into(),
        engine: details.cache.into(),
        event_age_ms: details.event_age_ms,
        reset_age_ms: details.reset_age_ms,
        passed_by: details.passed_by,
        version: details.version,
        lacks: details.lacks,
    };
    let sums = Sums {
        figures,
        counted: details.cache,
    };
    (status, sums)
}

fn why(state: ReplicaState, details: &Details) -> Option<Cow<'static, str>> {
    let why = match state {
        ReplicaState::Ready => return None,
        ReplicaState::Warming => "its KV events are being caught up with, or do not come",
        ReplicaState::Draining if details.draining => "an operator took it out of service",
        ReplicaState::Draining => "it is on its way out",
        ReplicaState::Down if details.standing == Standing::NotReady => "it is not ready",
        ReplicaState::Down if details.healthy.is_none() => "its health is not known yet",
        ReplicaState::Down => match details.trouble {
            None => "its health check fails",
            Some(Trouble::Refused) => "it refuses connections: no engine listens there",
            Some(Trouble::Late) => "its health check is not answered in time",
            Some(Trouble::Unreachable) => "it cannot be reached",
            Some(Trouble::Broken) => "it breaks off connections",
            Some(Trouble::Status(code)) => {
                return Some(format!("its health check answers {code}").into());
            }
        },
    };
    Some(why.into())
}

pub(super) fn is_pickable(replica: &ReplicaStatus) -> bool {
    let is = |state| replica.state == state_word(state);
    is(ReplicaState::Ready) || is(ReplicaState::Warming)
}

/// How many other replicas of a replica's pool may get requests.
#[must_use]
pub fn others_pickable(engine: &Engine, slot: ReplicaIndex) -> usize {
    let members = engine.members();
    let pool = members.iter().find(|member| member.slot == slot);
    let pool = pool.map(|member| member.pool);
    let others = members
        .iter()
        .filter(|member| Some(member.pool) == pool && member.slot != slot);
    others
        .filter(|member| member.head.state.is_pickable())
        .count()
}

fn as_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
