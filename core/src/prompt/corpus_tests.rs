//! Every chat template of the shared corpus against Hugging Face's own renders.
//!
//! The templates belong to their publishers, so that they are read from beside the checkout
//! (`../shared/data/chat-templates`); where that is not there, the test says so and passes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::BareTemplate;
use super::template::Template;

/// 2026-11-29 18:00:00, the clock that the expected renders were pinned to.
const NOW_UNIX_S: i64 = 1_795_975_200;

fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/chat-templates");
    let found = folder.is_dir().then_some(folder);
    if found.is_none() {
        eprintln!("skipped: ../shared/data/chat-templates is not here");
    }
    found
}

#[derive(Default)]
struct Count {
    /// Python renders it, and we give the same bytes.
    equal: usize,
    /// Python renders it, and we give other bytes.
    differ: Vec<usize>,
    /// Python renders it, and we fail.
    failed: Vec<usize>,
    /// Python refuses it, and we render: harmless, since the engine answers 400.
    lenient: usize,
    /// Both refuse.
    refused: usize,
}

fn check(template: &BareTemplate, conversations: &str, expected: &str) -> Count {
    let mut count = Count::default();
    let lines = conversations.lines().zip(expected.lines());
    for (n, (conversation, expected)) in lines.enumerate() {
        let rendered = template.render(conversation.as_bytes(), NOW_UNIX_S);
        match (rendered, expected) {
            (Ok(_), "error") => count.lenient += 1,
            (Err(_), "error") => count.refused += 1,
            (Err(_), _) => count.failed.push(n),
            (Ok(text), expected) => {
                let digest = Sha256::digest(text.as_bytes());
                let hex: String = digest.iter().take(16).map(|b| format!("{b:02x}")).collect();
                if hex == expected {
                    count.equal += 1;
                } else {
                    count.differ.push(n);
                }
            }
        }
    }
    count
}

#[test]
fn templates_render_as_in_python() {
    let Some(folder) = corpus() else { return };
    let conversations = fs::read_to_string(folder.join("conversations.jsonl")).unwrap();
    let mut names: Vec<_> = fs::read_dir(folder.join("templates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    let (mut perfect, mut equal, mut lenient, mut wrong) = (0, 0, 0, Vec::new());
    for path in &names {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = fs::read_to_string(path).unwrap();
        let expected = fs::read_to_string(folder.join(format!("expected/{name}.txt"))).unwrap();
        assert_eq!(
            expected.lines().count(),
            conversations.lines().count(),
            "{name}"
        );
        let count = match BareTemplate::compile(&source) {
            Ok(template) => check(&template, &conversations, &expected),
            Err(error) => {
                wrong.push(format!("{name}: does not compile: {error}"));
                continue;
            }
        };
        equal += count.equal;
        lenient += count.lenient;
        if count.differ.is_empty() && count.failed.is_empty() {
            perfect += 1;
        } else {
            let Count {
                equal,
                differ,
                failed,
                ..
            } = count;
            wrong.push(format!(
                "{name}: {equal} equal, {} differ {:?}, {} fail {:?}",
                differ.len(),
                differ.first(),
                failed.len(),
                failed.first(),
            ));
        }
    }
    println!(
        "{perfect} of {} templates perfect; {equal} renders equal; {lenient} where Python refuses",
        names.len()
    );
    for line in &wrong {
        println!("  {line}");
    }
    assert!(
        wrong.is_empty(),
        "{} templates differ from Python",
        wrong.len()
    );
}

/// `tests/vectors/prompt-chat/content-format.json` is what vLLM 0.32's own detection says.
#[test]
fn content_format_is_what_vllm_detects() {
    let Some(folder) = corpus() else { return };
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/vectors/prompt-chat/content-format.json");
    let expected: BTreeMap<String, String> =
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(expected.len(), 98);
    for (name, format) in expected {
        let source = fs::read_to_string(folder.join(format!("templates/{name}.jinja"))).unwrap();
        let template = Template::compile(&source).unwrap();
        assert_eq!(template.takes_parts, format == "openai", "{name}");
    }
}
