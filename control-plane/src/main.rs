//! `prefix-picker`: see [`prefix_picker::cli`].

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match prefix_picker::cli::run(prefix_picker::cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // The whole chain on one line; never a backtrace, which says nothing to an operator.
            eprintln!("prefix-picker: {error:#}");
            ExitCode::FAILURE
        }
    }
}
