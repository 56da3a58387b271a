//! Asks engines for their load and health.
//!
//! Each replica has a task that fetches metrics and health side by side. A replica is down after a
//! few failures in a row and back at the first success. A load that cannot be read, or does not move, is
//! believed for a while ([`learn`]), and how fast the engine is is learned from its totals.

use std::sync::Arc;
use std::time::Duration;

use prefix_picker_core::ids::ReplicaIndex;
use tokio::time::MissedTickBehavior;

use crate::clock::ms_since;
use crate::config::Config;
use crate::engine::{Engine, Scraped, Trouble};
use crate::metrics::{Metrics, ReplicaLabels};

pub mod learn;
pub mod parse;

use learn::{Belief, Learning};

/// Most bytes of metrics that are read. A busy vLLM sends about 100 KB.
const METRICS_BYTES_MAX: usize = 8 << 20;

/// What is scraped of one replica.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its number.
    pub replica: ReplicaIndex,
    /// Its data-parallel rank, if its metrics tell of several.
    pub rank: Option<u16>,
    /// Its names.
    pub labels: ReplicaLabels,
    /// Where its metrics are.
    pub metrics: String,
    /// Where its health is.
    pub health: String,
}

/// How often, and what counts as down.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From one scrape to the next.
    pub interval: Duration,
    /// How long one may take.
    pub timeout: Duration,
    /// Failures in a row after which a replica is down.
    pub down_after_misses: u32,
}

impl Pace {
    /// As configured.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self {
            interval: Duration::from_millis(config.scrape_interval_ms),
            timeout: Duration::from_millis(config.scrape_timeout_ms),
            down_after_misses: config.down_after_misses,
        }
    }
}

/// Turns outcomes of health checks into what is believed.
#[derive(Debug)]
pub struct Health {
    misses: u32,
    limit: u32,
}

impl Health {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { misses: 0, limit }
    }

    /// Takes one outcome. `None`: too early to say.
    pub fn observe(&mut self, ok: bool) -> Option<bool> {
        self.misses = if ok { 0 } else { self.misses.saturating_add(1) };
        if ok {
            Some(true)
        } else {
            (self.misses >= self.limit).then_some(false)
        }
    }
}

/// Scrapes one replica for ever.
pub async fn run(
    target: Target,
    pace: Pace,
    client: reqwest::Client,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
) {
    let mut health = Health::new(pace.down_after_misses);
    let (mut belief, mut learning) = (Belief::default(), Learning::default());
    let start = tokio::time::Instant::now();
    let mut ticks = tokio::time::interval(pace.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (text, trouble) = tokio::join!(
            fetch(&client, &target.metrics, pace.timeout),
            trouble(&client, &target.health, pace.timeout)
        );
        let healthy = trouble.is_none();
        engine.health_met(target.replica, trouble);
        let figures = text.as_deref();
        let figures = figures
            .map(|text| parse::figures(text, target.rank))
            .unwrap_or_default();
        if text.is_none() || !healthy {
            metrics.scrape_errors.get_or_create(&target.labels).inc();
        }
        if let Some((queries, hits)) = figures.cache()
            && let Some((queries, hits)) = engine.feedback().scraped(target.replica, queries, hits)
        {
            let labels = &target.labels;
            metrics.cache_queries.get_or_create(labels).inc_by(queries);
            metrics.cache_hits.get_or_create(labels).inc_by(hits);
            engine.cache_counted(target.replica, queries, hits);
        }
        if let Some(tokens) = figures.capacity_tokens {
            engine.report().set_capacity(target.replica, tokens);
        }
        let in_use = text.as_deref().map(parse::adapters_in_use);
        if let Some(in_use) = in_use.filter(|names| !names.is_empty()) {
            engine.adapters_in_use(target.replica, &in_use);
        }
        let now_ms = ms_since(start);
        let scraped = Scraped {
            healthy: health.observe(healthy),
            load: belief.take(text.as_deref(), figures.load(), now_ms),
            block_size: figures.block_size,
            hash_algorithm: figures.hash_algorithm,
            rates: learning.take(&figures, now_ms),
        };
        engine.scraped(target.replica, scraped);
    }
}

/// What a health check meets with; `None`: it is fine.
async fn trouble(client: &reqwest::Client, url: &str, timeout: Duration) -> Option<Trouble> {
    match client.get(url).timeout(timeout).send().await {
        Ok(response) if response.status().is_success() => None,
        Ok(response) => Some(Trouble::Status(response.status().as_u16())),
        Err(error) if error.is_timeout() => Some(Trouble::Late),
        Err(error) if is_refused(&error) => Some(Trouble::Refused),
        Err(error) if error.is_connect() => Some(Trouble::Unreachable),
        Err(_) => Some(Trouble::Broken),
    }
}

fn is_refused(error: &reqwest::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

async fn fetch(client: &reqwest::Client, url: &str, timeout: Duration) -> Option<String> {
    let mut response = client
        .get(url)
        .timeout(timeout)
        .send()
        .await
        .ok()?
        .error_for_status()
        .ok()?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if body.len() + chunk.len() > METRICS_BYTES_MAX {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    String::from_utf8(body).ok()
}

#[cfg(test)]
mod tests;
