//! A template over a file of conversations.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use prefix_picker_core::prompt::{BareTemplate, Skip};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Digits printed of a digest.
const DIGEST_BYTES: usize = 16;

/// One line a conversation.
pub(super) fn run(
    template: &Path,
    conversations: &Path,
    sha256: bool,
    now: i64,
) -> anyhow::Result<ExitCode> {
    let source = String::from_utf8(super::read(template)?)
        .with_context(|| format!("{} is not UTF-8", template.display()));
    let source = crate::cli::usable(source)?;
    let compiled = BareTemplate::compile(&source).with_context(|| template.display().to_string());
    let template = crate::cli::usable(compiled)?;
    let mut out = Vec::new();
    let file = super::name(conversations);
    let lines = super::read(conversations)?;
    for (number, line) in lines.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match template.render(line, now) {
            Ok(text) if sha256 => {
                let digest = Sha256::digest(text.as_bytes());
                let head = digest.get(..DIGEST_BYTES).unwrap_or_default();
                out.extend_from_slice(hex::encode(head).as_bytes());
            }
            Ok(text) => serde_json::to_writer(&mut out, &text)?,
            Err(skip) => {
                let failure = template.failure(line, now);
                eprintln!("{file}, line {}{}", number + 1, why(line, skip, failure));
                out.extend_from_slice(b"error");
            }
        }
        out.push(b'\n');
    }
    crate::cli::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Where in its line a conversation is wrong, and how.
fn why(line: &[u8], skip: Skip, failure: Option<String>) -> String {
    let conversation: Value = match serde_json::from_slice(line) {
        Ok(conversation) => conversation,
        Err(error) => {
            let column = error.column();
            let what = error.to_string();
            // It goes on with its own line, which is always the first.
            let what = what.split(" at line ").next().unwrap_or_default();
            return format!(", column {column}: {what}");
        }
    };
    let what = match skip {
        Skip::InvalidRequest if !conversation.is_object() => "expected an object",
        Skip::InvalidRequest if conversation.get("messages").is_none_or(Value::is_null) => {
            "`messages` is missing"
        }
        Skip::InvalidRequest => "`messages`: expected a list",
        _ => skip.explain(),
    };
    match failure {
        Some(said) => format!(": {what}: {said}"),
        None => format!(": {what}"),
    }
}
