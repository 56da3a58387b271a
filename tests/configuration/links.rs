//! Links between documents lead somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// All documents: README.md, docs/, and the READMEs under envoy/.
fn documents() -> Result<Vec<PathBuf>> {
    let root = super::root();
    let mut all = vec![root.join("README.md")];
    for folder in ["docs", "envoy"] {
        gather(&root.join(folder), &mut all)?;
    }
    Ok(all)
}

fn gather(folder: &Path, all: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, all)?;
        } else if path.extension().is_some_and(|end| end == "md") {
            all.push(path);
        }
    }
    Ok(())
}

/// What a link to a heading says, as renderers of Markdown make it of the heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

/// What stands in `](...)`, without links to other hosts.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("](").skip(1);
    let inside = after
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link);
    inside.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace))
}

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for document in documents()? {
        let text = std::fs::read_to_string(&document)?;
        for link in links(&text) {
            tried += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.with_file_name("").join(file),
            };
            let is_document = target.extension().is_some_and(|end| end == "md");
            let there = match std::fs::read_to_string(&target) {
                Ok(text) => heading.is_empty() || !is_document || anchors(&text).contains(heading),
                Err(_) => target.is_dir(),
            };
            if !there {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    ensure!(wrong.is_empty(), "dead links:\n{}", wrong.join("\n"));
    ensure!(tried > 50, "only {tried} links");
    Ok(())
}
