//! A template over a file of conversations.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use prefix_picker_core::prompt::BareTemplate;
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
        .with_context(|| format!("{} is not UTF-8", template.display()))?;
    let template =
        BareTemplate::compile(&source).with_context(|| template.display().to_string())?;
    let mut out = Vec::new();
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
            Err(why) => {
                eprintln!("line {}: {}", number + 1, why.explain());
                out.extend_from_slice(b"error");
            }
        }
        out.push(b'\n');
    }
    super::print(&out)?;
    Ok(ExitCode::SUCCESS)
}
