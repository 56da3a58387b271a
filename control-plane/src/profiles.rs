//! A model's folder -> its prompt profile and its vocabulary.
//!
//! The folder is the one that the engine serves, or a copy of its small files: `tokenizer.json`
//! (or `tekken.json`, or a tiktoken file), `tokenizer_config.json`, `special_tokens_map.json`,
//! `chat_template.jinja`, `additional_chat_templates/`, `chat_template.json`, `config.json`.
//!
//! Whatever is not known to be reproduced exactly makes that kind of request
//! [`Capability::PredictedOnly`], with a reason for people. It is never guessed: a wrong text would
//! silently match nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prefix_picker_core::prompt::{Canonical, CanonicalStep, Capability, Profile, Renderer};

use crate::vocab::tokenizer_json::TokenizerJson;
use crate::vocab::{Vocab, VocabError};

mod canonical;
mod engine;
mod files;
mod media;
mod pieces;
mod post_processor;
mod rebuilt;
mod templates;
mod tokenizer_config;

use engine::Rendering;
use files::Folder;
use templates::Templates;
use tokenizer_config::TokenizerConfig;

/// What a model's folder holds for us.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    /// How the model's requests become text. `model` is the folder's name; the caller may know
    /// better.
    pub profile: Profile,
    /// What its token ids stand for.
    pub vocab: Vocab,
    /// The file of each chat template, by the name that
    /// [`ProfileError`](prefix_picker_core::prompt::ProfileError) has for it. Not of one that the
    /// caller brought.
    pub template_files: BTreeMap<String, PathBuf>,
}

/// A model's folder could not be used at all.
#[derive(Debug, thiserror::Error)]
pub enum ProfileLoadError {
    /// A file or the folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// Why it cannot.
        source: std::io::Error,
    },
    /// A file is not the JSON that it should be.
    #[error("{} is not the JSON that it should be", path.display())]
    Json {
        /// Which file.
        path: PathBuf,
        /// Where and what.
        source: serde_json::Error,
    },
    /// A file's JSON is not of the shape it should have.
    #[error("{}: {what}", path.display())]
    Shape {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The vocabulary cannot be used.
    #[error("{}: no vocabulary can be made of it", path.display())]
    Vocab {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: VocabError,
    },
    /// No vocabulary.
    #[error("{}: no tokenizer.json, tekken.json, tiktoken.model or *.tiktoken in it", path.display())]
    NoTokenizer {
        /// The folder.
        path: PathBuf,
    },
}

/// The engine's `--tokenizer-mode`, which decides who renders and tokenises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TokenizerMode {
    /// As vLLM finds it out from the folder.
    #[default]
    Auto,
    /// Hugging Face's tokenizer and template, whatever else the folder holds.
    Hf,
    /// Mistral's own library.
    Mistral,
    /// DeepSeek V3.2's code renders chats.
    DeepseekV32,
    /// DeepSeek V4's.
    DeepseekV4,
    /// DeepSeek V4.1's.
    DeepseekV41,
    /// Code that we do not know renders chats; the mode's name.
    Code(&'static str),
}

impl TokenizerMode {
    /// All modes by vLLM's names (vLLM 0.32: `tokenizers/registry.py`, `renderers/registry.py`).
    pub const NAMES: [(&'static str, Self); 10] = [
        ("auto", Self::Auto),
        ("hf", Self::Hf),
        ("mistral", Self::Mistral),
        ("deepseek_v32", Self::DeepseekV32),
        ("deepseek_v4", Self::DeepseekV4),
        ("deepseek_v41", Self::DeepseekV41),
        ("cohere", Self::Code("cohere")),
        ("inkling", Self::Code("inkling")),
        ("kimi_audio", Self::Code("kimi_audio")),
        ("kimi_k3", Self::Code("kimi_k3")),
    ];

    /// The mode of vLLM's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, mode)| *mode)
    }
}

/// Loads a folder for an engine that runs with default options.
///
/// # Errors
/// If a file is broken, or there is no usable vocabulary.
pub fn load_model_dir(dir: &Path) -> Result<ModelFiles, ProfileLoadError> {
    load_model_dir_as(dir, TokenizerMode::Auto)
}

/// Loads a folder for an engine that runs with this `--tokenizer-mode`.
///
/// # Errors
/// As [`load_model_dir`].
pub fn load_model_dir_as(dir: &Path, mode: TokenizerMode) -> Result<ModelFiles, ProfileLoadError> {
    load_model_dir_with(dir, mode, None)
}

/// Loads a folder for an engine that runs with this `--tokenizer-mode` and, if given, the text of
/// this `--chat-template`, which takes the place of all that the folder has (vLLM 0.32:
/// `renderers/hf.py`, `resolve_chat_template`).
///
/// # Errors
/// As [`load_model_dir`].
pub fn load_model_dir_with(
    dir: &Path,
    mode: TokenizerMode,
    chat_template: Option<String>,
) -> Result<ModelFiles, ProfileLoadError> {
    let folder = Folder::open(dir)?;
    let config = TokenizerConfig::read(&folder)?;
    let templates = match chat_template {
        Some(text) => Templates::only(text),
        None => Templates::read(&folder, &config)?,
    };
    let tokenizer = Tokenizer::read(&folder, &config, mode)?;

    let mut profile = Profile {
        model: folder.name(),
        ..Profile::default()
    };
    profile.special_tokens.clone_from(&config.special_tokens);
    profile.canonical = tokenizer.canonical;
    profile.canonical.completions_prefix = tokenizer.prefix.clone().unwrap_or_default();
    profile.completions = capability([tokenizer.text_obstacle.clone(), tokenizer.prefix.err()]);
    let chat_obstacle = match engine::rendering(&folder, mode)? {
        Rendering::By(Renderer::Template) => {
            let untold = engine::untold_harmony(&folder, &tokenizer.vocab)?;
            untold.or_else(|| templates.obstacle(&config))
        }
        Rendering::By(renderer) => {
            profile.renderer = renderer;
            None
        }
        Rendering::Unknown(why) => Some(why),
    };
    profile.chat = capability([tokenizer.text_obstacle, chat_obstacle]);
    profile.chat_template = templates.default;
    profile.named_templates = templates.named;
    profile.media_placeholders = media::placeholders(&folder, &tokenizer.vocab)?;
    let files = templates.files.into_iter();
    let files = files.map(|(name, file)| (name, folder.file(&file)));
    Ok(ModelFiles {
        profile,
        vocab: tokenizer.vocab,
        template_files: files.collect(),
    })
}

/// Exact, unless something stands in the way: then the first that does.
fn capability(obstacles: impl IntoIterator<Item = Option<String>>) -> Capability {
    match obstacles.into_iter().flatten().next() {
        None => Capability::Exact,
        Some(why) => Capability::PredictedOnly { why },
    }
}

/// What the tokenizer's file says, whatever its kind.
struct Tokenizer {
    vocab: Vocab,
    canonical: Canonical,
    /// What keeps text from being reproduced at all.
    text_obstacle: Option<String>,
    /// Text before completions' prompts, or why it is not known.
    prefix: Result<String, String>,
}

impl Tokenizer {
    fn read(
        folder: &Folder,
        config: &TokenizerConfig,
        mode: TokenizerMode,
    ) -> Result<Self, ProfileLoadError> {
        let tekken_first = mode == TokenizerMode::Mistral || !folder.has("tokenizer.json");
        if tekken_first && let Some(json) = folder.bytes("tekken.json")? {
            return Self::tekken(folder, &json);
        }
        if let Some(json) = folder.bytes("tokenizer.json")? {
            return Self::hugging_face(folder, &json, config);
        }
        if let Some(name) = folder.tiktoken_file() {
            return Self::tiktoken(folder, &name, config);
        }
        Err(ProfileLoadError::NoTokenizer {
            path: folder.path().to_owned(),
        })
    }

    fn hugging_face(
        folder: &Folder,
        json: &[u8],
        config: &TokenizerConfig,
    ) -> Result<Self, ProfileLoadError> {
        let fail = |source| ProfileLoadError::Vocab {
            path: folder.file("tokenizer.json"),
            source,
        };
        let mut tokenizer = TokenizerJson::parse(json).map_err(fail)?;
        let style = tokenizer.style().map_err(fail)?;
        let missing = config.tokens_missing_in(&tokenizer);
        let texts: BTreeMap<u32, String> = missing
            .iter()
            .map(|token| (token.id, token.content.clone()))
            .collect();
        let vocab = tokenizer.vocab(&texts).map_err(fail)?;
        let rebuilt = rebuilt::as_the_engine_has_it(folder, config, style, &mut tokenizer)?;
        let derived = match rebuilt {
            None => canonical::derive(&tokenizer, style, &missing, config),
            Some(why) => Err(why),
        };
        let (canonical, text_obstacle) = match derived {
            Ok(canonical) => (canonical, None),
            Err(why) => (Canonical::default(), Some(why)),
        };
        let prefix = post_processor::prefix(&tokenizer.post_processor, &vocab)
            .and_then(|prefix| config.check_prefix(prefix));
        Ok(Self {
            vocab,
            canonical,
            text_obstacle,
            prefix,
        })
    }

    /// Mistral's tokenizer changes nothing in text, and puts its BOS before completions.
    fn tekken(folder: &Folder, json: &[u8]) -> Result<Self, ProfileLoadError> {
        let vocab = Vocab::from_tekken_json(json).map_err(|source| ProfileLoadError::Vocab {
            path: folder.file("tekken.json"),
            source,
        })?;
        let prefix = Ok("<s>".to_owned());
        Ok(Self {
            vocab,
            canonical: Canonical::default(),
            text_obstacle: None,
            prefix,
        })
    }

    /// tiktoken files come with Python code of the model's own; what that does to text is known for
    /// Moonshot's and for the first Qwen's.
    fn tiktoken(
        folder: &Folder,
        name: &str,
        config: &TokenizerConfig,
    ) -> Result<Self, ProfileLoadError> {
        let text = folder.text(name)?.unwrap_or_default();
        let class = config.tokenizer_class.as_deref().unwrap_or("none");
        let mut specials: BTreeMap<u32, String> = config
            .added_tokens
            .iter()
            .map(|token| (token.id, token.content.clone()))
            .collect();
        let mut steps = Vec::new();
        if class == "QWenTokenizer" {
            specials = first_qwen_specials();
            // Of the whole text, special tokens and all.
            steps.push(CanonicalStep::Nfc);
        }
        let vocab =
            Vocab::from_tiktoken(&text, &specials).map_err(|source| ProfileLoadError::Vocab {
                path: folder.file(name),
                source,
            })?;
        let text_obstacle = if specials.is_empty() {
            Some(
                "tokenizer_config.json lists no added_tokens_decoder: special tokens are unknown"
                    .to_owned(),
            )
        } else if class == "QWenTokenizer" && vocab.bytes(FIRST_QWEN_SPECIAL - 1).is_none() {
            Some("the vocabulary is not that of the first Qwen".to_owned())
        } else if matches!(class, "TikTokenTokenizer" | "QWenTokenizer") {
            None
        } else {
            Some(format!(
                "the tokenizer class {class} is Python code of the model's own"
            ))
        };
        Ok(Self {
            vocab,
            canonical: Canonical {
                steps,
                ..Canonical::default()
            },
            text_obstacle,
            prefix: Ok(String::new()),
        })
    }
}

/// The first special token of the first Qwen's tokenizer.
const FIRST_QWEN_SPECIAL: u32 = 151_643;

/// Special tokens of the first Qwen (`tokenization_qwen.py` beside its `qwen.tiktoken`).
fn first_qwen_specials() -> BTreeMap<u32, String> {
    let named = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    let extra = (0..205).map(|number| format!("<|extra_{number}|>"));
    (FIRST_QWEN_SPECIAL..)
        .zip(named.into_iter().chain(extra))
        .collect()
}

#[cfg(test)]
mod tests;
