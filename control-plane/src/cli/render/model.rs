//! Where the profile comes from: a model's folder, or a pool of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use prefix_picker_core::prompt::{CompiledProfile, Profile, Rules};

use crate::config::{Config, ConfigError, is_version};
use crate::parts;
use crate::profiles::{TokenizerMode, load_model_dir_as};

/// Arguments that choose it.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// The model's folder: tokenizer and chat template
    #[arg(long, value_name = "DIR")]
    pub(super) model_dir: Option<PathBuf>,
    /// The model by its name on the Hugging Face hub: its small files are fetched, unless cached
    #[arg(long, value_name = "ORG/NAME", conflicts_with = "model_dir")]
    model: Option<String>,
    /// Its branch, tag or commit. Default: main
    #[arg(long, value_name = "REVISION", requires = "model")]
    revision: Option<String>,
    /// Take the model's folder and the engines' flags from a pool of this configuration (--pool,
    /// unless it has but one)
    #[arg(long, value_name = "FILE.yaml", conflicts_with_all = ["model_dir", "model"])]
    pub(super) config: Option<PathBuf>,
    /// The pool's name, part of every block hash. Default with --model-dir: `default`
    #[arg(long, value_name = "NAME")]
    pub(super) pool: Option<String>,
    /// The engines' --tokenizer-mode: auto, hf, mistral, deepseek_v32, ...
    #[arg(long, value_name = "MODE", value_parser = tokenizer_mode, conflicts_with = "config")]
    pub(super) tokenizer_mode: Option<TokenizerMode>,
    /// The engines' version as /version tells it, like 0.32.0. Default: the newest known
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(super) vllm_version: Option<String>,
}

fn tokenizer_mode(name: &str) -> Result<TokenizerMode, String> {
    TokenizerMode::from_name(name).ok_or_else(|| {
        let names = TokenizerMode::NAMES.map(|(name, _)| name);
        format!("expected one of {}", names.join(", "))
    })
}

fn version(text: &str) -> Result<String, String> {
    let fine = is_version(text).then(|| text.to_owned());
    fine.ok_or_else(|| "expected a version like 0.11.2".to_owned())
}

/// What is wrong with the choice.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelError {
    /// The arguments or the configuration cannot be used.
    #[error("{0}")]
    Arguments(String),
    /// A file cannot be read or is broken.
    #[error(transparent)]
    Files(#[from] anyhow::Error),
}

/// The pool's name and the profile, compiled.
pub(super) fn load(args: &Args) -> Result<(String, CompiledProfile), ModelError> {
    let dir = match (&args.model_dir, &args.model) {
        (Some(dir), _) => Some(dir.clone()),
        (None, Some(model)) => {
            let found = crate::hub::resolve(model, args.revision.as_deref());
            Some(found.context("--model cannot be used")?)
        }
        (None, None) => None,
    };
    let mut template_files = BTreeMap::new();
    let (pool, mut profile) = match (dir, &args.config) {
        (Some(dir), _) => {
            let mode = args.tokenizer_mode.unwrap_or_default();
            let files = load_model_dir_as(&dir, mode)
                .with_context(|| format!("model folder {} cannot be used", dir.display()))?;
            let pool = args.pool.clone().unwrap_or_else(|| "default".to_owned());
            template_files = files.template_files;
            (pool, files.profile)
        }
        (None, Some(_)) => of_config(args)?,
        (None, None) => {
            return Err(ModelError::Arguments(
                "no model: give --model-dir DIR, --model ORG/NAME, or --config prefix-picker.yaml"
                    .to_owned(),
            ));
        }
    };
    if let Some(version) = &args.vllm_version {
        profile.rules = Rules::of_version(version);
    }
    let compiled = CompiledProfile::compile(&profile)
        .map_err(|error| parts::broken_template(&template_files, error))?;
    Ok((pool, compiled))
}

fn of_config(args: &Args) -> Result<(String, Profile), ModelError> {
    let path = args.config.as_deref().unwrap_or(std::path::Path::new(""));
    let config = Config::load(path).map_err(|error| {
        ModelError::Arguments(match &error {
            ConfigError::Unreadable { source, .. } => format!("{error}: {source}"),
            ConfigError::Invalid(_) => format!("{}: {error}", path.display()),
        })
    })?;
    let names: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    let found = match &args.pool {
        Some(name) => config.pools.iter().find(|pool| pool.name == *name),
        None if names.len() == 1 => config.pools.first(),
        None => None,
    };
    let Some(pool) = found else {
        return Err(ModelError::Arguments(format!(
            "{}: --pool must be one of: {}",
            path.display(),
            names.join(", ")
        )));
    };
    let parts = parts::load(pool)?;
    Ok((pool.name.clone(), parts.profile))
}
