//! `prefix-picker check`: all that is wrong with a configuration file and what it names.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

pub(super) mod files;

use super::BAD_ARGUMENTS;
use super::chain::chain;
use crate::config::{Config, ConfigError};
use crate::parts;

/// The form of `--json`. A field that is added keeps it; one that changes or goes does not.
pub const SCHEMA: &str = "prefix-picker.check/1";

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker check prefix-picker.yaml
  prefix-picker check prefix-picker.yaml --json

Reads the model folders, templates and secrets that the file names, too. Nothing is listened on and no
engine is asked: `prefix-picker doctor` does that.

Exit codes: 0 it can be used; 2 it cannot: each error has the field's path, what was found and what was
expected.")]
pub struct Args {
    /// The configuration file (YAML)
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The same
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Print what was found as JSON (`prefix-picker.check/1`)
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Found {
    schema: &'static str,
    file: String,
    ok: bool,
    errors: Vec<Problem>,
    /// What works, but not as well as it could.
    notes: Vec<String>,
    pools: usize,
    /// Those that are listed in the file.
    replicas: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Problem {
    /// The field, like `pools[0].models`; empty for the file as a whole.
    pub(super) path: String,
    pub(super) message: String,
}

/// Checks and prints.
///
/// # Errors
/// If standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = args.file.as_deref().or(args.config.as_deref());
    let file = file.unwrap_or(Path::new(""));
    let found = look(file);
    if args.json {
        super::print(format!("{}\n", serde_json::to_string(&found)?))?;
    } else {
        say(&found)?;
    }
    Ok(if found.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BAD_ARGUMENTS)
    })
}

fn look(file: &Path) -> Found {
    let mut found = Found {
        schema: SCHEMA,
        file: file.display().to_string(),
        ok: true,
        errors: Vec::new(),
        notes: Vec::new(),
        pools: 0,
        replicas: 0,
    };
    let whole = |message: String| Problem {
        path: String::new(),
        message,
    };
    match Config::load(file) {
        Ok(config) => {
            found.pools = config.pools.len();
            found.replicas = config.replicas().count();
            let mut errors = files::of_all(&config);
            for (number, pool) in config.pools.iter().enumerate() {
                let place = format!("pools[{number}]");
                let missing = files::of_pool(pool, &place);
                let complete = missing.is_empty();
                errors.extend(missing);
                found.notes.extend(pool.discovery.as_ref().map(|discovery| {
                    let (pool, by) = (&pool.name, discovery.described());
                    format!("pool {pool}: replicas are discovered: {by}")
                }));
                if !complete {
                    continue;
                }
                match parts::load(pool) {
                    Ok(parts) => {
                        found
                            .notes
                            .extend(parts::obstacles(&parts.profile).map(|(what, why)| {
                                format!(
                                    "pool {}: {what} by history, not by events: {why}",
                                    pool.name
                                )
                            }))
                    }
                    Err(error) => errors.push(Problem {
                        path: place,
                        message: chain(&error),
                    }),
                }
            }
            found.errors = errors;
        }
        Err(ConfigError::Invalid(errors)) => {
            let problems = errors.into_iter().map(|error| Problem {
                path: error.path,
                message: error.message,
            });
            found.errors = problems.collect();
        }
        Err(ConfigError::Unreadable { source, .. }) => {
            found.errors = vec![whole(format!("cannot be read: {source}"))];
        }
    }
    found.ok = found.errors.is_empty();
    found
}

fn say(found: &Found) -> anyhow::Result<()> {
    let Found { file, .. } = found;
    for Problem { path, message } in &found.errors {
        let path = Some(path).filter(|path| !path.is_empty());
        let path = path.map(|path| format!("{path}: ")).unwrap_or_default();
        eprintln!("{file}: {path}{message}");
    }
    if !found.ok {
        return Ok(());
    }
    super::print(format!(
        "{file}: {} pool(s), {} replica(s)\n",
        found.pools, found.replicas
    ))?;
    for note in &found.notes {
        super::print(format!("{note}\n"))?;
    }
    Ok(())
}
