//! Dashboards and alert rules that ask for metrics which engines no longer have: their panels are
//! empty, and their alerts never fire.
//!
//! vLLM hides a metric one version after it was deprecated and removes it one later (`docs/usage/metrics.md`).
//!
//! | names | what became of them | source in vllm-project/vllm |
//! |---|---|---|
//! | swapping, `*_prefix_cache_hit_rate`, `time_in_queue_requests`, `model_*_time_milliseconds` | deprecated in 0.8, hidden in 0.9, then removed | pull requests 15458, 18837 |
//! | `gpu_cache_usage_perc`, `gpu_prefix_cache_*` | deprecated in 0.9, removed at the end of 2025 | 18354, 29330 |
//! | `time_per_output_token_seconds` | deprecated in 0.11, hidden in 0.12, removed in January 2026 | 24110, 29330, 32661 |
//! | `avg_*_throughput_toks_per_s` | removed in January 2025 | 2764, 12383 |
//! | `request_params_best_of`, `spec_decode_*` gauges | of the engine before V1, gone with it | `docs/design/metrics.md` |
//! | `tokens_total`, `num_batched_tokens` | never served, and dashboards ask for them | `docs/design/metrics.md`, `vllm/v1/metrics/loggers.py` |

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::item::Item;

const ID: &str = "dashboards.metrics";
/// Most files of a folder, and most bytes of one.
const FILES_MAX: usize = 1_000;
const BYTES_MAX: u64 = 16 << 20;
/// Most places told of one file.
const TOLD_MAX: usize = 20;
/// How deep folders are searched.
const DEPTH_MAX: usize = 6;

/// Names that are not there, without what a type adds (`_total`, `_bucket`, ...), and what to ask for.
const GONE: [(&str, &str); 19] = [
    ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
    (
        "vllm:gpu_prefix_cache_hit_rate",
        "rate(vllm:prefix_cache_hits_total[5m]) / rate(vllm:prefix_cache_queries_total[5m])",
    ),
    (
        "vllm:gpu_prefix_cache_queries",
        "vllm:prefix_cache_queries_total",
    ),
    ("vllm:gpu_prefix_cache_hits", "vllm:prefix_cache_hits_total"),
    (
        "vllm:cpu_prefix_cache_hit_rate",
        "rate(vllm:external_prefix_cache_hits_total[5m]) / rate(vllm:external_prefix_cache_queries_total[5m])",
    ),
    (
        "vllm:cpu_cache_usage_perc",
        "nothing: requests are no longer swapped to the CPU",
    ),
    (
        "vllm:num_requests_swapped",
        "vllm:num_preemptions_total: requests are no longer swapped",
    ),
    (
        "vllm:time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
    ),
    (
        "vllm:time_in_queue_requests",
        "vllm:request_queue_time_seconds",
    ),
    (
        "vllm:model_forward_time_milliseconds",
        "vllm:request_prefill_time_seconds and vllm:request_decode_time_seconds",
    ),
    (
        "vllm:model_execute_time_milliseconds",
        "vllm:request_inference_time_seconds",
    ),
    (
        "vllm:avg_prompt_throughput_toks_per_s",
        "rate(vllm:prompt_tokens_total[1m])",
    ),
    (
        "vllm:avg_generation_throughput_toks_per_s",
        "rate(vllm:generation_tokens_total[1m])",
    ),
    ("vllm:request_params_best_of", "nothing: best_of is gone"),
    (
        "vllm:spec_decode_draft_acceptance_rate",
        "rate(vllm:spec_decode_num_accepted_tokens_total[5m]) / rate(vllm:spec_decode_num_draft_tokens_total[5m])",
    ),
    (
        "vllm:spec_decode_efficiency",
        "vllm:spec_decode_num_accepted_tokens_total",
    ),
    (
        "vllm:spec_decode_num_emitted_tokens",
        "vllm:spec_decode_num_accepted_tokens_total + vllm:spec_decode_num_drafts_total",
    ),
    (
        "vllm:tokens_total",
        "vllm:prompt_tokens_total + vllm:generation_tokens_total",
    ),
    ("vllm:num_batched_tokens", "vllm:iteration_tokens_total"),
];

/// What a type adds to a name.
const ENDINGS: [&str; 5] = ["", "_total", "_bucket", "_sum", "_count"];

/// Looks through files and folders.
pub(super) fn examine(paths: &[PathBuf]) -> Vec<Item> {
    if paths.is_empty() {
        return vec![Item::skipped(ID, "dashboards", "no --dashboards was given")];
    }
    let mut files = Vec::new();
    for path in paths {
        gather(path, DEPTH_MAX, &mut files);
    }
    let mut items: Vec<Item> = files.iter().flat_map(|file| examine_file(file)).collect();
    if files.is_empty() {
        let told = paths.iter().map(|path| path.display().to_string());
        let told = told.collect::<Vec<_>>().join(", ");
        items.push(Item::skipped(
            ID,
            &told,
            "no .json, .yaml or .yml file in it",
        ));
    }
    items
}

fn gather(path: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    if files.len() >= FILES_MAX {
        return;
    }
    if path.is_file() {
        files.push(path.to_owned());
        return;
    }
    let Ok(entries) = std::fs::read_dir(path) else {
        return;
    };
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for entry in entries {
        let ending = entry.extension().and_then(|ending| ending.to_str());
        let fits = matches!(
            ending,
            Some("json" | "yaml" | "yml" | "libsonnet" | "jsonnet")
        );
        if fits || (entry.is_dir() && depth > 0) {
            gather(&entry, depth - usize::from(depth > 0), files);
        }
    }
}

fn examine_file(path: &Path) -> Vec<Item> {
    let subject = path.display().to_string();
    let size = std::fs::metadata(path).map_or(0, |about| about.len());
    if size > BYTES_MAX {
        return vec![Item::skipped(
            ID,
            &subject,
            format!("longer than {BYTES_MAX} bytes"),
        )];
    }
    match std::fs::read_to_string(path) {
        Ok(text) => judge(&subject, &text),
        Err(error) => vec![Item::skipped(ID, &subject, error.to_string())],
    }
}

/// Judges one file.
#[must_use]
pub fn judge(subject: &str, text: &str) -> Vec<Item> {
    let mut places = BTreeSet::new();
    match serde_json::from_str::<Value>(text) {
        // A dashboard may be one long line: a panel's title says more than that.
        Ok(json) => search(&json, None, &mut places),
        Err(error) if subject.ends_with(".json") => {
            let fix = "save it anew from Grafana: as it is, nothing reads it";
            return vec![Item::warn(ID, subject, format!("not JSON: {error}"), fix)];
        }
        Err(_) => {
            for (number, line) in (1..).zip(text.lines()) {
                for (name, new) in gone_in(line) {
                    places.insert((name, new, format!("line {number}")));
                }
            }
        }
    }
    if places.is_empty() {
        return vec![Item::ok(
            ID,
            subject,
            "no metric that engines no longer have",
        )];
    }
    let told = places.into_iter().take(TOLD_MAX);
    told.map(|(name, new, place)| {
        Item::warn(
            ID,
            subject,
            format!("{place}: vLLM has no {name} any more: it shows nothing"),
            format!("ask for {new}"),
        )
    })
    .collect()
}

type Place = (&'static str, &'static str, String);

fn search(value: &Value, title: Option<&str>, places: &mut BTreeSet<Place>) {
    match value {
        Value::String(text) => {
            for (name, new) in gone_in(text) {
                let place = title.map_or_else(
                    || "outside panels".to_owned(),
                    |title| format!("panel {title:?}"),
                );
                places.insert((name, new, place));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| search(item, title, places)),
        Value::Object(map) => {
            // The dashboard's own title is no panel's.
            let own = map.get("title").and_then(Value::as_str);
            let own = own.filter(|_| !map.contains_key("panels") || map.contains_key("type"));
            map.values()
                .for_each(|value| search(value, own.or(title), places));
        }
        _ => {}
    }
}

/// Names in a text that are gone, each once.
fn gone_in(text: &str) -> Vec<(&'static str, &'static str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let words: BTreeSet<&str> = text.split(|c| !is_part(c)).collect();
    let is_gone = |name: &str| {
        let mut forms = ENDINGS.iter().map(|ending| format!("{name}{ending}"));
        forms.any(|form| words.contains(form.as_str()))
    };
    GONE.into_iter().filter(|(name, _)| is_gone(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::item::Status;

    #[test]
    fn a_dashboard_in_one_line_names_its_panels() {
        let dashboard = serde_json::json!({"title": "vLLM", "panels": [
            {"title": "Hit rate", "type": "stat", "targets": [{"expr": "avg(vllm:gpu_prefix_cache_hit_rate{pod=~\"$pod\"})"}]},
            {"title": "Row", "type": "row", "panels": [
                {"title": "Cache", "type": "graph", "targets": [{"expr": "max(vllm:gpu_cache_usage_perc) * 100"}, {"expr": "vllm:gpu_cache_usage_perc"}]},
                {"title": "Fine", "type": "graph", "targets": [{"expr": "vllm:kv_cache_usage_perc + my:vllm:gpu_cache_usage_perc"}]}]}]});
        let items = judge("d.json", &dashboard.to_string());
        assert_eq!(items.len(), 2, "{items:#?}");
        assert!(
            items[0]
                .found
                .contains("panel \"Cache\": vLLM has no vllm:gpu_cache_usage_perc")
        );
        assert!(items[0].fix.contains("vllm:kv_cache_usage_perc"));
        assert!(items[1].found.contains("panel \"Hit rate\""));
        assert!(items[1].fix.contains("vllm:prefix_cache_hits_total"));
        assert!(items.iter().all(|item| item.status == Status::Warn));
    }

    #[test]
    fn rules_name_their_lines() {
        let rules = "groups:\n- rules:\n  - alert: Slow\n    expr: histogram_quantile(0.9, rate(vllm:time_per_output_token_seconds_bucket[5m])) > 1\n";
        let items = judge("r.yaml", rules);
        assert_eq!(items.len(), 1);
        assert!(
            items[0]
                .found
                .starts_with("line 4: vLLM has no vllm:time_per_output_token_seconds"),
            "{items:?}"
        );
        let new = "expr: vllm:request_time_per_output_token_seconds_bucket";
        assert_eq!(judge("r.yaml", new)[0].status, Status::Ok);
    }

    /// What vLLM 0.32 really served (where the capture is at hand).
    #[test]
    fn what_is_gone_is_not_there_and_what_to_ask_for_is() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../shared/data/vllm-real/metrics-after.txt"
        );
        let Ok(capture) = std::fs::read_to_string(file) else {
            eprintln!("skipped: no {file}");
            return;
        };
        let has = |name: &str| {
            let mut all = super::super::samples::samples(&capture);
            all.any(|sample| {
                ENDINGS
                    .iter()
                    .any(|ending| sample.name == format!("{name}{ending}"))
            })
        };
        for (name, new) in GONE {
            assert!(!has(name), "{name} is there");
            let words = new.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')));
            // Speculative decoding was off in that engine.
            let words = words.filter(|word| {
                word.starts_with("vllm:") && !word.contains("spec_decode") && !word.ends_with(':')
            });
            for word in words {
                assert!(has(word), "{word} is not there");
            }
        }
    }
}
