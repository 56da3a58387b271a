//! What a simulated engine is started with, and the vLLM version whose wire form it speaks.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Settings of one simulated engine. `Config::default()` suits in-process tests: every port is chosen by
/// the system, time does not pass (`speed` 0) and every generated token is canonical.
#[derive(Debug, Clone)]
pub struct Config {
    /// Told to clients in the `x-engine` header and `system_fingerprint`.
    pub name: String,
    /// HTTP listen address; port 0 lets the system choose (kept over restarts).
    pub listen: SocketAddr,
    /// Served model name.
    pub model: String,
    /// LoRA adapters, each selected by its name in the request's `model`.
    pub lora: Vec<Lora>,
    /// ZMQ endpoint of the event publisher; bound when it holds `*` or `::` or begins with `ipc://`, else
    /// connected to, as vLLM does. `None`: no events.
    pub events: Option<String>,
    /// ZMQ endpoint of the replay socket (always bound). `None`: no replay.
    pub replay: Option<String>,
    /// First frame of each event message.
    pub topic: String,
    /// Tokens per KV block.
    pub block_size: u32,
    /// KV blocks, one of which is vLLM's null block and never used.
    pub blocks: u32,
    /// Longest prompt plus answer in tokens; `None`: as much as the blocks hold, at most 131,072.
    pub max_model_len: Option<u32>,
    /// Requests in the running batch at once.
    pub max_num_seqs: u32,
    /// Tokens scheduled per step (longer prompts are prefilled in chunks).
    pub max_num_batched_tokens: u32,
    /// Above this many waiting and running requests new ones are refused with 503. `None`: no limit.
    pub max_num_queued_reqs: Option<u32>,
    /// Above this many prompt tokens not yet prefilled new requests are refused with 503. `None`: no limit.
    pub max_num_queued_tokens: Option<u64>,
    /// vLLM version whose events, replay framing and hash inputs are imitated.
    pub wire: WireVersion,
    /// Send block hashes as 32 raw bytes instead of 64-bit integers.
    pub bytes_hashes: bool,
    /// How many times faster than the time model below the engine runs; 0: no time passes.
    pub speed: f64,
    /// Time model at speed 1: prompt tokens computed per second.
    pub prefill_tokens_per_s: f64,
    /// Time model at speed 1: shortest step, milliseconds (so also the time per output token).
    pub step_ms: f64,
    /// Time model at speed 1: milliseconds added to a step by each request that decodes in it.
    pub step_ms_per_decode: f64,
    /// Share of generated words, 0..=1, that are emitted as tokens which re-tokenising would not give.
    pub noncanonical_rate: f64,
    /// Event batches kept for replay.
    pub buffer_steps: usize,
    /// Changes the answers (they depend on this and the prompt only).
    pub seed: u64,
    /// Data-parallel ranks behind the listen address, each with a cache of its own; events and replay of
    /// rank `n` are at the configured port plus `n`.
    pub data_parallel_size: u16,
    /// Serves a pooling model's interfaces instead of a generating one's.
    pub pooling: bool,
    /// Which of them this is: set for each as it starts.
    pub rank: u16,
    /// `--enable-prefix-caching`: off, nothing is found again and no events are published.
    pub prefix_caching: bool,
    /// `--enable-prompt-tokens-details`: `usage` tells `cached_tokens`.
    pub prompt_tokens_details: bool,
    /// `--enable-force-include-usage`: streams end with `usage`, asked or not.
    pub force_include_usage: bool,
    /// `PYTHONHASHSEED`: the text that the root of hash chains is made of.
    pub python_hash_seed: Option<String>,
    /// `kv_role` of `--kv-transfer-config` with a NIXL connector: the metrics and `/server_info` tell of
    /// it (as with `VLLM_SERVER_DEV_MODE=1`). No blocks are moved.
    pub kv_role: Option<String>,
}

/// One LoRA adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lora {
    /// Name by which requests select it.
    pub name: String,
    /// Its path: part of the block hash from vLLM 0.31 on.
    pub path: String,
}

impl FromStr for Lora {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(Self {
                name: name.into(),
                path: path.into(),
            }),
            _ => Err(format!("{s:?}: expected NAME=PATH")),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "engine".into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            model: "sim".into(),
            lora: Vec::new(),
            events: Some("tcp://*:0".into()),
            replay: Some("tcp://*:0".into()),
            topic: String::new(),
            block_size: 16,
            blocks: 4096,
            max_model_len: None,
            max_num_seqs: 256,
            max_num_batched_tokens: 8192,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
            wire: WireVersion::default(),
            bytes_hashes: false,
            speed: 0.0,
            prefill_tokens_per_s: 20_000.0,
            step_ms: 8.0,
            step_ms_per_decode: 0.05,
            noncanonical_rate: 0.0,
            buffer_steps: 10_000,
            seed: 0,
            data_parallel_size: 1,
            pooling: false,
            rank: 0,
            prefix_caching: true,
            prompt_tokens_details: true,
            force_include_usage: false,
            python_hash_seed: None,
            kv_role: None,
        }
    }
}

impl Config {
    /// Longest prompt plus answer, in tokens.
    #[must_use]
    pub fn max_model_len(&self) -> u32 {
        let capacity = self
            .blocks
            .saturating_sub(1)
            .saturating_mul(self.block_size);
        self.max_model_len.unwrap_or(131_072).min(capacity)
    }

    /// The settings of one rank.
    pub(crate) fn of_rank(&self, rank: u16) -> Self {
        let at = |endpoint: &Option<String>| endpoint.as_ref().map(|e| offset(e, rank));
        Self {
            events: at(&self.events),
            replay: at(&self.replay),
            rank,
            ..self.clone()
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// All that is wrong, one line each.
    pub fn validate(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        if self.block_size == 0 {
            wrong.push("block size: at least 1");
        }
        if self.blocks < 2 {
            wrong.push("blocks: at least 2 (one is the null block)");
        }
        if self.max_num_seqs == 0 || self.max_num_batched_tokens == 0 {
            wrong.push("max_num_seqs, max_num_batched_tokens: at least 1");
        }
        if !(self.speed >= 0.0 && self.speed.is_finite()) {
            wrong.push("speed: 0 or more");
        }
        if !(self.prefill_tokens_per_s > 0.0
            && self.step_ms >= 0.0
            && self.step_ms_per_decode >= 0.0)
        {
            wrong.push("time model: a positive prefill rate, step times of 0 or more");
        }
        if self.data_parallel_size == 0 {
            wrong.push("data parallel size: at least 1");
        }
        let endpoints = [&self.events, &self.replay].into_iter().flatten();
        if self.data_parallel_size > 1 && endpoints.clone().any(|e| offset(e, 1) == *e) {
            wrong.push("data parallel size: events and replay need a port to count from");
        }
        if !(0.0..=1.0).contains(&self.noncanonical_rate) {
            wrong.push("noncanonical rate: 0 to 1");
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n"))
        }
    }
}

/// A ZMQ endpoint with its port moved up, if it has one that the system does not choose.
fn offset(endpoint: &str, by: u16) -> String {
    let split = endpoint.rsplit_once(':');
    let port = split.and_then(|(_, port)| port.parse::<u16>().ok());
    match (split, port.filter(|&port| port != 0)) {
        (Some((host, _)), Some(port)) => format!("{host}:{}", port.saturating_add(by)),
        _ => endpoint.to_owned(),
    }
}

/// A vLLM version, `major.minor.patch`, by which the form of the events is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireVersion(pub u16, pub u16, pub u16);

impl Default for WireVersion {
    fn default() -> Self {
        Self(0, 32, 0)
    }
}

impl WireVersion {
    const OLDEST: Self = Self(0, 10, 0);
    const NEWEST: Self = Self(0, 33, u16::MAX);

    fn since(self, minor: u16, patch: u16) -> bool {
        self >= Self(0, minor, patch)
    }
    /// Events are maps, not arrays.
    #[must_use]
    pub fn events_are_maps(self) -> bool {
        self.since(24, 0)
    }
    /// `medium` is sent.
    #[must_use]
    pub fn has_medium(self) -> bool {
        self.since(10, 2)
    }
    /// `lora_name` is sent.
    #[must_use]
    pub fn has_lora_name(self) -> bool {
        self.since(14, 0)
    }
    /// `extra_keys` is sent.
    #[must_use]
    pub fn has_extra_keys(self) -> bool {
        self.since(17, 0)
    }
    /// `group_idx` is sent.
    #[must_use]
    pub fn has_group(self) -> bool {
        self.since(20, 0)
    }
    /// `kv_cache_spec_kind` is sent.
    #[must_use]
    pub fn has_kind(self) -> bool {
        self.since(22, 0)
    }
    /// `session_id` is sent.
    #[must_use]
    pub fn has_session(self) -> bool {
        self.since(30, 0)
    }
    /// Replayed batches carry the topic frame.
    #[must_use]
    pub fn replay_has_topic(self) -> bool {
        self.since(26, 0)
    }
    /// The root of a hash chain is the same in every process.
    #[must_use]
    pub fn fixed_none_hash(self) -> bool {
        self.since(29, 0)
    }
    /// Extra keys are tagged in the hash input, and the LoRA path is part of it.
    #[must_use]
    pub fn tagged_keys(self) -> bool {
        self.since(31, 0)
    }
    /// `POST <path>/render` exists, for chats and completions.
    #[must_use]
    pub fn has_render(self) -> bool {
        self.since(16, 0)
    }
    /// `GET /kv_event_sources` exists.
    #[must_use]
    pub fn has_event_sources(self) -> bool {
        self.since(31, 0)
    }
    /// `vllm_xargs.kv_cache_report_mode` is understood.
    #[must_use]
    pub fn has_report_mode(self) -> bool {
        self.since(26, 0)
    }
}

impl FromStr for WireVersion {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let parts: Result<Vec<u16>, _> = s.split('.').map(str::parse).collect();
        let version = match parts.as_deref() {
            Ok([major, minor]) => Self(*major, *minor, 0),
            Ok([major, minor, patch]) => Self(*major, *minor, *patch),
            _ => return Err(format!("{s:?}: expected a version such as 0.32")),
        };
        if version < Self::OLDEST || version > Self::NEWEST {
            return Err(format!("{s:?}: known are 0.10 to 0.33"));
        }
        Ok(version)
    }
}

impl fmt::Display for WireVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let check = |s: &str, maps: bool, medium: bool| {
            let v: WireVersion = s.parse().unwrap();
            assert_eq!((v.events_are_maps(), v.has_medium()), (maps, medium), "{s}");
        };
        check("0.10", false, false);
        check("0.10.2", false, true);
        check("0.23.1", false, true);
        check("0.24", true, true);
        check("0.33.0", true, true);
        for bad in ["", "1", "0.9", "0.34", "0.x", "1.2.3.4"] {
            assert!(bad.parse::<WireVersion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ranks_count_up_from_the_ports() {
        let config = Config {
            events: Some("tcp://*:5557".into()),
            replay: Some("tcp://[::]:6000".into()),
            data_parallel_size: 3,
            ..Config::default()
        };
        assert!(config.validate().is_ok());
        let third = config.of_rank(2);
        assert_eq!(third.events.as_deref(), Some("tcp://*:5559"));
        assert_eq!(third.replay.as_deref(), Some("tcp://[::]:6002"));
        assert_eq!(third.rank, 2);
        let unknown = Config {
            data_parallel_size: 2,
            ..Config::default()
        };
        assert!(unknown.validate().is_err());
    }

    #[test]
    fn all_errors_at_once() {
        let bad = Config {
            block_size: 0,
            blocks: 1,
            noncanonical_rate: 2.0,
            ..Config::default()
        };
        assert_eq!(bad.validate().unwrap_err().lines().count(), 3);
        assert!(Config::default().validate().is_ok());
    }
}
