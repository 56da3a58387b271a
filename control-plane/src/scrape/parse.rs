//! Reads the few figures we need out of an engine's metrics.
//!
//! One engine process reports a line per data-parallel rank (label `engine`) and model name; counts are
//! summed, the fullest cache counts. Of a replica that is one rank only that rank's lines are read.
//! vLLM's names, and SGLang's.

use std::collections::BTreeSet;

use crate::block_hash::Algorithm;
use crate::engine::Load;
use crate::facts::models::{ADAPTERS_MAX, NAME_BYTES_MAX};

/// What the metrics said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Requests running.
    pub running: Option<f64>,
    /// Requests waiting.
    pub waiting: Option<f64>,
    /// Used share of the KV cache, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Tokens per block.
    pub block_size: Option<u32>,
    /// Tokens that the KV cache has room for.
    pub capacity_tokens: Option<u64>,
    /// How it hashes blocks (vLLM).
    pub hash_algorithm: Option<Algorithm>,
    /// Prompt tokens looked up in the prefix cache, ever.
    pub cache_queries: Option<f64>,
    /// Of those, found there or by a connector.
    pub cache_hits: Option<f64>,
    /// Seconds from a request's start on the engine to its first token; requests that have ended.
    pub prefill: Option<Mean>,
    /// Prompt tokens of those requests.
    pub prompt_tokens: Option<f64>,
    /// Of those, computed. Absent before vLLM 0.13 and in SGLang.
    pub computed_tokens: Option<f64>,
    /// Seconds between two tokens of an answer.
    pub between_tokens: Option<Mean>,
}

/// A histogram's total.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// Of all values.
    pub sum: f64,
    /// Number of values.
    pub count: f64,
}

impl Figures {
    /// The load; `None` unless running and waiting requests are both known.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped; `as` saturates
    pub fn load(&self) -> Option<Load> {
        let count = |value: f64| value.clamp(0.0, f64::from(u32::MAX)) as u32;
        Some(Load {
            running: count(self.running?),
            waiting: count(self.waiting?),
            kv_usage_permille: (self.kv_usage.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0).round()
                as u16,
        })
    }
}

impl Figures {
    /// Prompt tokens looked up in the prefix cache and found there, ever.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped; `as` saturates
    pub fn cache(&self) -> Option<(u64, u64)> {
        let count = |value: f64| value.max(0.0) as u64;
        Some((count(self.cache_queries?), count(self.cache_hits?)))
    }
}

/// Reads a metrics text: of one data-parallel rank, or of all. Lines that are not understood are passed
/// over.
#[must_use]
pub fn figures(text: &str, rank: Option<u16>) -> Figures {
    let rank = rank.map(|rank| rank.to_string());
    let mut figures = Figures::default();
    for line in text.lines() {
        let Some((name, labels, rest)) = split(line) else {
            continue;
        };
        if rank.is_some() && label(labels, "engine") != rank.as_deref() {
            continue;
        }
        match name {
            "vllm:num_requests_running" | "sglang:num_running_reqs" => {
                add(&mut figures.running, rest)
            }
            "vllm:num_requests_waiting" | "sglang:num_queue_reqs" => {
                add(&mut figures.waiting, rest)
            }
            "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" | "sglang:token_usage" => {
                if let Some(value) = value(rest) {
                    figures.kv_usage =
                        Some(figures.kv_usage.map_or(value, |known| known.max(value)));
                }
            }
            "vllm:prefix_cache_queries_total" | "vllm:gpu_prefix_cache_queries_total" => {
                add(&mut figures.cache_queries, rest)
            }
            // What a connector brings counts as cached in responses, too.
            "vllm:prefix_cache_hits_total"
            | "vllm:gpu_prefix_cache_hits_total"
            | "vllm:external_prefix_cache_hits_total" => add(&mut figures.cache_hits, rest),
            "vllm:request_prefill_time_seconds_sum" => add_sum(&mut figures.prefill, rest),
            "vllm:request_prefill_time_seconds_count" => add_count(&mut figures.prefill, rest),
            "vllm:request_prompt_tokens_sum" => add(&mut figures.prompt_tokens, rest),
            "vllm:request_prefill_kv_computed_tokens_sum" => {
                add(&mut figures.computed_tokens, rest)
            }
            // Two names of the same, and some versions have both: their ratio is what counts.
            "vllm:inter_token_latency_seconds_sum"
            | "vllm:time_per_output_token_seconds_sum"
            | "sglang:inter_token_latency_seconds_sum" => {
                add_sum(&mut figures.between_tokens, rest)
            }
            "vllm:inter_token_latency_seconds_count"
            | "vllm:time_per_output_token_seconds_count"
            | "sglang:inter_token_latency_seconds_count" => {
                add_count(&mut figures.between_tokens, rest)
            }
            "vllm:cache_config_info" => {
                let size = label(labels, "block_size").and_then(|size| size.parse().ok());
                figures.block_size = size.filter(|size| *size > 0).or(figures.block_size);
                let algorithm = label(labels, "prefix_caching_hash_algo");
                figures.hash_algorithm = algorithm
                    .and_then(Algorithm::of_name)
                    .or(figures.hash_algorithm);
                if let Some(tokens) = capacity(labels, figures.block_size) {
                    *figures.capacity_tokens.get_or_insert_default() += tokens;
                }
            }
            _ => {}
        }
    }
    figures
}

/// The LoRA adapters that requests use at the moment (`vllm:lora_requests_info`, whose lines tell lists; the
/// newest one has the highest value).
#[must_use]
pub fn adapters_in_use(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(split);
    let lines = lines.filter(|(name, ..)| *name == "vllm:lora_requests_info");
    let newest = lines.max_by(|a, b| {
        value(a.2)
            .unwrap_or(0.0)
            .total_cmp(&value(b.2).unwrap_or(0.0))
    });
    let Some((_, labels, _)) = newest else {
        return BTreeSet::new();
    };
    let lists = ["running_lora_adapters", "waiting_lora_adapters"];
    let names = lists.iter().filter_map(|list| label(labels, list));
    let names = names.flat_map(|list| list.split(',')).map(str::trim);
    names
        .filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)
        .take(ADAPTERS_MAX)
        .map(str::to_owned)
        .collect()
}

/// Tokens that a cache has room for: older versions of vLLM say only how many blocks it has.
fn capacity(labels: &str, block_size: Option<u32>) -> Option<u64> {
    let number = |name| {
        let number = label(labels, name)?.parse::<u32>().ok()?;
        Some(u64::from(number)).filter(|&number| number > 0)
    };
    let by_blocks = || Some(number("num_gpu_blocks")? * u64::from(block_size?));
    number("kv_cache_size_tokens").or_else(by_blocks)
}

/// Name, labels between the braces, and what follows.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at_checked(end)?;
    if !(name.starts_with("vllm:") || name.starts_with("sglang:")) {
        return None;
    }
    match rest.strip_prefix('{') {
        // A label's value may hold a brace; the last one ends them.
        Some(rest) => rest
            .rsplit_once('}')
            .map(|(labels, rest)| (name, labels, rest)),
        None => Some((name, "", rest)),
    }
}

fn value(rest: &str) -> Option<f64> {
    rest.split_ascii_whitespace()
        .next()?
        .parse::<f64>()
        .ok()
        .filter(|value| value.is_finite())
}

fn add(sum: &mut Option<f64>, rest: &str) {
    if let Some(value) = value(rest) {
        *sum = Some(sum.unwrap_or(0.0) + value);
    }
}

fn add_sum(mean: &mut Option<Mean>, rest: &str) {
    if let Some(value) = value(rest) {
        mean.get_or_insert_default().sum += value;
    }
}

fn add_count(mean: &mut Option<Mean>, rest: &str) {
    if let Some(value) = value(rest) {
        mean.get_or_insert_default().count += value;
    }
}

/// A label's value. Escapes are left as they are: none of ours has any.
pub(crate) fn label<'a>(labels: &'a str, wanted: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut end = None;
        let mut escaped = false;
        for (at, byte) in after.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let end = end?;
        if name.trim_start_matches([',', ' ']) == wanted {
            return after.get(..end);
        }
        rest = after.get(end + 1..)?;
    }
}
