//! The last decisions.

use std::collections::HashMap;

use prefix_picker_core::reasons;
use prefix_picker_core::recent::place;
use serde::Serialize;

use crate::engine::{Engine, Member};
use crate::live::Seen;

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionStatus {
    number: u64,
    /// Since it was told of, in milliseconds.
    age_ms: u64,
    reason: Option<&'static str>,
    enforced: bool,
    /// Served by the endpoint chosen; null: not known.
    agreed: Option<bool>,
    /// Null: none was chosen, or it is gone.
    pool: Option<String>,
    replica: Option<String>,
    prompt_tokens: u32,
    /// By the table; null: not looked up.
    predicted_tokens: Option<u32>,
    /// As the response told.
    cached_tokens: Option<u32>,
    /// The response's status; null: not known.
    status: Option<u16>,
}

/// The decisions after this number, the oldest first.
#[must_use]
pub fn decisions(engine: &Engine, after: u64) -> Vec<DecisionStatus> {
    let (seen, now_ms) = engine.live().after(after);
    if seen.is_empty() {
        return Vec::new();
    }
    let members = engine.members();
    let places = members.iter().map(|m| (place(&m.head.name()), m));
    let places: HashMap<u64, &Member> = places.collect();
    let pool = |member: &Member| {
        engine
            .pools()
            .get(member.pool)
            .map(|pool| pool.name.clone())
    };
    let show = |seen: &Seen| {
        let member = places.get(&seen.chosen);
        DecisionStatus {
            number: seen.number,
            age_ms: now_ms.saturating_sub(seen.at_ms),
            reason: reasons::name(seen.reason),
            enforced: seen.enforced,
            agreed: seen.agreed,
            pool: member.and_then(|member| pool(member)),
            replica: member.map(|member| member.name.clone()),
            prompt_tokens: seen.prompt_tokens,
            predicted_tokens: seen.predicted_tokens,
            cached_tokens: seen.cached_tokens,
            status: Some(seen.status).filter(|&status| status > 0),
        }
    };
    seen.iter().map(show).collect()
}
