//! Where programs are, and how an installation differs from the shipped one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Where programs and files are.
#[derive(Debug, Clone)]
pub struct Places {
    /// The repository.
    pub root: PathBuf,
    /// The built programs (`target/release`).
    pub bin: PathBuf,
    /// The compiled filter.
    pub wasm: PathBuf,
    /// The filter that only buffers (benchmarks).
    pub buffer_wasm: PathBuf,
    /// Envoy.
    pub envoy: PathBuf,
}

impl Places {
    /// From the environment: `ENVOY`, and `CARGO_TARGET_DIR` if it is not `target`.
    ///
    /// # Errors
    /// Something is not there; says which `make` target builds it.
    pub fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("the repository's root")?
            .to_owned();
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |d| root.join(d));
        let envoy = std::env::var_os("ENVOY")
            .context("ENVOY is not set (make e2e sets it, by tools/envoy.sh)")?;
        let wasm = target.join("wasm32-wasip1/wasm");
        let places = Self {
            bin: target.join("release"),
            wasm: wasm.join("prefix_picker_filter.wasm"),
            buffer_wasm: wasm.join("buffer_filter.wasm"),
            envoy: envoy.into(),
            root,
        };
        for file in [
            &places.bin.join("prefix-picker"),
            &places.bin.join("engine-sim"),
            &places.wasm,
            &places.envoy,
        ] {
            if !file.exists() {
                bail!("{} is not there: run make build", file.display());
            }
        }
        Ok(places)
    }
}

/// A stretch to be taken out of Envoy's file.
#[derive(Debug, Clone)]
pub struct Cut {
    /// Where it begins (taken out too).
    pub from: String,
    /// Where it ends (stays).
    pub until: String,
}

/// How an installation differs from the shipped one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Further arguments of each simulated engine.
    pub engine_args: Vec<String>,
    /// What to leave out of Envoy's file; each must be found.
    pub envoy_cuts: Vec<Cut>,
    /// Another file of Envoy than `envoy/envoy.yaml`, from the repository's root.
    pub envoy_file: Option<PathBuf>,
    /// Edits of Envoy's file, `(from, to)`; each must be found.
    pub envoy_edits: Vec<(String, String)>,
    /// Edits of the control plane's file, `(from, to)`; each must be found.
    pub control_plane_edits: Vec<(String, String)>,
    /// Top-level lines of the control plane's file, in place of what it says under the same name.
    pub control_plane_lines: Vec<String>,
    /// Another control-plane file than `envoy/prefix-picker.yaml`.
    pub control_plane_file: Option<PathBuf>,
    /// Engines run by somebody else: `(HTTP, events, replay)` ports. Empty: three simulated ones.
    pub external_engines: Vec<(u16, u16, u16)>,
    /// No control plane at all.
    pub no_control_plane: bool,
    /// Simulated engines beyond the three shipped ones.
    pub more_engines: usize,
    /// The last so many engines are configured, but not started: [`super::Stack::restart_engine`] does.
    pub late_engines: usize,
}

impl Options {
    /// The same without the filter and its control plane: Envoy's own least-request decides. The
    /// baseline that picks are held against.
    #[must_use]
    pub fn least_request(mut self) -> Self {
        let cut = |from: &str, until: &str| Cut {
            from: from.to_owned(),
            until: until.to_owned(),
        };
        self.no_control_plane = true;
        self.envoy_cuts.push(cut(
            "          - name: prefix-picker\n",
            "          - name: envoy.filters.http.router",
        ));
        self.envoy_cuts.push(cut(
            "    load_balancing_policy:\n",
            "    circuit_breakers:\n",
        ));
        self.envoy_edits.push((
            "    circuit_breakers:\n".to_owned(),
            "    lb_policy: LEAST_REQUEST\n    circuit_breakers:\n".to_owned(),
        ));
        self
    }
}

/// `text` with a copy of each line of the third shipped engine for every engine beyond: `(HTTP, events,
/// replay)` ports.
pub(super) fn add_engines(text: &str, beyond: &[(u16, u16, u16)]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        lines.push(line.to_owned());
        if !line.contains("8103") {
            continue;
        }
        for (number, (http, events, replay)) in (4..).zip(beyond) {
            let line = line.replace("8103", &http.to_string());
            let line = line.replace("5561", &events.to_string());
            let line = line.replace("5562", &replay.to_string());
            lines.push(line.replace("engine-3", &format!("engine-{number}")));
        }
    }
    lines.join("\n")
}

/// `text` without the cuts and with the edits of Envoy's file.
pub(super) fn edit(text: &str, options: &Options) -> Result<String> {
    let mut text = text.to_owned();
    for Cut { from, until } in &options.envoy_cuts {
        let start = text
            .find(from)
            .with_context(|| format!("Envoy's file has no {from:?} any more"))?;
        let length = text.get(start..).and_then(|t| t.find(until));
        let length = length
            .with_context(|| format!("Envoy's file has no {until:?} after {from:?} any more"))?;
        text.replace_range(start..start + length, "");
    }
    replace(&text, &options.envoy_edits)
}

/// `text` with all edits; each must be found.
pub(super) fn replace(text: &str, edits: &[(String, String)]) -> Result<String> {
    let mut text = text.to_owned();
    for (from, to) in edits {
        if !text.contains(from) {
            bail!("the shipped file has no {from:?} any more");
        }
        text = text.replace(from, to);
    }
    Ok(text)
}
