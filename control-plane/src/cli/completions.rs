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
    if args.shell == clap_complete::Shell::Bash {
        script = with_one_name(&script);
    }
    super::print(script)?;
    Ok(ExitCode::SUCCESS)
}

/// For a program with a hyphen in its name clap_complete 4.6 looks commands up by another name than it files
/// them under (clap issue 6421), so that nothing is completed after a command.
fn with_one_name(script: &[u8]) -> Vec<u8> {
    let script = String::from_utf8_lossy(script);
    let script = script.replace("prefix__subcmd__picker", "prefix__picker");
    script.into_bytes()
}
