//! A model by its name on the Hugging Face hub -> its folder in the hub's cache on this machine.
//!
//! The cache is where the engines' own library keeps it: `HF_HUB_CACHE`, else `HF_HOME/hub`, else
//! `XDG_CACHE_HOME/huggingface/hub`, else `~/.cache/huggingface/hub`. Nothing is fetched: a model that
//! is not there is an error that says how to get its small files.

use std::path::{Path, PathBuf};

/// What is asked for where no revision is.
const MAIN: &str = "main";

/// A model cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Not a name that the hub could have.
    #[error("{0:?} is no model name: expected org/name")]
    Name(String),
    /// Not a revision that could be one.
    #[error("{0:?} is no revision: expected a branch, a tag or a commit")]
    Revision(String),
    /// The environment does not tell where the cache is.
    #[error(
        "no Hugging Face cache: neither HF_HUB_CACHE, HF_HOME nor HOME is set; set one, or give model_dir"
    )]
    NoCache,
    /// The cache does not have it.
    #[error(
        "{model} (revision {revision}) is not in the Hugging Face cache {}: fetch its small files with `hf download {model} \
         --revision {revision} --exclude '*.safetensors' '*.bin' '*.gguf' '*.pth'`, or give model_dir",
        cache.display()
    )]
    Missing {
        /// The model.
        model: String,
        /// Its revision.
        revision: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
}

/// The folder of a model's snapshot, in the cache that the environment names.
///
/// # Errors
/// If the name is none, or the model is not in the cache.
pub fn resolve(model: &str, revision: Option<&str>) -> Result<PathBuf, HubError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = cache(|name| variable(name).map(PathBuf::from)).ok_or(HubError::NoCache)?;
    resolve_in(&cache, model, revision)
}

/// Where the cache is, by the environment's variables.
fn cache(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| variable("XDG_CACHE_HOME").map(|home| home.join("huggingface").join("hub")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/huggingface/hub")))
}

/// The folder of a model's snapshot in this cache.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_in(cache: &Path, model: &str, revision: Option<&str>) -> Result<PathBuf, HubError> {
    if !is_name(model) {
        return Err(HubError::Name(model.to_owned()));
    }
    let revision = revision.unwrap_or(MAIN);
    if !is_revision(revision) {
        return Err(HubError::Revision(revision.to_owned()));
    }
    let folder = cache.join(format!("models--{}", model.replace('/', "--")));
    // A branch or tag is a file that holds the commit; a commit is the snapshot's own name.
    let commit = std::fs::read_to_string(folder.join("refs").join(revision));
    let commit = commit.map_or_else(|_| revision.to_owned(), |commit| commit.trim().to_owned());
    let snapshot = folder.join("snapshots").join(&commit);
    if is_revision(&commit) && snapshot.is_dir() {
        return Ok(snapshot);
    }
    Err(HubError::Missing {
        model: model.to_owned(),
        revision: revision.to_owned(),
        cache: cache.to_owned(),
    })
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
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_library_has_it() {
        let with = |set: &[(&str, &str)]| {
            cache(|name| {
                let found = set.iter().find(|(known, _)| *known == name)?;
                Some(PathBuf::from(found.1))
            })
        };
        let all = [
            ("HOME", "/home/u"),
            ("XDG_CACHE_HOME", "/x"),
            ("HF_HOME", "/hf"),
            ("HF_HUB_CACHE", "/cache"),
        ];
        let expected = [
            None,
            Some("/home/u/.cache/huggingface/hub"),
            Some("/x/huggingface/hub"),
            Some("/hf/hub"),
            Some("/cache"),
        ];
        for (count, expected) in expected.iter().enumerate() {
            assert_eq!(with(&all[..count]), expected.map(PathBuf::from));
        }
    }

    #[test]
    fn a_revision_leads_to_its_snapshot() {
        let root = std::env::temp_dir().join(format!("prefix-picker-hub-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let folder = root.join("models--org--name");
        std::fs::create_dir_all(folder.join("snapshots/abc")).unwrap();
        std::fs::create_dir_all(folder.join("snapshots/def")).unwrap();
        std::fs::create_dir_all(folder.join("refs/pr")).unwrap();
        std::fs::write(folder.join("refs/main"), "abc\n").unwrap();
        std::fs::write(folder.join("refs/pr/1"), "def").unwrap();
        std::fs::write(folder.join("refs/bad"), "../../..").unwrap();
        let at = |revision: Option<&str>| resolve_in(&root, "org/name", revision);
        assert_eq!(at(None).unwrap(), folder.join("snapshots/abc"));
        assert_eq!(at(Some("pr/1")).unwrap(), folder.join("snapshots/def"));
        assert_eq!(at(Some("def")).unwrap(), folder.join("snapshots/def"));
        let missing = at(Some("v2")).unwrap_err().to_string();
        assert!(
            missing.contains("hf download org/name --revision v2"),
            "{missing}"
        );
        assert!(matches!(at(Some("bad")), Err(HubError::Missing { .. })));
        for revision in ["", "..", "a/../b", "/abs", "a b"] {
            assert!(
                matches!(at(Some(revision)), Err(HubError::Revision(_))),
                "{revision:?}"
            );
        }
        for name in ["", "/", "a/b/c", "../x", "a//b", ".hidden/x", "a--b/c"] {
            let found = resolve_in(&root, name, None);
            assert!(matches!(found, Err(HubError::Name(_))), "{name:?}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
