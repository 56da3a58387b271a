//! What an operator should look at now.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Overview, PoolStatus, ReplicaStatus, is_pickable};
use crate::config::Config;
use crate::engine::Engine;
use crate::live::Now;
use crate::live::window::WINDOW_S;

mod outside;

/// Requests of the window from which on shares of them mean something.
const ENOUGH: u64 = 20;
/// Prompt tokens of the window, computed and not found cached, of which an engine must have stored some.
const COMPUTED: u64 = 8_192;
/// Polls with a wrong token within so many seconds are told of.
pub const REFUSED_S: u64 = 300;
/// Replicas that one alarm names.
const NAMES_MAX: usize = 8;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Requests are not routed as they should be.
    Critical,
    /// They are, but something is amiss.
    Warning,
}

/// One alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alarm {
    /// What it is, the same in all versions.
    pub id: &'static str,
    /// How bad.
    pub severity: Severity,
    /// The pool, if it is about one.
    pub pool: Option<String>,
    /// What is seen.
    pub text: String,
    /// For how many seconds it has been so, if that is known.
    pub since_s: Option<u64>,
    /// What to do, and in which document there is more.
    pub fix: &'static str,
}

impl Alarm {
    /// One that is about no pool of its own.
    fn of_all(id: &'static str, severity: Severity, text: String, fix: &'static str) -> Self {
        Self {
            id,
            severity,
            pool: None,
            text,
            since_s: None,
            fix,
        }
    }
}

/// Reasons that stand for something to be repaired, with what to do.
const FAULTS: [(&str, &str); 9] = [
    (
        "no_head",
        "the filter has not heard the control plane: see its sync metrics and Envoy's cluster for it",
    ),
    (
        "no_table",
        "the filter is still loading the table: see its sync metrics",
    ),
    (
        "stale_table",
        "the filter has not heard the control plane for a minute: see its sync metrics",
    ),
    (
        "profile_missing",
        "the filter has not got the pool's prompt profile: see its log",
    ),
    (
        "profile_broken",
        "the filter cannot use the pool's prompt profile: update it, see its log",
    ),
    (
        "unknown_model",
        "add the model's name to `models`, or the routed Envoy cluster to `clusters` of its pool",
    ),
    (
        "no_template",
        "add chat_template.jinja to the model's folder, or the engines' --chat-template to the pool's `engine`",
    ),
    (
        "predicted_only",
        "`prefix-picker check` says what of the model's folder cannot be reproduced",
    ),
    (
        "no_replica",
        "no replica may get requests: see their states",
    ),
];

/// All that there are, the worst first.
#[must_use]
pub(super) fn alarms(
    engine: &Engine,
    config: &Config,
    status: &Overview,
    now: &Now,
    refused: Option<(u64, u64)>,
) -> Vec<Alarm> {
    let mut all = Vec::new();
    gateways(&mut all, status, refused);
    for (pool, what, check) in engine.feedback().mismatches() {
        all.push(Alarm {
            id: "prediction_mismatch",
            severity: Severity::Critical,
            pool: Some(pool),
            text: format!("predictions and the engines' cached tokens disagree: {what}"),
            since_s: None,
            fix: check,
        });
    }
    for pool in &status.pools {
        replicas(&mut all, pool);
        index(&mut all, pool);
    }
    outside::add(&mut all, engine, config, status, now);
    requests(&mut all, now, status);
    all.sort_by_key(|alarm| alarm.severity);
    all
}

fn gateways(all: &mut Vec<Alarm>, status: &Overview, refused: Option<(u64, u64)>) {
    let mut add = |id, severity, text, fix| all.push(Alarm::of_all(id, severity, text, fix));
    if !status.ready {
        add(
            "starting",
            Severity::Warning,
            "gateways get no answers yet: the control plane waits for its replicas' events"
                .to_owned(),
            "wait for startup_grace_ms; /readyz says which replicas it waits for",
        );
    }
    // One that is there polls within seconds of a start.
    if status.ready && status.gateways.count == 0 && status.uptime_s >= 15 {
        let when = if status.uptime_s < 60 {
            "since the start"
        } else {
            "within the last minute"
        };
        add(
            "no_gateway",
            Severity::Critical,
            format!("no gateway has polled {when}: nobody routes by what is known here"),
            "check the filter's `control_plane.cluster` and `token`, and that Envoy reaches this address",
        );
    }
    if status.gateways.versions.len() > 1 {
        let versions = status
            .gateways
            .versions
            .keys()
            .map(|version| match version.as_str() {
                "" => "unknown",
                version => version,
            });
        let versions: Vec<&str> = versions.collect();
        add(
            "gateway_versions",
            Severity::Warning,
            format!(
                "gateways have filters of several versions: {}",
                versions.join(", ")
            ),
            "fine while an update is rolled out; else update the others",
        );
    }
    if let Some((polls, ago_s)) = refused.filter(|&(_, ago_s)| ago_s < REFUSED_S) {
        add(
            "refused_token",
            Severity::Warning,
            format!("{polls} poll(s) had a wrong token or none, the last {ago_s} s ago"),
            "the filter's `control_plane.token` must be one of `tokens` or `token_files`",
        );
    }
}

fn replicas(all: &mut Vec<Alarm>, pool: &PoolStatus) {
    let mut add = |id, severity, text, fix| {
        all.push(Alarm {
            id,
            severity,
            pool: Some(pool.pool.clone()),
            text,
            since_s: None,
            fix,
        });
    };
    let with = |state: &str| -> Vec<&ReplicaStatus> {
        let replicas = pool.replicas.iter();
        replicas.filter(|replica| replica.state == state).collect()
    };
    let down = with("down");
    if pool.replicas.is_empty() {
        add(
            "no_replicas",
            Severity::Critical,
            "the pool has no replicas".to_owned(),
            "see the pool's `replicas` or `discovery`",
        );
    } else if !pool.replicas.iter().any(is_pickable) {
        add(
            "none_pickable",
            Severity::Critical,
            "no replica of the pool may get requests: Envoy's own balancer decides".to_owned(),
            "see the replicas' states",
        );
    } else if !down.is_empty() {
        add(
            "replica_down",
            Severity::Warning,
            format!("down: {}", names(&down)),
            "see whether the engine runs and answers /health at its endpoint",
        );
    }
    let unheard = with("warming");
    if !unheard.is_empty() {
        add(
            "not_followed",
            Severity::Warning,
            format!(
                "KV events are not followed (yet), so nothing is claimed of: {}",
                names(&unheard)
            ),
            "if it lasts: check the engine's --kv-events-config, the replica's `topic`, and that its `events` and `replay` \
             ports are reached",
        );
    }
    let passed_by = pool.replicas.iter();
    let passed_by = passed_by.filter(|replica| replica.passed_by && replica.state != "down");
    let passed_by: Vec<&ReplicaStatus> = passed_by.collect();
    if !passed_by.is_empty() {
        add(
            "events_pass_by",
            Severity::Warning,
            format!(
                "live KV events do not come, what is known comes by replays now and then only: {}",
                names(&passed_by)
            ),
            "the replica's `topic` must be how the engine's topic begins, or left out, and `events` of the same engine as \
             `replay`: docs/doctor.md, \"engine.topic\"",
        );
    }
    let silent = pool.replicas.iter();
    let silent = silent.filter(|r| {
        let computed = r.engine.queries.saturating_sub(r.engine.hits);
        r.state == "ready" && is_silent(r.event_age_ms, r.recent.requests, computed)
    });
    let silent: Vec<&ReplicaStatus> = silent.collect();
    if !silent.is_empty() {
        add(
            "no_events",
            Severity::Critical,
            format!(
                "requests are served, but no KV event comes from: {}",
                names(&silent)
            ),
            "start the engine with enable_kv_cache_events and prefix caching; check the `topic`",
        );
    }
}

/// Nothing was ever heard, or (an engine can be followed through its replay for a while) nothing in the whole
/// window in which it served requests and computed prompts, in tokens.
fn is_silent(event_age_ms: Option<u64>, requests: u64, computed: u64) -> bool {
    requests >= ENOUGH
        && event_age_ms.is_none_or(|ms| ms >= WINDOW_S * 1_000 && computed >= COMPUTED)
}

fn names(replicas: &[&ReplicaStatus]) -> String {
    let few = replicas.iter().take(NAMES_MAX).map(|r| r.replica.as_str());
    let mut text = few.collect::<Vec<_>>().join(", ");
    if let Some(more) = replicas
        .len()
        .checked_sub(NAMES_MAX)
        .filter(|&more| more > 0)
    {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn index(all: &mut Vec<Alarm>, pool: &PoolStatus) {
    let index = &pool.index;
    if index.dropped_blocks > 0 {
        all.push(Alarm {
            id: "memory_budget",
            severity: Severity::Warning,
            pool: Some(pool.pool.clone()),
            text: format!(
                "{} engine blocks were forgotten since the start to stay within {} MiB",
                index.dropped_blocks,
                index.budget_bytes >> 20
            ),
            since_s: None,
            fix: "raise the pool's memory_budget_bytes",
        });
    }
}

fn requests(all: &mut Vec<Alarm>, now: &Now, status: &Overview) {
    let mut add = |id, severity, text, fix| all.push(Alarm::of_all(id, severity, text, fix));
    let recent = &now.recent;
    // Retries go elsewhere, too, but are few.
    if recent.enforced >= ENOUGH && recent.elsewhere * 10 > recent.enforced {
        add(
            "missed_override",
            Severity::Critical,
            format!(
                "{} of {} requests were served by another endpoint than the one named",
                recent.elsewhere, recent.enforced
            ),
            "the cluster needs the override_host policy, and must have all endpoints that replicas are configured with",
        );
    }
    let all_requests: u64 = status.reasons.iter().map(|reason| reason.recent).sum();
    for reason in &status.reasons {
        let fault = FAULTS.iter().find(|(name, _)| Some(*name) == reason.reason);
        if let Some((name, fix)) = fault
            && reason.recent >= ENOUGH / 4
            && reason.recent * 20 > all_requests
        {
            add(
                "reason",
                Severity::Warning,
                format!(
                    "{} of {all_requests} requests have the reason {name}",
                    reason.recent
                ),
                fix,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_none_at_all_or_none_while_much_was_computed() {
        let window = WINDOW_S * 1_000;
        assert!(is_silent(None, ENOUGH, 0));
        assert!(!is_silent(None, ENOUGH - 1, COMPUTED));
        assert!(is_silent(Some(window), ENOUGH, COMPUTED));
        assert!(!is_silent(Some(window - 1), ENOUGH, COMPUTED));
        // All was found cached: nothing to tell.
        assert!(!is_silent(Some(window), ENOUGH, COMPUTED - 1));
    }
}
