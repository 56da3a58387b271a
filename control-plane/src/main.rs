//! `prefix-picker`: see [`prefix_picker::cli`].

use std::process::ExitCode;

use clap::Parser;

fn main() -> anyhow::Result<ExitCode> {
    prefix_picker::cli::run(prefix_picker::cli::Cli::parse())
}
