//! Brings the small files of a model's revision into the cache, in the layout of Hugging Face's library.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::transfer::{self, File, Transfer};
use super::{Hub, HubError, Wanted, is_part, list_file, names_on_hub};

/// Files at the top that a profile may be made of (`crate::profiles`).
const FILES: [&str; 10] = [
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "qwen.tiktoken",
    "special_tokens_map.json",
    "tekken.json",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// Folders whose templates it may be made of.
const FOLDERS: [&str; 2] = ["additional_chat_templates", "chat_templates"];

/// Most files of a revision that are fetched.
const FILES_MAX: usize = 64;

/// Largest list of files that is read.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// Most names that are kept. A model of a thousand shards has a thousand.
const NAMES_MAX: usize = 16_384;

/// Whether a profile may be made of a file, by its path in the repository.
fn is_read(path: &str) -> bool {
    match path.split_once('/') {
        None => FILES.contains(&path) || (path.ends_with(".tiktoken") && is_part(path)),
        Some((folder, name)) => {
            FOLDERS.contains(&folder) && name.ends_with(".jinja") && is_part(name)
        }
    }
}

/// Those of a revision's files that a profile may be made of.
fn needed<'a>(names: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    names.filter(|name| is_read(name)).take(FILES_MAX)
}

/// Whether a snapshot has all that its list says. One without a list is another program's.
pub(super) fn is_whole(snapshot: &Path) -> bool {
    let names = names_on_hub(snapshot);
    needed(names.iter().map(String::as_str)).all(|name| snapshot.join(name).is_file())
}

/// What the hub says of a revision.
#[derive(Debug, Deserialize)]
struct Info {
    /// The commit that it stands for.
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    /// A file's path in the repository.
    rfilename: String,
}

/// The folder of the revision's snapshot, with all files that the hub has for it.
pub(super) fn fetch(hub: &Hub, wanted: Wanted<'_>) -> Result<PathBuf, HubError> {
    let transfer = Transfer::new(hub);
    let info = info(hub, wanted, &transfer)?;
    let snapshot = hub.folder(wanted).join("snapshots").join(&info.sha);
    let names: Vec<&str> = info
        .siblings
        .iter()
        .map(|file| &*file.rfilename)
        .filter(|name| !name.contains(['\n', '\r']))
        .take(NAMES_MAX)
        .collect();
    let missing: Vec<&str> = needed(names.iter().copied())
        .filter(|name| !snapshot.join(name).is_file())
        .collect();
    keep_list(&snapshot, &names, missing.is_empty())?;
    for name in missing {
        // Of the commit that was asked about, even if the branch moves meanwhile.
        let (endpoint, model, commit) = (&hub.endpoint, wanted.model, &info.sha);
        let file = transfer.file(&format!("{endpoint}/{model}/resolve/{commit}/{name}"))?;
        store(&hub.folder(wanted), &file, &snapshot.join(name))?;
    }
    keep_ref(hub, wanted, &info.sha)?;
    Ok(snapshot)
}

/// The commit that the revision stands for, and its files.
fn info(hub: &Hub, wanted: Wanted<'_>, transfer: &Transfer<'_>) -> Result<Info, HubError> {
    let revision = wanted.revision.replace('/', "%2F");
    let (endpoint, model) = (&hub.endpoint, wanted.model);
    let url = format!("{endpoint}/api/models/{model}/revision/{revision}");
    let answer = transfer.bytes(&url, LIST_BYTES_MAX)?;
    let what = match serde_json::from_slice::<Info>(&answer) {
        Ok(info) if is_part(&info.sha) => return Ok(info),
        Ok(info) => format!("{:?} is no commit", info.sha),
        Err(error) => error.to_string(),
    };
    Err(HubError::Answer { url, what })
}

/// Writes the list of names down, before any file: what is missing of it can then be told.
fn keep_list(snapshot: &Path, names: &[&str], whole: bool) -> Result<(), HubError> {
    if names_on_hub(snapshot) == names {
        return Ok(());
    }
    let Some(path) = list_file(snapshot) else {
        return Ok(());
    };
    match transfer::write(&path, names.join("\n").as_bytes()) {
        // A cache that cannot be written, and need not be.
        Err(_) if whole => Ok(()),
        other => other,
    }
}

/// Puts a file where the cache has it: its content under its tag, and a link from the snapshot.
fn store(folder: &Path, file: &File, pointer: &Path) -> Result<(), HubError> {
    let blob = folder.join("blobs").join(&file.tag);
    transfer::write(&blob, &file.content)?;
    transfer::link(&blob, pointer)
}

/// Notes which commit a branch or tag stands for, once its files are there.
fn keep_ref(hub: &Hub, wanted: Wanted<'_>, commit: &str) -> Result<(), HubError> {
    let known = hub
        .cached(wanted)
        .is_some_and(|known| known.ends_with(commit));
    if known || wanted.revision == commit {
        return Ok(());
    }
    let path = hub.folder(wanted).join("refs").join(wanted.revision);
    transfer::write(&path, commit.as_bytes())
}
