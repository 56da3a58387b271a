//! What a pool needs from the disk before its index can be made: its prompt profile and vocabulary,
//! by the model's folder and what the configuration says of the engines' command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use prefix_picker_core::prompt::{
    self, Capability, CompiledProfile, Profile, ProfileError, Renderer, Rules,
};

use crate::config::{ContentFormat, EngineFlags, PoolConfig};
use crate::engine::PoolParts;
use crate::hub;
use crate::profiles::load_model_dir_with;

/// Most bytes of a `chat_template` file. The largest of a public model has 30 KB.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

/// Reads a pool's files. The rules are those of the configured `vllm_version`, or else of the newest
/// vLLM known: what its engines say is not known here.
///
/// # Errors
/// If a file is missing or broken, or `chat_template` cannot be compiled.
pub fn load(pool: &PoolConfig) -> anyhow::Result<PoolParts> {
    let flags = &pool.engine;
    let template = flags
        .chat_template
        .as_deref()
        .map(|path| {
            template(path).with_context(|| {
                format!(
                    "pool {}: chat_template {} cannot be used",
                    pool.name,
                    path.display()
                )
            })
        })
        .transpose()?;
    let dir = model_dir(pool)?;
    let files = load_model_dir_with(&dir, flags.tokenizer_mode, template).with_context(|| {
        let name = &pool.name;
        format!("pool {name}: model_dir {} cannot be used", dir.display())
    })?;
    let mut profile = files.profile;
    apply(flags, &mut profile);
    if let Err(error) = CompiledProfile::compile(&profile) {
        if let Some(path) = &flags.chat_template {
            let what = format!("pool {}: chat_template {}", pool.name, path.display());
            return Err(anyhow::Error::new(error).context(what));
        }
        // The model's own: everything but chats still works.
        profile.chat = Capability::PredictedOnly {
            why: format!("{:#}", broken_template(&files.template_files, error)),
        };
        profile.chat_template = None;
        profile.named_templates.clear();
    }
    Ok(PoolParts {
        profile,
        vocab: files.vocab,
    })
}

/// The model's folder; fetched from the hub where the pool names its model.
///
/// # Errors
/// If the hub does not give it, and the cache does not have it.
pub fn model_dir(pool: &PoolConfig) -> anyhow::Result<PathBuf> {
    match &pool.hub {
        None => Ok(pool.model_dir.clone()),
        Some(hub) => hub::resolve(&hub.model, hub.revision.as_deref())
            .with_context(|| format!("pool {}: model cannot be used", pool.name)),
    }
}

/// A template that does not compile, with the name of its file if that is among these.
pub fn broken_template(files: &BTreeMap<String, PathBuf>, error: ProfileError) -> anyhow::Error {
    let ProfileError::Template { name, .. } = &error;
    match files.get(name) {
        Some(file) => anyhow::Error::new(error).context(file.display().to_string()),
        None => error.into(),
    }
}

/// What requests of a pool are routed by history instead of by events, and why.
pub fn obstacles(profile: &Profile) -> impl Iterator<Item = (&'static str, &str)> {
    let kinds = [
        ("chat", &profile.chat),
        ("completions", &profile.completions),
    ];
    kinds
        .into_iter()
        .filter_map(|(what, capability)| match capability {
            Capability::Exact => None,
            Capability::PredictedOnly { why } => Some((what, why.as_str())),
        })
}

fn template(path: &Path) -> std::io::Result<String> {
    let length = std::fs::metadata(path)?.len();
    if length > TEMPLATE_BYTES_MAX {
        let what = format!("{length} bytes are more than {TEMPLATE_BYTES_MAX}");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, what));
    }
    std::fs::read_to_string(path)
}

fn apply(flags: &EngineFlags, profile: &mut Profile) {
    let sorted = |map: &serde_json::Map<String, serde_json::Value>| {
        map.iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    profile.utc_offset_minutes = flags.utc_offset_minutes;
    profile.exclude_tools_when_tool_choice_none = flags.exclude_tools_when_tool_choice_none;
    profile.interleave_mm_strings = flags.interleave_mm_strings;
    profile.trust_request_chat_template = flags.trust_request_chat_template;
    profile.default_chat_template_kwargs = sorted(&flags.default_chat_template_kwargs);
    profile.reasoning_effort_map = sorted(&flags.reasoning_effort_map);
    if let Some(effort) = flags.anthropic_disabled_thinking_effort {
        effort.clone_into(&mut profile.anthropic_disabled_thinking_effort);
    }
    profile.media_strings.clone_from(&flags.media_strings);
    if flags.renames_media {
        profile.media_placeholders.clear();
    }
    profile.content_format = match flags.content_format {
        ContentFormat::Auto => prompt::ContentFormat::Auto,
        ContentFormat::String => prompt::ContentFormat::String,
        ContentFormat::Openai => prompt::ContentFormat::Openai,
    };
    if let Renderer::Harmony {
        system_start_date,
        system_instructions,
    } = &mut profile.renderer
    {
        system_start_date.clone_from(&flags.system_start_date);
        *system_instructions = flags.harmony_system_instructions;
        if flags.tool_server {
            profile.chat = Capability::PredictedOnly {
                why: "the engines' tool server adds text to gpt-oss prompts".to_owned(),
            };
        }
    }
    if let Some(version) = &flags.vllm_version {
        profile.rules = Rules::of_version(version);
    }
}

#[cfg(test)]
mod tests;
