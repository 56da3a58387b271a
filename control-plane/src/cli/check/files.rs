//! The files that a configuration names: are they there? One that is not is told with its field, and keeps
//! nobody from hearing of the others.

use std::fs::File;
use std::path::Path;

use super::Problem;
use crate::chain::chain;
use crate::config::{Config, FleetSecret, KubernetesConfig, PoolConfig, SourceConfig};
use crate::disk;
use crate::serve::read_secret;
use crate::server::auth::Tokens;

/// What is wrong with the files of the whole configuration, without those of pools.
pub(super) fn of_all(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |path: String, message: Result<(), String>| {
        problems.extend(message.err().map(|message| Problem { path, message }));
    };
    let files = [
        ("token_files", &config.token_files),
        ("admin_token_files", &config.admin_token_files),
    ];
    for (field, files) in files {
        for (number, file) in files.iter().enumerate() {
            let opened = Tokens::open(&[], std::slice::from_ref(file));
            let opened = opened.map(|_| ()).map_err(|error| chain(&error));
            add(format!("{field}[{number}]"), opened);
        }
    }
    if let FleetSecret::File(file) = &config.fleet_secret {
        let read = read_secret(file)
            .map(|_| ())
            .map_err(|error| chain(error.as_ref()));
        add("fleet_secret_file".to_owned(), read);
    }
    problems.extend(data_dir(config));
    problems
}

/// Files cannot be kept in `data_dir`.
pub(in crate::cli) fn data_dir(config: &Config) -> Option<Problem> {
    let kept = disk::can_keep_files_in(&config.data_dir);
    let path = "data_dir".to_owned();
    kept.err().map(|message| Problem { path, message })
}

/// A pool's `model_dir` is not there.
pub(in crate::cli) fn model_dir(pool: &PoolConfig, place: &str) -> Option<Problem> {
    let missing = pool.hub.is_none() && !pool.model_dir.is_dir();
    missing.then(|| Problem {
        path: format!("{place}.model_dir"),
        message: format!(
            "{}: no such folder: expected the model's, with its tokenizer and chat template",
            pool.model_dir.display()
        ),
    })
}

/// What is wrong with the files of a pool, by its place in the file.
pub(super) fn of_pool(pool: &PoolConfig, place: &str) -> Vec<Problem> {
    let mut files: Vec<(&str, &Path)> = Vec::new();
    files.extend(
        pool.engine
            .chat_template
            .as_deref()
            .map(|path| ("chat_template", path)),
    );
    files.extend(
        pool.api_key_file
            .as_deref()
            .map(|path| ("api_key_file", path)),
    );
    let source = pool.discovery.as_ref().map(|discovery| &discovery.source);
    if let Some(SourceConfig::Kubernetes(kubernetes)) = source {
        files.extend(of_kubernetes(kubernetes));
    }
    let mut problems: Vec<Problem> = files
        .into_iter()
        .filter_map(|(field, path)| unreadable(&format!("{place}.{field}"), path))
        .collect();
    problems.extend(model_dir(pool, place));
    problems
}

fn of_kubernetes(config: &KubernetesConfig) -> impl Iterator<Item = (&str, &Path)> {
    let named = [
        ("discovery.kubernetes.kubeconfig", &config.kubeconfig),
        ("discovery.kubernetes.token_file", &config.token_file),
        ("discovery.kubernetes.ca_file", &config.ca_file),
    ];
    named
        .into_iter()
        .filter_map(|(field, path)| Some((field, path.as_deref()?)))
}

fn unreadable(field: &str, path: &Path) -> Option<Problem> {
    let error = match File::open(path).and_then(|file| file.metadata()) {
        Ok(about) if about.is_file() => return None,
        Ok(_) => "expected a file".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    Some(Problem {
        path: field.to_owned(),
        message: format!("{}: {error}", path.display()),
    })
}
