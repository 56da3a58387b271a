//! `prefix-picker serve` and `prefix-picker check`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::config::{Config, ConfigError, LogFormat};
use crate::parts;
use crate::serve::{Serve, unusable_secrets};

/// Exit code for a configuration that is refused.
const BAD_CONFIG: u8 = 2;

/// What both commands take.
#[derive(Debug, clap::Args)]
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

/// Checks a configuration file and all that it names on the disk.
///
/// # Errors
/// Never; what is wrong is printed.
pub fn check(args: &Args) -> anyhow::Result<ExitCode> {
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => return Ok(refuse(args, &error)),
    };
    let mut fine = true;
    for error in unusable_secrets(&config) {
        fine = false;
        eprintln!("{}: {error:#}", args.config.display());
    }
    let mut notes = Vec::new();
    for pool in &config.pools {
        notes.extend(pool.discovery.as_ref().map(|discovery| {
            let (pool, origin) = (&pool.name, discovery.origin());
            format!("pool {pool}: replicas are discovered, by {origin}")
        }));
        match parts::load(pool) {
            Ok(parts) => {
                let obstacles = parts::obstacles(&parts.profile);
                notes.extend(obstacles.map(|(what, why)| {
                    format!(
                        "pool {}: {what} by history, not by events: {why}",
                        pool.name
                    )
                }));
            }
            Err(error) => {
                fine = false;
                eprintln!("{}: {error:#}", args.config.display());
            }
        }
    }
    if !fine {
        return Ok(ExitCode::from(BAD_CONFIG));
    }
    println!(
        "{}: {} pool(s), {} replica(s)",
        args.config.display(),
        config.pools.len(),
        config.replicas().count()
    );
    for note in notes {
        println!("{note}");
    }
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
        // The socket library tells of each connection at info; so do we.
        _ => EnvFilter::try_new(format!("zeromq=warn,{}", config.log_level))?,
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
