//! `make bench`: what the filter costs, from real Envoy in one run.
//!
//! Three Envoys with the shipped configuration (2 workers) stand before the same stub that answers at
//! once: one with the filter, one without, one with a filter that only buffers. The prompt is first
//! sent through a simulated engine, so that the look-ups find it in a real table. Clients and Envoys
//! share the machine's cores, so requests/s are comparable with each other only.

mod frame;
mod index;
mod load;
mod stub;
mod templates;

use std::time::Duration;

use anyhow::{Result, ensure};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Cut, Options, Places, Stack};
use prefix_picker_tests::stats::percentile;
use prefix_picker_tests::workload::Random;
use serde_json::{Value, json};

/// Body sizes in bytes: a short question, a document, an agent's 100K-token conversation.
const SIZES: [(usize, &str, usize); 3] = [
    (2_000, "2 KB", 3_000),
    (64_000, "64 KB", 1_500),
    (430_000, "430 KB", 400),
];
/// How long each Envoy is loaded for the requests/s.
const LOADED_FOR: Duration = Duration::from_secs(3);
/// Connections then.
const CONNECTIONS: usize = 8;
/// One in this many requests is timed inside the filter.
const TIMING_SAMPLE: usize = 4;

#[tokio::main]
async fn main() -> Result<()> {
    let places = Places::find()?;
    ensure!(
        places.buffer_wasm.exists(),
        "{} is not there: run make bench",
        places.buffer_wasm.display()
    );
    templates::report(&places).await?;
    for (size, name, requests) in SIZES {
        one_size(&places, size, name, requests).await?;
    }
    index::report()
}

/// The shipped Envoy with a second route: requests with `x-bench` go to the stub.
fn options(stub: u16, kind: &str) -> Options {
    let edit = |a: &str, b: String| (a.to_owned(), b);
    let route = "              routes:\n";
    let to_stub = "              - match: {prefix: \"/\", headers: [{name: x-bench, present_match: true}]}\n                route: {cluster: stub, timeout: 0s}\n";
    let clusters = "  clusters:\n";
    let address = format!(
        "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {stub}}}}}}}}}"
    );
    let cluster = format!(
        "  - name: stub\n    type: STATIC\n    connect_timeout: 1s\n    load_assignment: {{cluster_name: stub, endpoints: [{{lb_endpoints: [{address}]}}]}}\n"
    );
    let mut options = Options {
        engine_args: [
            "--speed",
            "0",
            "--blocks",
            "60000",
            "--max-model-len",
            "400000",
        ]
        .map(String::from)
        .to_vec(),
        envoy_edits: vec![
            edit(route, format!("{route}{to_stub}")),
            edit(clusters, format!("{clusters}{cluster}")),
        ],
        control_plane_edits: vec![edit(
            "clusters: [pool]",
            "clusters: [pool, stub]".to_owned(),
        )],
        ..Options::default()
    };
    let limits = "\"max_body_bytes\"";
    match kind {
        "filter" => {
            options.envoy_edits.push(edit(
                limits,
                format!("\"timing_sample\": {TIMING_SAMPLE}, {limits}"),
            ));
        }
        "buffer" => {
            options.envoy_edits.push(edit(
                "prefix_picker_filter.wasm",
                "buffer_filter.wasm".to_owned(),
            ));
            options
                .envoy_edits
                .push(edit("vm_id: prefix_picker", "vm_id: buffer".to_owned()));
            options.no_control_plane = true;
        }
        _ => {
            options.envoy_cuts.push(Cut {
                from: "          - name: prefix-picker\n".to_owned(),
                until: "          - name: envoy.filters.http.router".to_owned(),
            });
            options.no_control_plane = true;
        }
    }
    options
}

async fn one_size(places: &Places, size: usize, name: &str, requests: usize) -> Result<()> {
    let stub = stub::start().await?;
    let with = Stack::start("bench-filter", places, options(stub, "filter")).await?;
    let start = async |kind: &str| {
        let mut options = options(stub, kind);
        options.external_engines.clone_from(&with.ports.engines);
        Stack::start(&format!("bench-{kind}"), places, options).await
    };
    let buffer = start("buffer").await?;
    let plain = start("plain").await?;

    let body = conversation(size, if size < 10_000 { 1 } else { 20 });
    let reply = with
        .client()?
        .post("/v1/chat/completions", &body, "plant", &[])
        .await?;
    ensure!(reply.status == 200, "{}: {}", reply.status, reply.body);
    with.settle().await?;
    println!(
        "{name} (body of {} bytes, {} prompt tokens)",
        body.to_string().len(),
        reply.prompt_tokens
    );

    let request = load::request(&body.to_string());
    let envoys = [
        ("filter", with.ports.envoy),
        ("only buffers", buffer.ports.envoy),
        ("no filter", plain.ports.envoy),
    ];
    for (_, port) in envoys {
        load::latencies(port, &request, requests / 10).await?; // warm
    }
    // In turns, so that whatever else the machine does meets all three alike.
    let mut latencies: [Vec<f64>; 3] = Default::default();
    for _ in 0..10 {
        for (all, (_, port)) in latencies.iter_mut().zip(envoys) {
            all.extend(load::latencies(port, &request, requests / 10).await?);
        }
    }
    let mut rates = [0.0; 3];
    for (rate, (_, port)) in rates.iter_mut().zip(envoys) {
        *rate = load::rate(port, &request, CONNECTIONS, LOADED_FOR).await?;
    }
    report(&envoys.map(|e| e.0), &latencies, rates);
    phases(&with, name).await?;
    for dir in [&with.dir, &buffer.dir, &plain.dir] {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

fn report(names: &[&str; 3], latencies: &[Vec<f64>; 3], rates: [f64; 3]) {
    let base = latencies.get(2).map_or(0.0, |l| percentile(l, 50.0));
    let base99 = latencies.get(2).map_or(0.0, |l| percentile(l, 99.0));
    for ((name, all), rate) in names.iter().zip(latencies).zip(rates) {
        let (p50, p99) = (percentile(all, 50.0), percentile(all, 99.0));
        println!(
            "  {name:<13} p50 {p50:>7.0} us (added {:>6.0}), p99 {p99:>7.0} us (added {:>6.0}), {rate:>7.0} requests/s",
            p50 - base,
            p99 - base99
        );
    }
    let [filter, buffer, plain] = rates;
    println!(
        "  requests/s with the filter: {:.0} % of one that only buffers, {:.0} % of none",
        100.0 * filter / buffer.max(1.0),
        100.0 * filter / plain.max(1.0)
    );
}

/// What the filter measured itself, from Envoy's own histograms (its buckets are a few per cent wide).
async fn phases(stack: &Stack, name: &str) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(6)).await; // Envoy merges histograms every 5 s
    let admin = Client::new(stack.ports.admin)?;
    let (_, text) = admin
        .get("/stats?format=json&histogram_buckets=none&filter=phase_microseconds")
        .await?;
    let text = if text.contains("supported_quantiles") {
        text
    } else {
        admin
            .get("/stats?format=json&filter=phase_microseconds")
            .await?
            .1
    };
    let value: Value = serde_json::from_str(&text)?;
    let all = value["stats"].as_array().cloned().unwrap_or_default();
    let histograms = all
        .iter()
        .find_map(|s| s.get("histograms"))
        .cloned()
        .unwrap_or_default();
    let at = |p: f64| {
        let quantiles = histograms["supported_quantiles"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        quantiles
            .iter()
            .position(|q| q.as_f64().is_some_and(|q| (q - p).abs() < 1e-9))
    };
    let (Some(p50), Some(p99)) = (at(50.0), at(99.0)) else {
        return Ok(());
    };
    print!("  the filter's own work at {name}, p50/p99 us:");
    for phase in ["copy", "parse", "render", "hash", "lookup", "pick", "total"] {
        let wanted = format!("phase=_={phase}_=_");
        let computed = histograms["computed_quantiles"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let of = computed
            .iter()
            .find(|h| h["name"].as_str().is_some_and(|n| n.contains(&wanted)));
        let quantile = |i: usize| {
            of.and_then(|h| h["values"][i]["cumulative"].as_f64())
                .unwrap_or(f64::NAN)
        };
        print!(" {phase} {:.0}/{:.0}", quantile(p50), quantile(p99));
    }
    println!();
    Ok(())
}

/// A conversation of several turns whose JSON is about `size` bytes.
fn conversation(size: usize, turns: usize) -> Value {
    let mut random = Random::new(size as u64);
    let mut text = |bytes: usize| {
        let mut out = String::with_capacity(bytes);
        while out.len() < bytes {
            let words = [
                "prefix",
                "cache",
                "the",
                "of \"quoted\"",
                "engine",
                "and\n",
                "router",
                "a",
                "measure",
                "it",
            ];
            out.push_str(
                words
                    .get(random.below(words.len()))
                    .copied()
                    .unwrap_or("the"),
            );
            out.push(' ');
        }
        out
    };
    let each = size.saturating_sub(60 + 100 * turns) / (2 * turns);
    let mut messages = vec![json!({"role": "system", "content": text(each)})];
    for turn in 0..turns {
        messages.push(json!({"role": "user", "content": text(each)}));
        if turn + 1 < turns {
            messages.push(json!({"role": "assistant", "content": text(each)}));
        }
    }
    json!({"model": "sim", "max_tokens": 1, "messages": messages})
}
