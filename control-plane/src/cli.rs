//! The command line.
//!
//! What all commands keep to: results go to standard output, all else to standard error; `--json` prints a
//! result for scripts, with a `schema` that names its form and version; help has examples; and the exit
//! code is 0 where all is fine, 1 where the answer is no or something failed, 2 where arguments, files that
//! they name, or the configuration cannot be used.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory, Parser, Subcommand};

pub mod check;
pub mod completions;
pub mod decode_events;
pub mod doctor;
pub mod drain;
pub mod explain;
mod remote;
pub mod render;
pub mod report;
pub mod serve;
pub mod top;

/// Exit code for arguments or a configuration that cannot be used.
const BAD_ARGUMENTS: u8 = 2;

/// Arguments, or what they name, cannot be used: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unusable(#[from] anyhow::Error);

/// Knows which replica of an LLM holds which prompt prefix, and tells Envoy.
#[derive(Debug, Parser)]
#[command(
    name = "prefix-picker",
    version,
    after_help = "\
Examples:
  prefix-picker check prefix-picker.yaml
  prefix-picker serve --config prefix-picker.yaml
  prefix-picker top

Exit codes of all commands: 0 fine; 1 the answer is no, or it failed; 2 the arguments or the configuration
cannot be used."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send no new requests to a replica; those it is working on end as usual
    Drain(drain::Args),
    /// Send requests to a drained replica again
    Undrain(drain::Args),
    /// Print what a gateway would decide about a request now, and why
    Explain(Box<explain::Args>),
    /// Print what decisions brought, or would have brought in shadow
    Report(report::Args),
    /// Print the KV events of a capture, one JSON object a line
    DecodeEvents(decode_events::Args),
    /// Print the text that a request becomes
    Render(Box<render::Args>),
    /// Look at a running fleet and say, item by item, what is right and what to change
    Doctor(doctor::Args),
    /// Run the control plane
    Serve(serve::Args),
    /// Check a configuration file
    Check(check::Args),
    /// Show the fleet in the terminal, as it is now
    Top(top::Args),
    /// Print a script that completes commands and options in a shell
    Completions(completions::Args),
}

/// Runs one command.
///
/// # Errors
/// What the command could not get past; `main` prints it.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Drain(args) => drain::run(&args, true),
        Command::Undrain(args) => drain::run(&args, false),
        Command::Explain(args) => explain::run(&args),
        Command::Report(args) => report::run(&args),
        Command::DecodeEvents(args) => decode_events::run(&args),
        Command::Render(args) => render::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Check(args) => check::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}

/// What `main` ends with, for what a command could not get past.
#[must_use]
pub fn failure(error: &anyhow::Error) -> ExitCode {
    // The whole chain on one line; never a backtrace, which says nothing to an operator.
    eprintln!("prefix-picker: {}", crate::chain::chain(error.as_ref()));
    if error.is::<Unusable>() {
        ExitCode::from(BAD_ARGUMENTS)
    } else {
        ExitCode::FAILURE
    }
}

/// All commands and options, for help and completions.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Writes all of it to standard output. A reader that goes away, like `head`, is no error.
fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write"),
    }
}

/// What was found of an argument, or that it cannot be used.
fn usable<T>(found: anyhow::Result<T>) -> anyhow::Result<T> {
    found.map_err(|error| Unusable(error).into())
}
