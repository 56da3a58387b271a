//! `prefix-picker drain` and `undrain`: a replica out of service, and back in.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::BAD_ARGUMENTS;
use super::remote::{self, Remote};

/// Time between two looks at the engine's load.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks in a row that must find it idle: gateways hear of the drain a moment later, and loads are
/// read now and then.
const IDLE_LOOKS: u32 = 4;

/// Arguments of both.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker drain 10.0.0.7:8000 --token-file admin.token --wait 600
  prefix-picker undrain 10.0.0.7:8000 --token-file admin.token

The token is one of the control plane's admin_tokens or admin_token_files. Where several control planes
run, each has to be told. It holds over restarts of the control plane, until undrain.

Exit codes: 0 done; 1 the control plane does not answer or refuses, or (with --wait) the time is over;
2 the arguments cannot be used, or there is no such replica (the known ones are listed).")]
pub struct Args {
    /// The replica's name in the control plane's configuration; by default its endpoint
    #[arg(value_name = "REPLICA")]
    replica: String,
    #[command(flatten)]
    remote: remote::Where,
    /// Wait so long until the engine has no requests left (drain only)
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
    /// Print the control plane's answer (`prefix-picker.drain/1`)
    #[arg(long)]
    json: bool,
}

/// Drains, or ends it.
///
/// # Errors
/// If the control plane does not answer or refuses.
pub fn run(args: &Args, draining: bool) -> anyhow::Result<ExitCode> {
    let remote = Remote::new(&args.remote)?;
    let what = if draining { "drain" } else { "undrain" };
    let ask = || remote.post(&["v1", "replicas", &args.replica, what], Vec::new());
    let first = ask()?;
    if first.status == 404 && first.body.starts_with("no replica") {
        eprintln!("prefix-picker {what}: {}", first.body.trim());
        return Ok(ExitCode::from(BAD_ARGUMENTS));
    }
    let mut answer = first.json(&args.remote.place.url)?;
    if draining && answer.get("others_pickable").and_then(Value::as_u64) == Some(0) {
        let pool = answer.get("pool").and_then(Value::as_str).unwrap_or("?");
        eprintln!(
            "warning: no other replica of pool {pool} may get requests: Envoy's own balancer decides for it now"
        );
    }
    if let (Some(seconds), true) = (args.wait, draining) {
        let begin = Instant::now();
        let mut idle = 0;
        while idle < IDLE_LOOKS {
            if begin.elapsed() >= Duration::from_secs(seconds) {
                say(args, &answer)?;
                anyhow::bail!("{} still has requests after {seconds} s", args.replica);
            }
            std::thread::sleep(LOOK_EVERY);
            answer = ask()?.json(&args.remote.place.url)?;
            idle = if requests(&answer) == 0 { idle + 1 } else { 0 };
        }
    }
    say(args, &answer)?;
    Ok(ExitCode::SUCCESS)
}

fn requests(answer: &Value) -> u64 {
    let count = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
    count("running") + count("waiting")
}

fn say(args: &Args, answer: &Value) -> anyhow::Result<()> {
    if args.json {
        return super::print(format!("{answer}\n"));
    }
    let state = answer.get("state").and_then(Value::as_str);
    let pool = answer.get("pool").and_then(Value::as_str);
    super::print(format!(
        "{} ({}): {}, {} request(s) on the engine\n",
        args.replica,
        pool.unwrap_or("?"),
        state.unwrap_or("?"),
        requests(answer)
    ))
}
