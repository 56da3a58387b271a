//! What engines say about themselves: the models and LoRA adapters they serve, their version, and
//! where they publish KV events.
//!
//! Each replica has a task that asks every few seconds. What is asked is cheap, and an engine that
//! does not answer stays what it was known to be: whether it lives is the scraper's question.
//!
//! | endpoint | what for |
//! |---|---|
//! | `/v1/models` | adapters; names that requests may use; the longest prompt |
//! | `/version` | [`prefix_picker_core::prompt::Rules`] |
//! | `/kv_event_sources` (vLLM ≥ 0.31) | a warning where the configuration and the engine disagree |

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prefix_picker_core::ids::ReplicaIndex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::config::{Config, PoolConfig, ReplicaConfig};
use crate::engine::Engine;
use crate::metrics::{Metrics, ReplicaLabels};

mod get;
pub mod models;
pub mod sources;

use get::{GetError, get};
use models::Models;
use sources::Told;

/// Most bytes of an answer. Each adapter takes about 500.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Most characters of a version.
const VERSION_CHARS_MAX: usize = 100;

/// Whom to ask, and what the configuration says of it.
#[derive(Debug)]
pub struct Target {
    /// Its number.
    pub replica: ReplicaIndex,
    /// Its names.
    pub labels: ReplicaLabels,
    /// Its API without a path.
    pub api: String,
    /// A file with its API key.
    pub api_key_file: Option<PathBuf>,
    /// Names that requests use for its pool.
    pub models: Vec<String>,
    /// Where its events are expected.
    pub events: sources::Expected,
    /// Whom to tell where they are, as the engine says, where that is only guessed.
    pub tell: Option<watch::Sender<Option<Told>>>,
    /// Its address, which an engine that publishes at all addresses means.
    pub ip: IpAddr,
}

impl Target {
    /// As configured.
    #[must_use]
    pub fn new(number: ReplicaIndex, pool: &PoolConfig, replica: &ReplicaConfig) -> Self {
        Self {
            replica: number,
            labels: ReplicaLabels {
                pool: pool.name.clone(),
                replica: replica.name.clone(),
            },
            api: replica.api.clone(),
            api_key_file: pool.api_key_file.clone(),
            models: pool.models.clone(),
            events: sources::Expected {
                rank: replica.data_parallel_rank,
                events: replica.events.clone(),
                replay: replica.replay.clone(),
                topic: replica.topic.clone(),
            },
            tell: None,
            ip: replica.endpoint.ip(),
        }
    }
}

/// Asks one replica for ever.
pub async fn run(
    target: Target,
    interval: Duration,
    timeout: Duration,
    client: reqwest::Client,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
) {
    let mut asker = Asker {
        target,
        timeout,
        client,
        engine,
        metrics,
        said: Vec::new(),
        version: None,
    };
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        asker.ask().await;
    }
}

struct Asker {
    target: Target,
    timeout: Duration,
    client: reqwest::Client,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    /// Complaints already made, until the engine changes its version.
    said: Vec<String>,
    /// The version of which the event sources have been looked at.
    version: Option<String>,
}

impl Asker {
    async fn ask(&mut self) {
        let (models, version) = tokio::join!(
            self.get("/v1/models"),
            version(&self.client, &self.target.api, self.timeout)
        );
        // First, so that a new version's profile is in place before its adapters are.
        if let Some(version) = version {
            self.engine.set_version(self.target.replica, &version);
            let is_new = self.version.as_ref() != Some(&version);
            if is_new {
                self.version = Some(version);
                self.said.clear();
            }
            // Ports that the system chose are others after a restart.
            if is_new || self.target.tell.is_some() {
                self.check_sources().await;
            }
        }
        let models = models.and_then(|bytes| Models::parse(&bytes).ok_or(GetError::NotReadable));
        match models {
            Ok(models) => self.take_models(models),
            Err(error) => {
                self.metrics
                    .models_errors
                    .get_or_create(&self.target.labels)
                    .inc();
                if let GetError::Status(401 | 403) = error {
                    self.say("the engine wants an API key for /v1/models: set api_key_file".into());
                }
                self.engine.set_adapters(self.target.replica, None);
            }
        }
    }

    fn take_models(&mut self, models: Models) {
        for line in models.complaints(&self.target.models) {
            self.say(line);
        }
        let lacks = models.lacks_any_of(&self.target.models);
        let serves = lacks.then(|| models.served());
        self.engine.lacks_models(self.target.replica, serves);
        let labels = &self.target.labels;
        if let Some(longest) = models.max_model_len() {
            self.metrics
                .max_model_len
                .get_or_create(labels)
                .set(i64::try_from(longest).unwrap_or(i64::MAX));
            let longest = u32::try_from(longest).unwrap_or(u32::MAX);
            self.engine.set_max_model_len(self.target.replica, longest);
        }
        self.metrics
            .adapters
            .get_or_create(labels)
            .set(i64::try_from(models.adapters.len()).unwrap_or(i64::MAX));
        let gone = self
            .engine
            .set_adapters(self.target.replica, Some(models.adapters));
        self.metrics
            .adapter_drops
            .get_or_create(labels)
            .inc_by(gone as u64);
    }

    async fn check_sources(&mut self) {
        // Engines before 0.31 do not know the path.
        if let Ok(bytes) = self.get("/kv_event_sources").await {
            self.tell_sources(&bytes);
            for line in sources::complaints(&bytes, &self.target.events) {
                self.say(line);
            }
        }
    }

    /// Where it is only guessed where the events are, the engine's word goes first.
    fn tell_sources(&mut self, answer: &[u8]) {
        let Target {
            tell: Some(tell),
            ip,
            events,
            ..
        } = &mut self.target
        else {
            return;
        };
        if let Some(told) = sources::told(answer, events.rank, *ip) {
            events.events.clone_from(&told.events);
            events.replay.clone_from(&told.replay);
            tell.send_if_modified(|said| {
                let is_new = said.as_ref() != Some(&told);
                *said = Some(told);
                is_new
            });
        }
    }

    /// Says what an operator should know, once.
    fn say(&mut self, line: String) {
        if !self.said.contains(&line) {
            let labels = &self.target.labels;
            tracing::warn!(pool = %labels.pool, replica = %labels.replica, "{line}");
            self.said.push(line);
        }
    }

    async fn get(&self, path: &str) -> Result<Vec<u8>, GetError> {
        let key = match &self.target.api_key_file {
            Some(file) => tokio::fs::read_to_string(file).await.ok(),
            None => None,
        };
        let url = format!("{}{path}", self.target.api);
        let key = key.as_deref().map(str::trim);
        get(&self.client, &url, key, self.timeout, ANSWER_BYTES_MAX).await
    }
}

/// What an engine answers to `/version`.
async fn version(client: &reqwest::Client, api: &str, timeout: Duration) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Version {
        version: String,
    }
    let url = format!("{api}/version");
    let bytes = get(client, &url, None, timeout, 64 << 10).await.ok()?;
    let version: Version = serde_json::from_slice(&bytes).ok()?;
    Some(version.version.chars().take(VERSION_CHARS_MAX).collect())
}

/// The versions of those replicas whose pools do not pin theirs, in their order; `None`
/// for those that do not answer within `timeout`.
pub async fn versions(
    config: &Config,
    replicas: &[(usize, ReplicaConfig)],
    client: &reqwest::Client,
    timeout: Duration,
) -> Vec<Option<String>> {
    let mut tasks = JoinSet::new();
    for (number, (pool, replica)) in replicas.iter().enumerate() {
        let pinned = config
            .pools
            .get(*pool)
            .is_some_and(|pool| pool.engine.vllm_version.is_some());
        if !pinned {
            let (client, api) = (client.clone(), replica.api.clone());
            tasks.spawn(async move { (number, version(&client, &api, timeout).await) });
        }
    }
    let mut versions = vec![None; replicas.len()];
    while let Some(answer) = tasks.join_next().await {
        if let Ok((number, version)) = answer
            && let Some(slot) = versions.get_mut(number)
        {
            *slot = version;
        }
    }
    versions
}

#[cfg(test)]
mod tests;
