//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod decode_events;
pub mod doctor;
pub mod drain;
pub mod explain;
mod remote;
pub mod render;
pub mod report;
pub mod serve;

/// Exit code for arguments or a configuration that cannot be used.
const BAD_ARGUMENTS: u8 = 2;

/// Knows which replica of an LLM holds which prompt prefix, and tells Envoy.
#[derive(Debug, Parser)]
#[command(name = "prefix-picker", version)]
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
    Check(serve::Args),
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
        Command::Check(args) => serve::check(&args),
    }
}
