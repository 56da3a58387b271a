//! `prefix-picker explain`: what a gateway would decide about a request now.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::BAD_ARGUMENTS;
use super::remote::{self, Remote};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker explain --token-file token --path /v1/chat/completions --request body.json
  prefix-picker explain --token-file token --token-ids ids.json --model demo --json

Nothing is recorded, and ties go by a fixed seed. The token is any of the control plane's. What gateways
alone know does not count: what they have sent a moment ago, and sessions.

Exit codes: 0 answered; 1 the control plane does not answer or refuses; 2 the arguments cannot be used,
or there is no such model or pool.")]
pub struct Args {
    #[command(flatten)]
    remote: remote::Where,
    /// The request's path, like /v1/chat/completions
    #[arg(long, value_name = "PATH", requires = "request")]
    path: Option<String>,
    /// The request's body; `-` is standard input
    #[arg(long, value_name = "BODY.json", requires = "path")]
    request: Option<PathBuf>,
    /// In place of a request: a prompt, a JSON list of token ids
    #[arg(
        long,
        value_name = "IDS.json",
        conflicts_with = "request",
        required_unless_present = "request"
    )]
    token_ids: Option<PathBuf>,
    /// The model of the token ids
    #[arg(long, value_name = "NAME", requires = "token_ids")]
    model: Option<String>,
    /// The Envoy cluster that the request is routed to, where several pools serve the model
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// The pool, where model and cluster do not tell it
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Print the control plane's answer (`prefix-picker.explain/1`)
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
///
/// # Errors
/// If a file cannot be read, or the control plane does not answer or refuses.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let read = |path: &PathBuf| -> anyhow::Result<Value> {
        super::usable(super::render::read(path).and_then(|bytes| {
            serde_json::from_slice(&bytes).with_context(|| format!("{}: not JSON", path.display()))
        }))
    };
    let ask = json!({
        "path": args.path,
        "request": args.request.as_ref().map(read).transpose()?,
        "token_ids": args.token_ids.as_ref().map(read).transpose()?,
        "model": args.model,
        "cluster": args.cluster,
        "pool": args.pool,
    });
    let remote = Remote::new(&args.remote)?;
    let answer = remote.post(&["v1", "explain"], serde_json::to_vec(&ask)?)?;
    if matches!(answer.status, 400 | 404) {
        eprintln!("prefix-picker explain: {}", answer.body.trim());
        return Ok(ExitCode::from(BAD_ARGUMENTS));
    }
    answer.show(&args.remote.place.url, args.json, table)
}

/// The answer for people. Times in milliseconds.
fn table(told: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut out = String::new();
    let _ = writeln!(
        out,
        "pool {}: {} prompt tokens, {} blocks",
        text(&told["pool"]),
        told["prompt_tokens"],
        told["blocks"]
    );
    if let Some(why) = told["why"]["text"].as_str() {
        let _ = writeln!(
            out,
            "not looked up ({}): {why}",
            text(&told["why"]["reason"])
        );
    }
    let chosen: Vec<&Value> = told["decision"]["replicas"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let head = [
        "replica", "state", "choice", "gpu", "any", "run", "wait", "queue", "prefill", "burden",
        "decode", "tier", "guard", "total ms",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for replica in told["replicas"].as_array().into_iter().flatten() {
        let place = chosen.iter().position(|name| **name == replica["replica"]);
        let ms = |term: &str| match replica["cost_us"][term].as_u64() {
            Some(us) => format!("{}.{}", us / 1_000, us % 1_000 / 100),
            None => "-".to_owned(),
        };
        let mut row = vec![
            text(&replica["replica"]),
            text(&replica["state"]),
            place.map_or_else(|| "-".to_owned(), |place| (place + 1).to_string()),
            replica["matched"]["gpu_tokens"].to_string(),
            replica["matched"]["any_tokens"].to_string(),
            replica["load"]["running"].to_string(),
            replica["load"]["waiting"].to_string(),
        ];
        row.extend(
            [
                "queue", "prefill", "burden", "decode", "tier", "guard", "total",
            ]
            .map(ms),
        );
        rows.push(row);
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in &rows {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Words to the left, numbers to the right.
            let _ = match at {
                0..=1 => write!(out, "{cell:<width$}  "),
                _ => write!(out, "{cell:>width$}  "),
            };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    let first = chosen.first().and_then(|name| name.as_str());
    let _ = writeln!(
        out,
        "decision: {} ({}), {} tokens cached",
        first.unwrap_or("none"),
        text(&told["decision"]["reason"]),
        told["decision"]["hit_tokens"]
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_for_people() {
        let replica = |name: &str, total: u64| {
            json!({"replica": name, "state": "ready", "matched": {"gpu_tokens": 1600, "any_tokens": 3200},
                "load": {"running": 3, "waiting": 0},
                "cost_us": {"queue": 0, "prefill": 160_000, "burden": 80_000, "decode": 1_250, "tier": 0,
                    "guard": 0, "total": total}})
        };
        let told = json!({
            "pool": "demo", "prompt_tokens": 4800, "blocks": 70, "why": null,
            "replicas": [replica("10.0.0.7:8000", 241_250), replica("b", 1)],
            "decision": {"replicas": ["b", "10.0.0.7:8000"], "reason": "prefix", "hit_tokens": 3200},
        });
        let expected = "\
pool demo: 4800 prompt tokens, 70 blocks
replica        state  choice   gpu   any  run  wait  queue  prefill  burden  decode  tier  guard  total ms
10.0.0.7:8000  ready       2  1600  3200    3     0    0.0    160.0    80.0     1.2   0.0    0.0     241.2
b              ready       1  1600  3200    3     0    0.0    160.0    80.0     1.2   0.0    0.0       0.0
decision: b (prefix), 3200 tokens cached
";
        assert_eq!(table(&told), expected);
        // Whatever comes, it is printed.
        assert!(table(&json!(null)).contains("decision: none"));
    }
}
