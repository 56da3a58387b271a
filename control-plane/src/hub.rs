//! A model by its name on the Hugging Face hub -> the folder of its small files.
//!
//! The hub (`HF_ENDPOINT`, with `HF_TOKEN`) says which files a revision has; those that a profile is
//! made of are fetched into the cache where the engines' own library keeps them: `HF_HUB_CACHE`, else
//! `HF_HOME/hub`, else `XDG_CACHE_HOME/huggingface/hub`, else `~/.cache/huggingface/hub`. Weights are
//! never fetched, but the list of names is kept, since they tell how the engine loads the model. What
//! the cache has already is not asked for again, and is what counts where the hub cannot be reached or
//! must not be (`HF_HUB_OFFLINE`).

use std::path::{Path, PathBuf};
use std::time::Duration;

mod error;
mod fetch;
mod transfer;

pub use error::HubError;

/// What is asked for where no revision is.
const MAIN: &str = "main";

/// The hub, where the environment names no other.
const ENDPOINT: &str = "https://huggingface.co";

/// How long the hub may take to begin an answer. A file's content may take ten times as long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Largest file that is fetched. The largest `tokenizer.json` of a public model has 35 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Where models come from.
struct Hub {
    cache: PathBuf,
    endpoint: String,
    token: Option<String>,
    /// Take what the cache has, ask nobody.
    offline: bool,
    patience: Duration,
    file_bytes_max: u64,
}

/// A checked name and revision.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    model: &'a str,
    revision: &'a str,
}

/// The folder of a model's snapshot, by the hub and the cache that the environment names. Blocks, for
/// as long as the hub takes.
///
/// # Errors
/// If the name is none, the hub has no such model or does not give it, or the hub cannot be reached
/// and the model is not in the cache.
pub fn resolve(model: &str, revision: Option<&str>) -> Result<PathBuf, HubError> {
    let hub = Hub::of(|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    hub.ok_or(HubError::NoCache)?.resolve(model, revision)
}

impl Hub {
    /// By the environment's variables, under the names of Hugging Face's own library.
    fn of(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Self> {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let text = |name: &str| variable(name)?.into_string().ok();
        let home = home(path);
        let token_file = || {
            let file = path("HF_TOKEN_PATH").or_else(|| Some(home.as_ref()?.join("token")))?;
            std::fs::read_to_string(file).ok()
        };
        let token = text("HF_TOKEN").or_else(token_file);
        let token = token.map(|token| token.trim().to_owned());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let on = |value: String| matches!(&*value.to_uppercase(), "1" | "ON" | "YES" | "TRUE");
        Some(Self {
            cache: path("HF_HUB_CACHE").or_else(|| Some(home.as_ref()?.join("hub")))?,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.filter(|token| !token.is_empty()),
            offline: text("HF_HUB_OFFLINE").is_some_and(on),
            patience: PATIENCE,
            file_bytes_max: FILE_BYTES_MAX,
        })
    }

    fn resolve(&self, model: &str, revision: Option<&str>) -> Result<PathBuf, HubError> {
        if !is_name(model) {
            return Err(HubError::Name(model.to_owned()));
        }
        let revision = revision.unwrap_or(MAIN);
        if !is_revision(revision) {
            return Err(HubError::Revision(revision.to_owned()));
        }
        let wanted = Wanted { model, revision };
        if self.offline {
            return self.cached(wanted).ok_or_else(|| self.missing(wanted));
        }
        let found = fetch::fetch(self, wanted);
        if let Err(error @ HubError::Unreachable { .. }) = &found
            && let Some(snapshot) = self.cached(wanted)
        {
            tracing::warn!(%error, snapshot = %snapshot.display(), "taking the model from the cache");
            return Ok(snapshot);
        }
        found
    }

    /// Where the cache has the model.
    fn folder(&self, wanted: Wanted<'_>) -> PathBuf {
        let name = wanted.model.replace('/', "--");
        self.cache.join(format!("models--{name}"))
    }

    fn missing(&self, wanted: Wanted<'_>) -> HubError {
        HubError::Missing {
            model: wanted.model.to_owned(),
            revision: wanted.revision.to_owned(),
            cache: self.cache.clone(),
        }
    }

    /// The snapshot that the cache has, if it is whole as far as one can know.
    fn cached(&self, wanted: Wanted<'_>) -> Option<PathBuf> {
        let Wanted { model, revision } = wanted;
        let folder = self
            .cache
            .join(format!("models--{}", model.replace('/', "--")));
        // A branch or tag is a file that holds the commit; a commit is the snapshot's own name.
        let commit = std::fs::read_to_string(folder.join("refs").join(revision));
        let commit = commit.map_or_else(|_| revision.to_owned(), |commit| commit.trim().to_owned());
        let snapshot = folder.join("snapshots").join(&commit);
        let here = is_revision(&commit) && snapshot.is_dir();
        (here && fetch::is_whole(&snapshot)).then_some(snapshot)
    }
}

/// Where Hugging Face's library keeps its things.
fn home(path: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    path("HF_HOME")
        .or_else(|| path("XDG_CACHE_HOME").map(|home| home.join("huggingface")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/huggingface")))
}

/// The names of all files that the hub has for a snapshot of the cache, the weights' among them, if
/// they were written down when it was fetched.
pub(crate) fn names_on_hub(snapshot: &Path) -> Vec<String> {
    let text = list_file(snapshot).and_then(|path| std::fs::read_to_string(path).ok());
    let names = text.as_deref().unwrap_or_default().lines();
    names.map(str::to_owned).collect()
}

/// `models--org--name/.prefix-picker/COMMIT` of `models--org--name/snapshots/COMMIT`.
fn list_file(snapshot: &Path) -> Option<PathBuf> {
    let below = snapshot.parent()?;
    let folder = below.parent().filter(|_| below.ends_with("snapshots"))?;
    Some(folder.join(".prefix-picker").join(snapshot.file_name()?))
}

/// `org/name`, or the bare name of an old model.
fn is_name(model: &str) -> bool {
    let parts: Vec<&str> = model.split('/').collect();
    parts.len() <= 2 && parts.iter().all(|part| is_part(part)) && !model.contains("--")
}

/// A branch may have folders in its name; nothing may lead out of the cache.
fn is_revision(revision: &str) -> bool {
    revision.len() <= 256 && revision.split('/').all(is_part)
}

fn is_part(part: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !part.is_empty() && part.len() <= 128 && !part.starts_with('.') && part.bytes().all(fine)
}

#[cfg(test)]
mod tests;
