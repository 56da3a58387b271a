//! `prefix-picker doctor`: looks at a running fleet and says what to change.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use super::BAD_ARGUMENTS;
use crate::config::{Config, ConfigError};
use crate::doctor::{self, Options, Problem, Report};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker doctor --config prefix-picker.yaml --envoy-admin http://127.0.0.1:9901
  prefix-picker doctor --config prefix-picker.yaml --dashboards grafana/ --json
  prefix-picker doctor --config prefix-picker.yaml --no-probe

Each engine gets a few requests of one token, with prompts of two blocks, and is asked what it makes of some
more without computing them. --no-probe leaves that out, and with it whether events arrive and prompts are
right. Nothing is changed anywhere. docs/doctor.md lists all items.

Exit codes: 0 nothing has failed; 1 something has; 2 the arguments or the configuration cannot be used.")]
pub struct Args {
    /// The control plane's configuration (YAML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The control plane's address; may be repeated where there are several. Default: its `listen`
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    /// The admin address of an Envoy; may be repeated
    #[arg(long, value_name = "URL")]
    envoy_admin: Vec<String>,
    /// Dashboards and alert rules to search for metrics that engines no longer have: a file, or a
    /// folder with such; may be repeated
    #[arg(long, value_name = "PATH")]
    dashboards: Vec<PathBuf>,
    /// Send the engines no requests
    #[arg(long)]
    no_probe: bool,
    /// The engines' PYTHONHASHSEED
    #[arg(long, value_name = "SEED")]
    python_hash_seed: Option<String>,
    /// How long all of it may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=3600))]
    time: u64,
    /// Print what was found as JSON (`prefix-picker.doctor/1`)
    #[arg(long)]
    json: bool,
}

/// Looks and prints.
///
/// # Errors
/// If the answer cannot be had at all.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (config, problems) = load(args);
    let Some(config) = config.filter(|_| problems.is_empty()) else {
        return refuse(args, problems);
    };
    let options = Options {
        urls: args.url.clone(),
        envoy_admin: args.envoy_admin.clone(),
        dashboards: args.dashboards.clone(),
        probe: !args.no_probe,
        python_hash_seed: args.python_hash_seed.clone(),
        time: Duration::from_secs(args.time),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let report = runtime
        .block_on(doctor::examine(&config, &options))
        .context("the fleet cannot be looked at")?;
    // A model's files may still be on their way.
    runtime.shutdown_background();
    super::print(if args.json {
        format!("{}\n", report.json())
    } else {
        report.text(std::io::stdout().is_terminal())
    })?;
    Ok(if report.has_failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The configuration, and all that is wrong with it and the arguments.
fn load(args: &Args) -> (Option<Config>, Vec<Problem>) {
    let argument = |path: &str, message: String| Problem {
        path: path.to_owned(),
        message,
    };
    let mut problems = Vec::new();
    let config = match Config::load(&args.config) {
        Ok(config) => Some(config),
        Err(ConfigError::Unreadable { source, .. }) => {
            problems.push(argument("", format!("cannot be read: {source}")));
            None
        }
        Err(ConfigError::Invalid(errors)) => {
            problems.extend(errors.into_iter().map(|error| Problem {
                path: error.path,
                message: error.message,
            }));
            None
        }
    };
    for (name, urls, port) in [
        ("--url", &args.url, 9400),
        ("--envoy-admin", &args.envoy_admin, 9901),
    ] {
        let wrong = urls.iter().filter(|url| !is_url(url));
        problems.extend(wrong.map(|url| {
            let message = format!("{url}: expected an address like http://127.0.0.1:{port}");
            argument(name, message)
        }));
    }
    let missing = args.dashboards.iter().filter(|path| !path.exists());
    problems.extend(missing.map(|path| {
        let message = format!("{}: no such file or folder", path.display());
        argument("--dashboards", message)
    }));
    (config, problems)
}

/// Nothing can be looked at.
fn refuse(args: &Args, errors: Vec<Problem>) -> anyhow::Result<ExitCode> {
    if args.json {
        let report = Report {
            items: Vec::new(),
            errors,
        };
        super::print(format!("{}\n", report.json()))?;
    } else {
        for Problem { path, message } in &errors {
            // An argument, or a field of the file.
            let place = match path.as_str() {
                "" => args.config.display().to_string(),
                argument if argument.starts_with("--") => argument.to_owned(),
                field => format!("{}: {field}", args.config.display()),
            };
            eprintln!("prefix-picker doctor: {place}: {message}");
        }
    }
    Ok(ExitCode::from(BAD_ARGUMENTS))
}

fn is_url(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| url.scheme() == "http" && url.has_host())
}
