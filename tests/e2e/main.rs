//! The end-to-end suite: real Envoy, the real control plane, simulated engines.
//!
//! `make e2e` runs all cases, `make e2e CASE=name` some, `CASE=list` names them; `--short` is the
//! reduced run of `make test`. Ends with `N passed, N failed`.

mod accuracy;
mod bursts;
mod churn;
mod clusters;
mod dashboards;
mod discovery;
mod doctor;
mod exact;
mod faults;
mod feedback;
mod fleet;
mod gateways;
mod headers;
mod health;
mod load;
mod lora;
mod loss;
mod odd;
mod propagation;
mod ranks;
mod standalone;
mod standby;
mod stored;
mod trailers;
mod unheld;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use prefix_picker_tests::stack::Places;

/// All cases, in the order of a whole run.
const CASES: [(&str, &str); 35] = [
    (
        "accuracy",
        "what the filter predicts is what the engine had cached",
    ),
    (
        "feedback",
        "predictions are compared with what engines report; a wrong template raises the alarm",
    ),
    (
        "siblings",
        "a burst of prompts with one start shares two engines before any event",
    ),
    (
        "two_gateways",
        "siblings that enter by two Envoys share two engines; who dies is forgotten within 5 s",
    ),
    (
        "drain",
        "an engine taken out of service under load: no request fails, no new one lands there",
    ),
    (
        "cold",
        "different prompts at once are spread over idle engines",
    ),
    (
        "propagation",
        "time from an engine's publish to a filter using it",
    ),
    (
        "forged",
        "a client's own destination header never chooses the endpoint",
    ),
    (
        "stored_answers",
        "what builds on an answer goes to the engine that keeps it",
    ),
    (
        "shadow",
        "by a route's metadata: endpoints are chosen and counted, and Envoy decides",
    ),
    (
        "canary",
        "of a route's weighted clusters only the pool's own have endpoints named",
    ),
    (
        "unheld",
        "without allow_on_headers_stop_iteration, as the Envoy Gateway manifests have it: routed all the same",
    ),
    (
        "dashboards",
        "every metric and label that dashboards and alerts name is exported",
    ),
    (
        "missed_override",
        "a cluster that does not obey is counted and said in Envoy's log",
    ),
    (
        "lora",
        "adapters have blocks of their own, and only engines that have them are named",
    ),
    (
        "odd",
        "large, chunked, broken, empty and foreign requests fare as without the filter",
    ),
    (
        "control_plane_killed",
        "kill -9 under load: no request fails, picks go on, then converge",
    ),
    (
        "snapshot",
        "a prefix older than the engine's replay ring is credited again after a restart",
    ),
    (
        "standby",
        "two control planes in order: the second takes over within 3 s, the first has its gateways back",
    ),
    (
        "discovery",
        "pods come and go, and requests go to those that are there and ready",
    ),
    (
        "doctor",
        "all ok on a healthy fleet; each of eleven faults named, with its cure",
    ),
    ("envoy_restarted", "a new Envoy has the table within 2 s"),
    (
        "engine_restarted",
        "nothing of an engine's former life is matched again",
    ),
    ("engine_down", "an engine that dies costs no request"),
    (
        "refused_uploads",
        "bodies that engines refuse by closing have none of them left alone",
    ),
    (
        "engine_errors",
        "an engine that fails fast is left alone, and comes back",
    ),
    ("ranks", "data-parallel ranks of an endpoint are replicas"),
    (
        "hot_prefix",
        "one prefix at three times an engine's capacity: spread, as much served as by least-request",
    ),
    (
        "unique",
        "prompts that share nothing: spread and first token as by least-request",
    ),
    (
        "added_replica",
        "a new engine under load has its share within 30 s, and no more",
    ),
    (
        "two_fleets",
        "two Envoys with a control plane each find as much cached as one of each",
    ),
    (
        "killed",
        "kill -9 of an engine under load: only what had begun there breaks off",
    ),
    (
        "frozen",
        "engines' metrics frozen, then not to be had, then no control plane: spread all the same",
    ),
    (
        "churn",
        "clients and engines that leave in every way, and a filter that traps: nothing stays in flight",
    ),
    (
        "standalone",
        "no control plane: conversations go on where they began",
    ),
];

async fn case(name: &str, places: &Places, short: bool) -> Result<()> {
    match name {
        "accuracy" => accuracy::simulated(places, if short { 300 } else { 2_400 }).await,
        "vllm" => accuracy::vllm(places).await,
        "vllm_exact" => exact::generating(places).await,
        "vllm_embeddings" => exact::embedding(places).await,
        "vllm_doctor" => doctor::vllm(places).await,
        "feedback" => feedback::feedback(places, short).await,
        "siblings" => bursts::siblings(places, short).await,
        "two_gateways" => gateways::two_gateways(places, short).await,
        "drain" => gateways::drain(places).await,
        "cold" => bursts::cold(places, short).await,
        "propagation" => propagation::propagation(places, if short { 40 } else { 300 }).await,
        "forged" => headers::forged(places).await,
        "stored_answers" => stored::stored_answers(places).await,
        "shadow" => headers::shadow(places).await,
        "canary" => clusters::canary(places).await,
        "unheld" => unheld::unheld(places, short).await,
        "dashboards" => dashboards::dashboards(places).await,
        "missed_override" => clusters::missed_override(places).await,
        "lora" => lora::lora(places).await,
        "odd" => odd::odd(places, short).await,
        "control_plane_killed" => faults::control_plane_killed(places, short).await,
        "snapshot" => faults::snapshot(places).await,
        "standby" => standby::standby(places, short).await,
        "discovery" => discovery::discovery(places).await,
        "doctor" => doctor::doctor(places).await,
        "envoy_restarted" => faults::envoy_restarted(places).await,
        "engine_restarted" => faults::engine_restarted(places).await,
        "engine_errors" => health::engine_errors(places).await,
        "refused_uploads" => health::refused_uploads(places).await,
        "hot_prefix" => load::hot_prefix(places, short).await,
        "unique" => load::unique(places, short).await,
        "added_replica" => fleet::added_replica(places, short).await,
        "two_fleets" => fleet::two_fleets(places, short).await,
        "killed" => loss::killed(places, short).await,
        "frozen" => loss::frozen(places, short).await,
        "churn" => churn::churn(places, if short { 5_000 } else { 100_000 }).await,
        "ranks" => ranks::ranks(places, short).await,
        "standalone" => standalone::standalone(places, short).await,
        "engine_down" => faults::engine_down(places).await,
        _ => anyhow::bail!("no such case; --list names them"),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "list" || a == "--list") {
        for (name, what) in CASES {
            println!("{name:<22}{what}");
        }
        return ExitCode::SUCCESS;
    }
    let short = args.iter().any(|a| a == "--short");
    let mut names: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|a| !a.starts_with("--"))
        .collect();
    if names.is_empty() {
        names = CASES.iter().map(|c| c.0).collect();
    }
    let places = match Places::find() {
        Ok(places) => places,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(2);
        }
    };
    // Processes end with their handles, so an interrupt must not end us before they drop.
    tokio::select! {
        failed = run(&names, &places, short) => if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE },
        _ = tokio::signal::ctrl_c() => ExitCode::from(130),
    }
}

/// Moves what a failed case left out of the way of [`clean`].
fn keep(name: &str) {
    let ours = format!("prefix-picker-e2e-{}-", std::process::id());
    for entry in std::fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let file = entry.file_name().to_string_lossy().into_owned();
        if file.starts_with(&ours) {
            let kept = std::env::temp_dir().join(format!("failed-{name}-{file}"));
            println!("  logs: {}", kept.display());
            let _ = std::fs::rename(entry.path(), kept);
        }
    }
}

/// Removes what passed cases left; that of failed ones was kept by then.
fn clean() {
    let ours = format!("prefix-picker-e2e-{}-", std::process::id());
    for entry in std::fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(&ours) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

async fn run(names: &[&str], places: &Places, short: bool) -> usize {
    let mut failed = Vec::new();
    for name in names {
        println!("case {name}");
        let start = Instant::now();
        let result = case(name, places, short).await;
        let took = start.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                println!("case {name} ... ok ({took:.1} s)");
                clean();
            }
            Err(error) => {
                println!("case {name} ... FAILED ({took:.1} s): {error:#}");
                keep(name);
                failed.push(*name);
            }
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(" "));
    }
    println!(
        "{} passed, {} failed",
        names.len() - failed.len(),
        failed.len()
    );
    failed.len()
}
