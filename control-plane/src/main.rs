//! `prefix-picker`: see [`prefix_picker::cli`].

use std::process::ExitCode;

use clap::Parser;

/// Static binaries: musl's own takes more than twice as long, and the more the more threads there are.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match prefix_picker::cli::run(prefix_picker::cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => prefix_picker::cli::failure(&error),
    }
}
