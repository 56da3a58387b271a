//! What is written about the project is true of it: docs/configuration.md is made of the documented fields in the source, and a field that is documented
//! is one that the programs take, with the default that it says.
//!
//! `UPDATE_DOCS=1 cargo test -p prefix-picker-tests --test configuration` writes the file anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use prefix_picker::config::{Config, ConfigError};

mod links;
mod source;

use source::{Field, fields};

const FILE: &str = "docs/configuration.md";

/// One table of the page.
struct Section {
    title: &'static str,
    text: &'static str,
    /// Files and the structs in them whose fields stand here.
    structs: &'static [(&'static str, &'static str)],
}

const FILTER: &str = "\
The filter's configuration is a JSON object in the plugin's `configuration`, in Envoy's own
([envoy/envoy.yaml](../envoy/envoy.yaml) has one in its place). Unknown fields are refused, and Envoy's log says all
that is wrong. Models, replicas and hashing come from the control plane, or from `standalone`.";
const CONTROL_PLANE: &str = "\
The control plane's configuration is one YAML file, [envoy/prefix-picker.yaml](../envoy/prefix-picker.yaml) for example.
`prefix-picker check FILE` tells all that is wrong with one. Unknown fields are refused. Relative paths are relative to the
working directory.";

const CONFIG: &str = "control-plane/src/config.rs";
const DISCOVERY: &str = "control-plane/src/config/discovery.rs";

const SECTIONS: &[Section] = &[
    Section {
        title: "The filter",
        text: FILTER,
        structs: &[("filter/src/config.rs", "Raw")],
    },
    Section {
        title: "`control_plane`",
        text: "",
        structs: &[("filter/src/config.rs", "RawControlPlane")],
    },
    Section {
        title: "`standalone`",
        text: "What it does is in [operations](operations.md#standalone).",
        structs: &[("filter/src/standalone.rs", "Raw")],
    },
    Section {
        title: "`standalone.pools[]`",
        text: "",
        structs: &[("filter/src/standalone.rs", "RawPool")],
    },
    Section {
        title: "`standalone.pools[].replicas[]`",
        text: "",
        structs: &[("filter/src/standalone.rs", "RawReplica")],
    },
    Section {
        title: "The control plane",
        text: CONTROL_PLANE,
        structs: &[(CONFIG, "Config")],
    },
    Section {
        title: "`pools[]`",
        text: "The replicas of one base model. The fields named as flags or variables of vLLM must say what the engines' \
               command lines say.",
        structs: &[
            (CONFIG, "PoolConfig"),
            ("control-plane/src/config/flags.rs", "EngineFlags"),
        ],
    },
    Section {
        title: "`pools[].replicas[]`",
        text: "One engine, or one data-parallel rank of it.",
        structs: &[(CONFIG, "ReplicaConfig")],
    },
    Section {
        title: "`pools[].discovery`",
        text: "Replicas that come and go, besides those of `replicas`; see [operations](operations.md#discovery).",
        structs: &[(DISCOVERY, "DiscoveryConfig")],
    },
    Section {
        title: "`pools[].discovery.dns`",
        text: "Every address of a name is an engine.",
        structs: &[(DISCOVERY, "DnsConfig")],
    },
    Section {
        title: "`pools[].discovery.kubernetes`",
        text: "Every pod that matches is an engine.",
        structs: &[(DISCOVERY, "KubernetesConfig")],
    },
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn fields_of(section: &Section) -> Result<Vec<Field>> {
    let mut all = Vec::new();
    for (file, name) in section.structs {
        let text = std::fs::read_to_string(root().join(file))?;
        all.extend(fields(&text, name).with_context(|| format!("{name} in {file}"))?);
    }
    Ok(all)
}

fn page() -> Result<String> {
    let mut page = String::from(
        "# Configuration\n\nMade of the documented fields in the source (`tests/configuration`): change them there.\n",
    );
    for section in SECTIONS {
        write!(page, "\n## {}\n\n", section.title)?;
        if !section.text.is_empty() {
            write!(page, "{}\n\n", section.text)?;
        }
        page.push_str("| field | default | meaning |\n|---|---|---|\n");
        for field in fields_of(section)? {
            let names: Vec<_> = field.names.iter().map(|name| format!("`{name}`")).collect();
            let cell = |text: &str| text.replace('|', "\\|");
            writeln!(
                page,
                "| {} | {} | {} |",
                names.join(", "),
                cell(&field.default),
                cell(&field.meaning)
            )?;
        }
    }
    Ok(page)
}

#[test]
fn the_page_is_what_the_source_says() -> Result<()> {
    let page = page()?;
    let file = root().join(FILE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page)?;
    }
    let there = std::fs::read_to_string(&file)?;
    ensure!(
        there == page,
        "{FILE} is not what the source says: UPDATE_DOCS=1 cargo test -p prefix-picker-tests --test configuration"
    );
    Ok(())
}

/// The least that is a configuration, with further lines at one of its three levels.
fn yaml(top: &str, pool: &str, replica: &str) -> String {
    let replicas = "  replicas:\n  - endpoint: 127.0.0.1:8000\n    events: tcp://127.0.0.1:5557\n";
    format!(
        "tokens: [t]\ndata_dir: d\n{top}pools:\n- name: p\n  model_dir: m\n  models: [a]\n  clusters: [c]\n{pool}{replicas}{replica}"
    )
}

fn at_level(level: usize, line: &str) -> String {
    match level {
        0 => yaml(&format!("{line}\n"), "", ""),
        1 => yaml("", &format!("  {line}\n"), ""),
        _ => yaml("", "", &format!("    {line}\n")),
    }
}

/// The names that the program itself lists when it meets an unknown one.
fn known(level: usize) -> Result<BTreeSet<String>> {
    let error = match Config::parse(&at_level(level, "qqqqqqqqqqqqqqqq: 1")) {
        Err(ConfigError::Invalid(errors)) => errors,
        other => anyhow::bail!("{other:?}"),
    };
    let message = error.first().context("an error")?.message.clone();
    let (_, names) = message.split_once("known are ").context(message.clone())?;
    Ok(names.split(", ").map(str::to_owned).collect())
}

fn section(title: &str) -> Result<&'static Section> {
    let found = SECTIONS.iter().find(|section| section.title == title);
    found.context("no such section")
}

const LEVELS: [&str; 3] = ["The control plane", "`pools[]`", "`pools[].replicas[]`"];

#[test]
fn every_field_is_documented_and_no_other() -> Result<()> {
    for (level, title) in LEVELS.into_iter().enumerate() {
        let documented = fields_of(section(title)?)?;
        let documented: BTreeSet<String> = documented.into_iter().flat_map(|f| f.names).collect();
        let known = known(level)?;
        let missing: Vec<_> = known.difference(&documented).collect();
        ensure!(missing.is_empty(), "{title}: not documented: {missing:?}");
        let wrong: Vec<_> = documented.difference(&known).collect();
        ensure!(
            wrong.is_empty(),
            "{title}: documented, not known: {wrong:?}"
        );
    }
    Ok(())
}

/// A default that is one literal: a number, or what is in the backquotes of "`x`" or "`x`: why".
fn literal(default: &str) -> Option<&str> {
    if default.bytes().all(|b| b.is_ascii_digit() || b == b',') && !default.is_empty() {
        return Some(default);
    }
    let (literal, rest) = default.strip_prefix('`')?.split_once('`')?;
    let alone = rest.is_empty() || rest.starts_with([':', ';']);
    (alone && !literal.contains('<')).then_some(literal)
}

#[test]
fn saying_a_default_changes_nothing() -> Result<()> {
    let mut tried = 0;
    for (level, title) in LEVELS.into_iter().enumerate() {
        for field in fields_of(section(title)?)? {
            let Some(literal) = literal(&field.default) else {
                continue;
            };
            let plain = Config::parse(&yaml("", "", ""))?;
            for name in &field.names {
                // Words as YAML has them, and numbers as people write them.
                let value = match literal.replace(',', "").parse::<u64>() {
                    Ok(number) => number.to_string(),
                    Err(_) if matches!(literal, "true" | "false") => literal.to_owned(),
                    Err(_) => format!("{literal:?}"),
                };
                let said = Config::parse(&at_level(level, &format!("{name}: {value}")));
                let said = said.with_context(|| format!("{title} {name}: {value}"))?;
                ensure!(said == plain, "{title} {name}: the default is not {value}");
                tried += 1;
            }
        }
    }
    ensure!(tried >= 20, "only {tried} defaults are literals");
    Ok(())
}
