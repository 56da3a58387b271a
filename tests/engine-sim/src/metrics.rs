//! `/metrics` under vLLM's names and labels.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use crate::core::Shared;

/// vLLM's buckets, seconds.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const BETWEEN_TOKENS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const WHOLE_REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// One histogram of durations.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len()],
            sum: 0.0,
            count: 0,
        }
    }

    pub(crate) fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        if let Some(at) = self.bounds.iter().position(|bound| seconds <= *bound) {
            self.counts[at] += 1;
        }
        self.sum += seconds;
        self.count += 1;
    }
}

/// The histograms that are kept.
#[derive(Debug, Clone)]
pub(crate) struct Histograms {
    pub(crate) first_token: Histogram,
    pub(crate) between_tokens: Histogram,
    pub(crate) whole_request: Histogram,
}

impl Default for Histograms {
    fn default() -> Self {
        Self {
            first_token: Histogram::new(FIRST_TOKEN),
            between_tokens: Histogram::new(BETWEEN_TOKENS),
            whole_request: Histogram::new(WHOLE_REQUEST),
        }
    }
}

struct Page {
    out: String,
    /// `engine="<rank>",model_name="..."`
    labels: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.out, "# HELP {name} See vLLM.\n# TYPE {name} {kind}");
    }
    fn gauge(&mut self, name: &str, value: impl std::fmt::Display) {
        self.head(name, "gauge");
        let _ = writeln!(self.out, "{name}{{{}}} {value}", self.labels);
    }
    fn counter(&mut self, name: &str, value: u64) {
        self.counters(name, &[("", value)]);
    }
    /// `more`: further labels, with a leading comma.
    fn counters(&mut self, name: &str, values: &[(&str, u64)]) {
        self.head(&format!("{name}_total"), "counter");
        for (more, value) in values {
            let _ = writeln!(self.out, "{name}_total{{{}{more}}} {value}.0", self.labels);
        }
    }
    fn histogram(&mut self, name: &str, h: &Histogram) {
        self.head(name, "histogram");
        let mut below = 0;
        for (bound, count) in h.bounds.iter().zip(&h.counts) {
            below += count;
            let _ = writeln!(
                self.out,
                "{name}_bucket{{le=\"{bound:?}\",{}}} {below}.0",
                self.labels
            );
        }
        let _ = writeln!(
            self.out,
            "{name}_bucket{{le=\"+Inf\",{}}} {}.0",
            self.labels, h.count
        );
        let _ = writeln!(
            self.out,
            "{name}_count{{{0}}} {1}.0\n{name}_sum{{{0}}} {2}",
            self.labels, h.count, h.sum
        );
    }
}

/// The page in Prometheus' text form.
pub(crate) fn render(shared: &Shared) -> String {
    let stats = shared.stats().clone();
    let config = &shared.config;
    let mut page = Page {
        out: String::new(),
        labels: format!("engine=\"{}\",model_name=\"{}\"", config.rank, config.model),
    };
    let started = shared
        .started
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    page.head("process_start_time_seconds", "gauge");
    let _ = writeln!(page.out, "process_start_time_seconds {started}");
    let accepted = shared.requests.load(Ordering::Relaxed) as usize;
    let waiting = accepted.saturating_sub(stats.running);
    page.gauge(
        "vllm:num_requests_running",
        format_args!("{}.0", stats.running),
    );
    page.gauge("vllm:num_requests_waiting", format_args!("{waiting}.0"));
    page.head("vllm:num_requests_waiting_by_reason", "gauge");
    for (reason, value) in [("capacity", waiting), ("deferred", 0)] {
        let _ = writeln!(
            page.out,
            "vllm:num_requests_waiting_by_reason{{{},reason=\"{reason}\"}} {value}.0",
            page.labels
        );
    }
    page.head("vllm:engine_sleep_state", "gauge");
    for (state, value) in [("awake", 1), ("weights_offloaded", 0), ("discard_all", 0)] {
        let _ = writeln!(
            page.out,
            "vllm:engine_sleep_state{{{},sleep_state=\"{state}\"}} {value}.0",
            page.labels
        );
    }
    let used = stats.usable_blocks.saturating_sub(stats.free_blocks);
    page.gauge(
        "vllm:kv_cache_usage_perc",
        f64::from(used) / f64::from(stats.usable_blocks.max(1)),
    );
    page.counter("vllm:prefix_cache_queries", stats.cache.queries);
    page.counter("vllm:prefix_cache_hits", stats.cache.hits);
    page.counter("vllm:external_prefix_cache_queries", 0);
    page.counter("vllm:external_prefix_cache_hits", 0);
    page.counter("vllm:num_preemptions", stats.cache.preemptions);
    page.counter("vllm:prompt_tokens", stats.prompt_tokens);
    let computed = stats.prompt_tokens.saturating_sub(stats.cached_tokens);
    page.counters(
        "vllm:prompt_tokens_by_source",
        &[
            (",source=\"local_compute\"", computed),
            (",source=\"local_cache_hit\"", stats.cached_tokens),
            (",source=\"external_kv_transfer\"", 0),
        ],
    );
    page.counter("vllm:prompt_tokens_cached", stats.cached_tokens);
    page.counter("vllm:generation_tokens", stats.generation_tokens);
    page.counters(
        "vllm:request_success",
        &[
            (",finished_reason=\"stop\"", stats.finished),
            (",finished_reason=\"abort\"", stats.aborted),
        ],
    );
    page.head("vllm:admission_rejections_total", "counter");
    for (reason, value) in [
        ("max_num_queued_reqs", stats.rejected_requests),
        ("max_num_queued_tokens", stats.rejected_tokens),
    ] {
        let _ = writeln!(
            page.out,
            "vllm:admission_rejections_total{{model_name=\"{}\",reason=\"{reason}\"}} {value}.0",
            config.model
        );
    }
    page.head("vllm:cache_config_info", "gauge");
    let (size, blocks) = (config.block_size, config.blocks);
    let caching = if config.prefix_caching {
        "True"
    } else {
        "False"
    };
    let _ = writeln!(
        page.out,
        "vllm:cache_config_info{{block_size=\"{size}\",cache_dtype=\"auto\",effective_attention_block_size=\"{size}\",enable_prefix_caching=\"{caching}\",engine=\"{}\",kv_cache_size_tokens=\"{}\",mamba_block_size=\"None\",num_cpu_blocks=\"None\",num_gpu_blocks=\"{blocks}\",num_gpu_blocks_override=\"{blocks}\",prefix_caching_hash_algo=\"sha256\",prefix_match_unit=\"None\",sliding_window=\"None\"}} 1.0",
        config.rank,
        u64::from(size) * u64::from(blocks)
    );
    if config.kv_role.is_some() {
        page.counter("vllm:nixl_num_failed_transfers", 0);
        page.counter("vllm:nixl_num_kv_expired_reqs", 0);
    }
    page.histogram(
        "vllm:time_to_first_token_seconds",
        &stats.histograms.first_token,
    );
    page.histogram(
        "vllm:inter_token_latency_seconds",
        &stats.histograms.between_tokens,
    );
    page.histogram(
        "vllm:e2e_request_latency_seconds",
        &stats.histograms.whole_request,
    );
    page.out
}
