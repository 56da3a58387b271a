//! Why a model cannot be had, and what to do.

use std::path::PathBuf;

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
    /// The hub must not be asked, and the cache does not have it.
    #[error(
        "{model} (revision {revision}) is not in the Hugging Face cache {}, and HF_HUB_OFFLINE is set: unset it, or fetch \
         the small files with `hf download {model} --revision {revision} --exclude '*.safetensors' '*.bin' '*.gguf' \
         '*.pth'`, or give model_dir",
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
    /// The hub does not give it.
    #[error("{url}: {status}: {}", advice(*status))]
    Refused {
        /// What was asked for.
        url: String,
        /// The answer's status.
        status: u16,
    },
    /// No answer, or none in time, or one that says to come again.
    #[error(
        "{url}: {what}: check the network, or set HF_ENDPOINT if there is a mirror, or mount a folder with the model's \
         small files and give model_dir"
    )]
    Unreachable {
        /// What was asked for.
        url: String,
        /// What happened.
        what: String,
    },
    /// An answer that is none of a hub.
    #[error("{url}: {what}: is HF_ENDPOINT a Hugging Face hub?")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// A file that no tokenizer is as large as.
    #[error("{url}: more than {max} bytes: give model_dir, if the model does need this file")]
    TooLarge {
        /// The file.
        url: String,
        /// Most bytes that are fetched.
        max: u64,
    },
    /// The cache cannot be written.
    #[error(
        "cannot write {} (set HF_HUB_CACHE or HF_HOME to a folder that can be written)",
        path.display()
    )]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// Why it cannot.
        source: std::io::Error,
    },
}

/// The hub says 401, not 404, to those without a token, whether a model is there or not.
fn advice(status: u16) -> &'static str {
    match status {
        401 => "no such model, or it needs a token: check the name, and set HF_TOKEN",
        403 => "the token may not read this model: accept its terms on the hub, and check HF_TOKEN",
        404 => "no such model or revision: check both",
        _ => "the hub refuses",
    }
}
