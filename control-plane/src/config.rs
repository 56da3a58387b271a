//! The control plane's one configuration file, in YAML.
//!
//! Unknown fields are refused. All errors are reported at once, each with the field's path, the
//! value, what was expected and, for a misspelt name, the nearest known one. Relative paths are
//! relative to the working directory. Times, sizes and counts have their unit in the name.
//!
//! Absent here: opening what the file names (model folders, token files, sockets).

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

mod discovery;
mod fields;
mod flags;
mod names;
mod read;
mod selector;
mod unique;
mod yaml;

pub use discovery::{
    DiscoveryConfig, DnsConfig, KubernetesConfig, PodPort, Pods, Records, SourceConfig,
};
pub(crate) use flags::is_version;
pub use flags::{ContentFormat, EngineFlags};

pub(crate) use read::is_token;

/// Most replicas in all pools together.
pub const REPLICAS_MAX: usize = 4096;
/// Most bearer tokens of gateways, inline and by file together, and as many of operators.
pub const TOKENS_MAX: usize = 8;

/// Everything the file says, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `listen`: where gateways and operators connect. Default `127.0.0.1:9400`.
    pub listen: SocketAddr,
    /// `tokens`: bearer tokens, each of which lets a gateway poll. Default none; one is needed, here
    /// or in `token_files`. Two at once make a rotation without a gap.
    pub tokens: Vec<String>,
    /// `token_files`: files with one token each, read again every few seconds. Default none.
    pub token_files: Vec<PathBuf>,
    /// `admin_tokens`: bearer tokens of operators: they may take replicas out of service, which those of
    /// `tokens` may not. Default none: nobody may.
    pub admin_tokens: Vec<String>,
    /// `admin_token_files`: files with one such token each, read again every few seconds. Default none.
    pub admin_token_files: Vec<PathBuf>,
    /// `fleet_secret`, `fleet_secret_file`: given here or by a file, keys the block hashes; the same in all control planes
    /// of a fleet. Default: made once and kept in `data_dir`.
    pub fleet_secret: FleetSecret,
    /// `data_dir`: where snapshots and a generated fleet secret are kept. Required.
    pub data_dir: PathBuf,
    /// `snapshot_interval_ms`: time between snapshots of the index, 0 for only at stop.
    /// Default 10,000.
    pub snapshot_interval_ms: u64,
    /// `scrape_interval_ms`: time between scrapes of an engine's metrics. Default 200.
    pub scrape_interval_ms: u64,
    /// `scrape_timeout_ms`: how long a scrape may take. Default 1,000.
    pub scrape_timeout_ms: u64,
    /// `down_after_misses`: failed scrapes in a row after which a replica is down. Default 3.
    pub down_after_misses: u32,
    /// `models_interval_ms`: time between looks at an engine's adapters and version.
    /// Default 2,000.
    pub models_interval_ms: u64,
    /// `publish_interval_ms`: how long changes are gathered before gateways are told. Default 3.
    pub publish_interval_ms: u64,
    /// `startup_grace_ms`: how long a start waits for all replicas before gateways get a table that
    /// lacks some. Default 5,000.
    pub startup_grace_ms: u64,
    /// `page_bytes`: mean size of a table page above which the table is laid out anew with twice the
    /// pages. Default 4,096.
    pub page_bytes: usize,
    /// `log_level`: `error`, `warn`, `info`, `debug`, `trace`, or a filter as of tracing's
    /// `EnvFilter`. Default `info`; the environment variable `RUST_LOG` overrides it.
    pub log_level: String,
    /// `log_format`: `text` or `json`. Default `text`.
    pub log_format: LogFormat,
    /// `pools`: at least one.
    pub pools: Vec<PoolConfig>,
}

/// Where the fleet secret comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum FleetSecret {
    /// Written in the configuration.
    Inline(String),
    /// In a file.
    File(PathBuf),
    /// Made at the first start and kept in `data_dir`.
    Generated,
}

impl fmt::Debug for FleetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Generated => f.write_str("Generated"),
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The replicas of one base model.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// `name`: names the pool in metrics and logs, and is part of its hashes: at most 128 letters, digits and
    /// `- _ . : [ ] #`. Required.
    pub name: String,
    /// `model_dir`: the model's folder: tokenizer and chat template. Required, but where `model` is
    /// given.
    pub model_dir: PathBuf,
    /// `model` and `revision`: in place of `model_dir`, the model's name on the Hugging Face hub. Its
    /// small files are fetched, unless they are in its cache (`HF_HOME`) already. Default: none, and `main`.
    pub hub: Option<HubModel>,
    /// `models`: model names in requests that mean this pool. At least one.
    pub models: Vec<String>,
    /// `clusters`: Envoy clusters that route to this pool. At least one.
    pub clusters: Vec<String>,
    /// `token_ids`: whether prompts given as token ids are indexed: `on`, `off`, or `auto`: from the
    /// moment a gateway reports one. Default `auto`.
    pub token_ids: TokenIds,
    /// `full_reports`: requests with `kv_cache_report_mode: full` reach the engines, so that a store
    /// of blocks already there is a report, not a second copy. Default `false`.
    pub full_reports: bool,
    /// `untold_salts`: clients of this pool send `cache_salt`, to engines that do not tell salts in
    /// their events (vLLM before 0.17, SGLang before 0.5.19): nothing is claimed of what these store,
    /// since it may be salted. Default `false`: a salted block may be claimed for an unsalted request
    /// with the same text, once a replica and text.
    pub untold_salts: bool,
    /// `eagle_drops_block`: engines speculate with EAGLE or MTP without lookahead hashes (vLLM before
    /// 0.33, or with a KV connector): hits are one engine block shorter. Default `false`.
    pub eagle_drops_block: bool,
    /// `memory_budget_bytes`: the index forgets what is least worth above it. Default 1 GiB.
    pub memory_budget_bytes: usize,
    /// What the engines' command line says of how requests become text.
    pub engine: EngineFlags,
    /// `adapters_on_demand`: the engines load a LoRA adapter when a request names it (a resolver
    /// plugin), so that any of them can serve one that any of them has. Default `false`: a request
    /// for an adapter goes only to engines that list it.
    pub adapters_on_demand: bool,
    /// `api_key_file`: a file with the engines' API key (`--api-key`), for `/v1/models`. Read at each
    /// use. Default none.
    pub api_key_file: Option<PathBuf>,
    /// `replicas`: those that are always there. Required, but where `discovery` is given.
    pub replicas: Vec<ReplicaConfig>,
    /// `discovery`: where others are listed that come and go. Default none.
    pub discovery: Option<DiscoveryConfig>,
}

/// A model by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubModel {
    /// `org/name`.
    pub model: String,
    /// A branch, tag or commit.
    pub revision: Option<String>,
}

/// Whether token-id prompts are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenIds {
    /// Once a gateway reports such a prompt.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// One engine, or one data-parallel rank of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReplicaConfig {
    /// `name`: names the replica in metrics, logs and snapshots, of the same characters. Default: the endpoint, and `#` and
    /// the rank where it has one.
    pub name: String,
    /// `endpoint`: `ip:port`, exactly as Envoy's cluster has it. Required.
    pub endpoint: SocketAddr,
    /// `data_parallel_rank`: which rank this is, where several are behind one endpoint (vLLM's
    /// `--data-parallel-size`): each has a cache and events of its own and is a replica of its own, and
    /// requests ask for it by the header `X-data-parallel-rank`. 0 to 65,534, as the engine numbers
    /// them. Default none: the endpoint is one engine.
    pub data_parallel_rank: Option<u16>,
    /// `events`: where the engine publishes KV events, `tcp://host:port`. Required.
    pub events: String,
    /// `replay`: the engine's replay endpoint. Default none; then a lost event or connection costs
    /// all that is known of the replica.
    pub replay: Option<String>,
    /// `topic`: prefix of the topics to take. Default empty: all.
    pub topic: String,
    /// `metrics`: the engine's metrics. Default `http://<endpoint>/metrics`.
    pub metrics: String,
    /// `health`: the engine's health check. Default `http://<endpoint>/health`.
    pub health: String,
    /// `api`: where the engine's other endpoints are (`/v1/models`, `/version`,
    /// `/kv_event_sources`). Default `http://<endpoint>`.
    pub api: String,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where, for example `pools[0].replicas[2].endpoint`. Empty for the file as a whole.
    pub path: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is not YAML, or its fields are wrong.
    #[error("{} error(s) in the configuration:\n{}", .0.len(), lines(.0))]
    Invalid(Vec<FieldError>),
}

fn lines(errors: &[FieldError]) -> String {
    errors
        .iter()
        .map(|error| format!("  {error}"))
        .collect::<Vec<_>>()
        .join("\n")
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text)
    }

    /// Checks a file's text.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        match Self::parse_partly(text) {
            (Some(config), errors) if errors.is_empty() => Ok(config),
            (_, errors) => Err(ConfigError::Invalid(errors)),
        }
    }

    /// What can be read of a file's text, and all that is wrong with it, for who looks for more that is wrong.
    /// Fields that are wrong have their defaults: nobody may run by it.
    #[must_use]
    pub fn parse_partly(text: &str) -> (Option<Self>, Vec<FieldError>) {
        match yaml::read(text) {
            Ok(value) => read::config(&value),
            Err(message) => {
                let path = String::new();
                (None, vec![FieldError { path, message }])
            }
        }
    }

    /// All configured replicas with their pool's position. Those that are discovered come besides.
    pub fn replicas(&self) -> impl Iterator<Item = (usize, &ReplicaConfig)> {
        self.pools
            .iter()
            .enumerate()
            .flat_map(|(pool, config)| config.replicas.iter().map(move |r| (pool, r)))
    }
}

#[cfg(test)]
pub(crate) mod tests;
