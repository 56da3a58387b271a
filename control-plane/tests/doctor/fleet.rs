//! Engines, the configuration that belongs to them, and what doctor says.

use std::path::{Path, PathBuf};

use engine_sim::{Config as EngineConfig, Engine};
use prefix_picker::config::Config;
use prefix_picker::doctor::{Item, Options, Report, Status, examine};

/// A folder that is gone when dropped.
pub(crate) struct Temp(pub(crate) PathBuf);

impl Temp {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("prefix-picker-doctor-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A fleet of two engines.
pub(crate) struct Fleet {
    pub(crate) engines: Vec<Engine>,
    pub(crate) model_dir: PathBuf,
    /// Further lines of each replica.
    pub(crate) replica: String,
    pub(crate) state: Temp,
}

impl Fleet {
    /// Both engines as they should be, but for what `edit` says of the second one.
    pub(crate) fn start(name: &str, edit: impl FnOnce(&mut EngineConfig)) -> Self {
        let mut second = healthy("b");
        edit(&mut second);
        let engines = [healthy("a"), second].map(|config| engine_sim::spawn(config).unwrap());
        Self {
            engines: engines.into(),
            model_dir: engine_sim::model_dir(),
            replica: String::new(),
            state: Temp::new(name),
        }
    }

    /// The control plane's configuration. Where an engine has no socket, it names a port that nobody has.
    pub(crate) fn yaml(&self) -> String {
        let nobody = || Some(format!("tcp://127.0.0.1:{}", free_port()));
        let replicas = self.engines.iter().map(|engine| {
            let events = engine.events_endpoint().or_else(nobody).unwrap();
            let replay = engine.replay_endpoint().or_else(nobody).unwrap();
            format!(
                "  - {{name: {}, endpoint: '{}', events: '{events}', replay: '{replay}'{}}}\n",
                engine.name(),
                engine.addr(),
                self.replica
            )
        });
        format!(
            "listen: 127.0.0.1:{}\ntokens: [a-token]\ndata_dir: {}\npools:\n- name: demo\n  model_dir: {}\n  models: [sim]\n  \
             clusters: [pool]\n  replicas:\n{}",
            free_port(),
            self.state.0.join("data").display(),
            self.model_dir.display(),
            replicas.collect::<String>()
        )
    }

    pub(crate) fn config(&self) -> Config {
        Config::parse(&self.yaml()).unwrap()
    }

    /// What doctor says of the engines.
    pub(crate) fn doctor(&self) -> Report {
        run(&self.config(), &Options::default())
    }
}

/// An engine with all that doctor asks for.
pub(crate) fn healthy(name: &str) -> EngineConfig {
    EngineConfig {
        name: name.to_owned(),
        force_include_usage: true,
        ..EngineConfig::default()
    }
}

pub(crate) fn run(config: &Config, options: &Options) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let report = runtime.block_on(examine(config, options)).unwrap();
    well_formed(&report);
    report
}

/// Each item says what was found, and each fault what to do.
pub(crate) fn well_formed(report: &Report) {
    for item in &report.items {
        let is_fault = matches!(item.status, Status::Fail | Status::Warn);
        let ends = |text: &str| text.trim_end().ends_with(':');
        assert!(
            !item.subject.trim().is_empty() && !item.found.trim().is_empty() && !ends(&item.found),
            "{item:?}"
        );
        assert!(!is_fault || !item.fix.trim().is_empty(), "{item:?}");
    }
}

/// A port for one who will listen there, or for nobody.
pub(crate) fn free_port() -> u16 {
    held_ports::Held::new(1).unwrap().keep()[0]
}

/// Serves pages for ever. Returns their address.
pub(crate) fn serve(runtime: &tokio::runtime::Runtime, app: axum::Router) -> String {
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("[::1]:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}")
}

/// The model's folder with one file changed.
pub(crate) fn model_with(dir: &Path, file: &str, edit: impl FnOnce(String) -> String) -> PathBuf {
    let to = dir.join("model");
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(engine_sim::model_dir()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    let text = std::fs::read_to_string(to.join(file)).unwrap();
    std::fs::write(to.join(file), edit(text)).unwrap();
    to
}

/// What is said under an id of a subject.
pub(crate) fn item<'a>(report: &'a Report, id: &str, subject: &str) -> &'a Item {
    let mut all = report.items.iter();
    all.find(|item| item.id == id && item.subject == subject)
        .unwrap_or_else(|| panic!("no {id} of {subject}: {}", report.text(false)))
}

/// The items of ids that begin so which are neither ok nor skipped.
pub(crate) fn faults<'a>(report: &'a Report, prefixes: &[&str]) -> Vec<&'a Item> {
    well_formed(report);
    let is_fault = |item: &&Item| {
        matches!(item.status, Status::Fail | Status::Warn)
            && prefixes.iter().any(|prefix| item.id.starts_with(prefix))
    };
    report.items.iter().filter(is_fault).collect()
}

/// Exactly these faults, in order: id, subject, status, words of what was found, words of the cure.
pub(crate) fn expect(
    report: &Report,
    prefixes: &[&str],
    expected: &[(&str, &str, Status, &str, &str)],
) {
    let found = faults(report, prefixes);
    let told = || report.text(false);
    assert_eq!(found.len(), expected.len(), "{}", told());
    for (item, (id, subject, status, fault, cure)) in found.iter().zip(expected) {
        assert_eq!(
            (item.id, item.subject.as_str(), item.status),
            (*id, *subject, *status),
            "{}",
            told()
        );
        assert!(item.found.contains(fault), "{fault:?} is not in {item:?}");
        assert!(item.fix.contains(cure), "{cure:?} is not in {item:?}");
    }
}
