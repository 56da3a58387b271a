//! `prefix-picker serve`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use super::check::files;
use crate::config::{Config, ConfigError, LogFormat};
use crate::serve::Serve;

/// Exit code for a configuration that is refused.
const BAD_CONFIG: u8 = 2;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker serve --config prefix-picker.yaml
  RUST_LOG=debug prefix-picker serve --config prefix-picker.yaml

Logs go to standard error. SIGTERM and SIGINT end it, after a last snapshot.

Exit codes: 0 stopped as asked; 1 it cannot start, or failed; 2 the configuration cannot be used (see
`prefix-picker check`).")]
pub struct Args {
    /// The configuration file (YAML)
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs the control plane until SIGTERM or SIGINT.
///
/// # Errors
/// If it cannot start, or fails.
pub fn serve(args: &Args) -> anyhow::Result<ExitCode> {
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => return Ok(refuse(args, &error)),
    };
    let mut missing: Vec<_> = files::data_dir(&config).into_iter().collect();
    for (number, pool) in config.pools.iter().enumerate() {
        missing.extend(files::model_dir(pool, &format!("pools[{number}]")));
    }
    for problem in &missing {
        let (path, message) = (&problem.path, &problem.message);
        eprintln!("{}: {path}: {message}", args.config.display());
    }
    if !missing.is_empty() {
        return Ok(ExitCode::from(BAD_CONFIG));
    }
    log_to_stderr(&config)?;
    // Few cores are no reason to let one slow step hold up all the others.
    let workers = std::thread::available_parallelism().map_or(4, |cores| cores.get().max(4));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Before anything else, so that a stop during the start is heeded as well.
        let stop = stop_signal()?;
        Serve::open(config).await?.run(stop).await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn refuse(args: &Args, error: &ConfigError) -> ExitCode {
    match error {
        ConfigError::Unreadable { source, .. } => eprintln!("{error}: {source}"),
        ConfigError::Invalid(_) => eprintln!("{}: {error}", args.config.display()),
    }
    ExitCode::from(BAD_CONFIG)
}

fn log_to_stderr(config: &Config) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => EnvFilter::try_new(filter)?,
        // The socket library tells of each connection at info; so do we. The Kubernetes client logs every
        // failure, with all of what cannot be parsed: pods' environments; the DNS client each odd answer. What
        // failed is told by us.
        _ => EnvFilter::try_new(format!(
            "zeromq=warn,kube_client=off,hickory_net=off,rustls_platform_verifier=off,{}",
            config.log_level
        ))?,
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
