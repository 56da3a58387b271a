//! `prefix-picker check`: all that is wrong with a configuration file and what it names.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

pub(super) mod files;

use super::BAD_ARGUMENTS;
use crate::chain::chain;
use crate::config::{Config, FieldError, PoolConfig};
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
    /// The configuration file (YAML); `-` is standard input
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

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self {
            path: error.path,
            message: error.message,
        }
    }
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
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    match text {
        Ok(text) => {
            let (config, errors) = Config::parse_partly(&text);
            found.errors = errors.into_iter().map(Problem::from).collect();
            if let Some(config) = config {
                look_at_files(&config, &mut found);
            }
        }
        Err(error) => found.errors.push(Problem {
            path: String::new(),
            message: format!("cannot be read: {error}"),
        }),
    }
    found.ok = found.errors.is_empty();
    found
}

/// The files that it names, also where other fields are wrong: all errors are told at once.
fn look_at_files(config: &Config, found: &mut Found) {
    found.pools = config.pools.len();
    found.replicas = config.replicas().count();
    let wrong: Vec<String> = found.errors.iter().map(|e| e.path.clone()).collect();
    let is_wrong = |path: &str| wrong.iter().any(|wrong| wrong == path);
    let mut more = files::of_all(config);
    for (number, pool) in config.pools.iter().enumerate() {
        let place = format!("pools[{number}]");
        if is_wrong(&place) {
            continue;
        }
        let missing = files::of_pool(pool, &place);
        // What is loaded depends on all of a pool's fields but these.
        let others = ["replicas", "discovery"].map(|field| format!("{place}.{field}"));
        let loads = missing.is_empty()
            && !wrong.iter().any(|wrong| {
                wrong.starts_with(&place) && !others.iter().any(|other| wrong.starts_with(other))
            });
        more.extend(missing);
        found.notes.extend(pool.discovery.as_ref().map(|discovery| {
            let (pool, by) = (&pool.name, discovery.described());
            format!("pool {pool}: replicas are discovered: {by}")
        }));
        if loads {
            match of_model(pool) {
                Ok(notes) => found.notes.extend(notes),
                Err(message) => more.push(Problem {
                    path: place,
                    message,
                }),
            }
        }
    }
    // Where a field is wrong, what stands in its place was not asked for.
    more.retain(|error| !is_wrong(&error.path));
    found.errors.extend(more);
}

/// Loads what a pool's prompts are made with. Returns what works less well with it, or what is wrong.
fn of_model(pool: &PoolConfig) -> Result<Vec<String>, String> {
    let parts = parts::load(pool).map_err(|error| chain(error.as_ref()))?;
    let name = &pool.name;
    let obstacles = parts::obstacles(&parts.profile);
    let said = obstacles
        .map(|(what, why)| format!("pool {name}: {what} by history, not by events: {why}"));
    Ok(said.collect())
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
