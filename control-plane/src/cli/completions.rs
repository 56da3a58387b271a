//! `prefix-picker completions`: for the shells that can complete.

use std::process::ExitCode;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker completions bash > /etc/bash_completion.d/prefix-picker
  prefix-picker completions zsh > \"${fpath[1]}/_prefix-picker\"
  prefix-picker completions fish > ~/.config/fish/completions/prefix-picker.fish

Exit codes: 0 printed; 1 it cannot be written; 2 there is no such shell.")]
pub struct Args {
    /// Which shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the script.
///
/// # Errors
/// If standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut super::command(),
        "prefix-picker",
        &mut script,
    );
    super::print(script)?;
    Ok(ExitCode::SUCCESS)
}
