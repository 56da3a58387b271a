//! Reads the files of a model's folder, where they exist.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ProfileLoadError;
use crate::hub::names_on_hub;

/// A model's folder and the names in it.
pub(super) struct Folder {
    path: PathBuf,
    names: Vec<String>,
}

impl Folder {
    /// Opens a folder, or the snapshot of a model that stands in a Hugging Face cache under it
    /// (`models--org--name`, with `refs/main` and `snapshots/`).
    pub(super) fn open(path: &Path) -> Result<Self, ProfileLoadError> {
        let snapshot = snapshot(path)?;
        let path = snapshot.as_deref().unwrap_or(path);
        let mut names = names_in(path).map_err(|source| ProfileLoadError::Read {
            path: path.to_owned(),
            source,
        })?;
        // What was not fetched, weights above all: their names tell how the engine loads the model.
        names.extend(names_on_hub(path));
        names.sort();
        names.dedup();
        Ok(Self {
            path: path.to_owned(),
            names,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder's name; for a Hugging Face cache (`models--org--name/snapshots/hash`) the model's.
    pub(super) fn name(&self) -> String {
        let parts = self.path.iter().rev().filter_map(|part| part.to_str());
        let cached = parts
            .clone()
            .find_map(|part| part.strip_prefix("models--"))
            .map(|name| name.replace("--", "/"));
        cached
            .or_else(|| parts.map(str::to_owned).next())
            .unwrap_or_default()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Whether there is a file of such a beginning and end.
    pub(super) fn has_like(&self, beginning: &str, end: &str) -> bool {
        self.names
            .iter()
            .any(|name| name.starts_with(beginning) && name.ends_with(end))
    }

    pub(super) fn tiktoken_file(&self) -> Option<String> {
        let known = self.names.iter().find(|name| *name == "tiktoken.model");
        known
            .or_else(|| self.names.iter().find(|name| name.ends_with(".tiktoken")))
            .cloned()
    }

    pub(super) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, ProfileLoadError> {
        optional(std::fs::read(self.file(name)), || self.file(name))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ProfileLoadError> {
        optional(std::fs::read_to_string(self.file(name)), || self.file(name))
    }

    pub(super) fn json(&self, name: &str) -> Result<Option<Value>, ProfileLoadError> {
        let Some(text) = self.bytes(name)? else {
            return Ok(None);
        };
        let json = serde_json::from_slice(&text);
        json.map(Some).map_err(|source| ProfileLoadError::Json {
            path: self.file(name),
            source,
        })
    }

    /// Every `*.jinja` in a folder below, by its name without the ending, sorted.
    pub(super) fn jinja_files(
        &self,
        below: &str,
    ) -> Result<Vec<(String, String)>, ProfileLoadError> {
        let folder = self.file(below);
        let names = optional(names_in(&folder), || folder.clone())?.unwrap_or_default();
        let mut found = Vec::new();
        for name in names {
            let Some(stem) = name.strip_suffix(".jinja") else {
                continue;
            };
            if let Some(text) = self.text(&format!("{below}/{name}"))? {
                found.push((stem.to_owned(), text));
            }
        }
        Ok(found)
    }
}

/// Where the files are, if this is a model's folder in a Hugging Face cache: the snapshot that
/// `refs/main` names, or else the only one.
fn snapshot(path: &Path) -> Result<Option<PathBuf>, ProfileLoadError> {
    let cached = path
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("models--"));
    let below = path.join("snapshots");
    if !cached || !below.is_dir() {
        return Ok(None);
    }
    let main = path.join("refs").join("main");
    let main = optional(std::fs::read_to_string(&main), || main.clone())?;
    // A name and nothing that leads elsewhere.
    let main = main.map(|name| name.trim().to_owned());
    if let Some(name) = main.filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric())) {
        let named = below.join(&name);
        if !name.is_empty() && named.is_dir() {
            return Ok(Some(named));
        }
    }
    let names = names_in(&below).map_err(|source| ProfileLoadError::Read {
        path: below.clone(),
        source,
    })?;
    match names.as_slice() {
        [only] => Ok(Some(below.join(only))),
        _ => Err(ProfileLoadError::Shape {
            path: below,
            what: format!(
                "{} snapshots, and refs/main names none of them: give the snapshot's own folder",
                names.len()
            ),
        }),
    }
}

/// Names in a folder that are UTF-8, sorted.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// A missing file is no error.
fn optional<T>(
    read: io::Result<T>,
    path: impl FnOnce() -> PathBuf,
) -> Result<Option<T>, ProfileLoadError> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(source) => Err(ProfileLoadError::Read {
            path: path(),
            source,
        }),
    }
}
