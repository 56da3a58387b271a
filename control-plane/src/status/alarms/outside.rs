//! What is amiss outside: with those who list replicas, with what engines serve, with what clients send.

use super::{Alarm, ENOUGH, Severity, names};
use crate::config::{Config, DiscoveryConfig, SourceConfig};
use crate::engine::Engine;
use crate::live::Now;
use crate::starts::Sums;
use crate::status::form::{Overview, PoolStatus, ReplicaStatus};

/// Shares of requests, or of prompt tokens, in percent, from which on volatile starts are worth a change.
const VOLATILE_PERCENT: u64 = 5;
/// How often a watch that is fine may be silent: always.
const WATCH_EVERY_MS: u64 = 10_000;

/// All of them.
pub(super) fn add(
    all: &mut Vec<Alarm>,
    engine: &Engine,
    config: &Config,
    status: &Overview,
    now: &Now,
) {
    for (at, pool) in status.pools.iter().enumerate() {
        let of = config.pools.get(at);
        if let Some(discovery) = of.and_then(|of| of.discovery.as_ref()) {
            all.extend(discovery_of(at, pool, discovery, now));
        }
        all.extend(wrong_model(pool));
    }
    let starts = engine.report().starts().into_iter();
    all.extend(starts.filter_map(|(pool, sums)| volatile_start(pool, &sums)));
}

fn discovery_of(
    at: usize,
    pool: &PoolStatus,
    discovery: &DiscoveryConfig,
    now: &Now,
) -> Option<Alarm> {
    let (every_ms, is_watch) = match &discovery.source {
        SourceConfig::Dns(dns) => (dns.interval_ms, false),
        SourceConfig::Kubernetes(_) => (WATCH_EVERY_MS, true),
    };
    let source = now.sources.get(&at).cloned().unwrap_or_default();
    let severity = if pool.replicas.is_empty() {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let kept = match pool.replicas.len() {
        0 => "no replica is known".to_owned(),
        count => format!("the {count} replica(s) that were listed last stay"),
    };
    let alarm = |id, text, ms: u64, fix| {
        Some(Alarm {
            id,
            severity,
            pool: Some(pool.pool.clone()),
            text,
            since_s: Some(ms / 1_000),
            fix,
        })
    };
    if let Some((why, ms)) = source.failing(now.now_ms) {
        return alarm(
            "discovery_failing",
            format!("replicas cannot be discovered, {kept}: {why}"),
            ms,
            "see the pool's `discovery` and who answers it: docs/operations.md, \"Discovery\"",
        );
    }
    // Who watches is told of changes only.
    let is_idle_watch = is_watch && source.listed_ms.is_some();
    let ms = source
        .silent(every_ms, now.now_ms)
        .filter(|_| !is_idle_watch)?;
    let what = match source.listed_ms {
        Some(_) => "discovery has said nothing more",
        None => "discovery has not told any list yet",
    };
    alarm(
        "discovery_stale",
        format!("{what}, {kept}"),
        ms,
        "see the control plane's log and the pool's `discovery`: docs/operations.md, \"Discovery\"",
    )
}

fn wrong_model(pool: &PoolStatus) -> Option<Alarm> {
    let lacks = |replica: &&ReplicaStatus| replica.lacks.is_some() && replica.state != "down";
    let wrong: Vec<&ReplicaStatus> = pool.replicas.iter().filter(lacks).collect();
    let told = || wrong.iter().filter_map(|replica| replica.lacks.as_ref());
    let (serves, _) = told().next()?;
    Some(Alarm {
        id: "wrong_model",
        severity: Severity::Critical,
        pool: Some(pool.pool.clone()),
        text: format!(
            "not all of the pool's models ({}) are served by: {} (the first serves {serves}): such requests get 404 there",
            pool.models.join(", "),
            names(&wrong)
        ),
        since_s: told().map(|(_, since_s)| *since_s).max(),
        fix: "let the pool's `models` and the engines' --served-model-name agree, or move the replica to its pool: \
              docs/doctor.md, \"engine.models\"",
    })
}

fn volatile_start(pool: String, sums: &Sums) -> Option<Alarm> {
    let percent = |part: u64, of: u64| part.saturating_mul(100).checked_div(of).unwrap_or(0);
    let requests = percent(sums.volatile_requests, sums.requests);
    let tokens = percent(sums.volatile_tokens, sums.tokens);
    (sums.requests >= ENOUGH && requests.max(tokens) >= VOLATILE_PERCENT).then(|| Alarm {
        id: "volatile_start",
        severity: Severity::Warning,
        pool: Some(pool),
        text: format!(
            "{requests} % of requests and {tokens} % of prompt tokens of the last hour begin with something new each time, in \
             front of what was seen before: nothing of them can be found cached"
        ),
        since_s: None,
        fix: "look for a timestamp, date or id at the beginning of the system prompt, and move it to its end: \
              docs/doctor.md, \"traffic.volatile_start\"",
    })
}
