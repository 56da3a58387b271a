//! `prefix-picker render`: the text that a request becomes, without an engine and without Envoy.
//!
//! Two ways: a template alone over a file of conversations (to compare with Python), or one request
//! with a model's folder (to see what the gateway hashes, and why not if it does not).
//! Standard output holds the result and nothing else; remarks go to standard error.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::BAD_ARGUMENTS;

mod conversations;
mod model;
mod report;
mod request;
mod time;

/// Arguments of `render`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker render --model-dir models/demo --path /v1/chat/completions --request body.json
  prefix-picker render --config prefix-picker.yaml --pool chat --path /v1/messages --request - --json
  prefix-picker render --template chat_template.jinja --conversations conversations.jsonl --sha256

Exit codes: 0 printed (conversations that fail print `error` and do not count); 1 the request has no exact
prompt (the reason is on standard error; with --json it is in the output, and the exit code is 0), or the
output cannot be written; 2 the arguments, a file or the configuration cannot be used.")]
pub struct Args {
    /// A chat template (Jinja2 source) to render conversations with
    #[arg(long, value_name = "T.jinja", requires = "conversations", conflicts_with_all = [
        "model_dir", "model", "revision", "config", "pool", "tokenizer_mode", "vllm_version", "path", "request", "json",
        "secret_file", "lora",
    ])]
    template: Option<PathBuf>,
    /// Conversations, one JSON object a line: `messages`, `tools`, `kwargs`; they go to the template
    /// as they are. `-` is standard input. Prints one line a conversation: the text as a JSON string,
    /// or `error`
    #[arg(long, value_name = "FILE.jsonl", requires = "template")]
    conversations: Option<PathBuf>,
    /// Print the first 32 hex digits of the text's SHA-256 instead
    #[arg(long, requires = "template")]
    sha256: bool,
    /// The engine's local time, like 2026-11-29T18:00:00, for templates that print the date.
    /// Default: now, in UTC or in the pool's utc_offset
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    now: Option<i64>,
    #[command(flatten)]
    model: model::Args,
    #[command(flatten)]
    request: request::Args,
}

/// Renders.
///
/// # Errors
/// Where a file cannot be read or is broken, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let (Some(template), Some(conversations)) = (&args.template, &args.conversations) {
        let now = args.now.unwrap_or_else(time::now);
        return conversations::run(template, conversations, args.sha256, now);
    }
    if args.conversations.is_none() && args.request.path.is_none() {
        return Ok(refuse(
            "nothing to render: give --template and --conversations, or --model-dir, --path and --request \
             (see --help)",
        ));
    }
    request::run(&args.model, &args.request, args.now)
}

/// Says what is wrong with the arguments.
fn refuse(what: &str) -> ExitCode {
    eprintln!("prefix-picker render: {what}");
    ExitCode::from(BAD_ARGUMENTS)
}

/// A file's bytes; `-` is standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        let read = io::Read::read_to_end(&mut io::stdin().lock(), &mut bytes);
        super::usable(read.context(name(path)))?;
        return Ok(bytes);
    }
    super::usable(std::fs::read(path).with_context(|| format!("cannot read {}", path.display())))
}

/// What a file is called in messages.
fn name(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}
