//! Who renders this model's chats in the engine: the template, or code (vLLM 0.32:
//! `config/model.py`, `renderers/registry.py`, `tokenizers/registry.py`).

use prefix_picker_core::prompt::Renderer;
use serde_json::Value;

use super::files::Folder;
use super::{ProfileLoadError, TokenizerMode};
use crate::vocab::Vocab;

/// Special tokens that no other model is known to have all of.
const HARMONY: [&str; 5] = [
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|return|>",
    "<|call|>",
];

/// Who renders chats.
pub(super) enum Rendering {
    /// One whose text we can make.
    By(Renderer),
    /// Another, or it cannot be told: why, for people.
    Unknown(String),
}

/// Who renders chats for an engine that serves this folder with this `--tokenizer-mode`.
pub(super) fn rendering(
    folder: &Folder,
    mode: TokenizerMode,
) -> Result<Rendering, ProfileLoadError> {
    let config = folder.json("config.json")?.unwrap_or_default();
    if config.get("model_type").and_then(Value::as_str) == Some("gpt_oss") {
        return Ok(Rendering::By(Renderer::Harmony {
            system_start_date: None,
            system_instructions: false,
        }));
    }
    Ok(match mode {
        TokenizerMode::Hf => Rendering::By(Renderer::Template),
        TokenizerMode::Mistral => mistral(),
        TokenizerMode::DeepseekV32 => Rendering::By(Renderer::DeepseekV32),
        TokenizerMode::DeepseekV4 => Rendering::By(Renderer::DeepseekV4),
        TokenizerMode::DeepseekV41 => Rendering::By(Renderer::DeepseekV41),
        TokenizerMode::Code(name) => Rendering::Unknown(format!(
            "vLLM's tokenizer mode {name} makes tokens of chats by code, not by the template alone"
        )),
        TokenizerMode::Auto => {
            let architectures = config.get("architectures").and_then(Value::as_array);
            let names = architectures
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            let known = names.filter_map(by_architecture).next();
            known.unwrap_or_else(|| by_files(folder))
        }
    })
}

/// Why chats of a folder with gpt-oss's tokens and no model type are not known, if it is one: the
/// engine never runs the template that stands there.
pub(super) fn untold_harmony(
    folder: &Folder,
    vocab: &Vocab,
) -> Result<Option<String>, ProfileLoadError> {
    let config = folder.json("config.json")?.unwrap_or_default();
    if config.get("model_type").is_some() {
        return Ok(None);
    }
    let ids = 0..u32::try_from(vocab.len()).unwrap_or(u32::MAX);
    let tokens = ids.filter_map(|id| vocab.bytes(id));
    let found = tokens.filter(|bytes| HARMONY.iter().any(|token| token.as_bytes() == *bytes));
    Ok((found.count() >= HARMONY.len()).then(|| {
        "the tokens are those of gpt-oss, whose chats the engine renders by Harmony and not by a \
         template; it tells by model_type in config.json, which the folder lacks: add the engine's \
         config.json"
            .to_owned()
    }))
}

/// Architectures that have a tokenizer mode, and with it a renderer, of their own.
fn by_architecture(name: &str) -> Option<Rendering> {
    Some(match name {
        "DeepseekV32ForCausalLM" => Rendering::By(Renderer::DeepseekV32),
        "DeepseekV4ForCausalLM" | "DeepseekV4ForConditionalGeneration" => {
            Rendering::By(Renderer::DeepseekV4)
        }
        "DeepseekV41ForCausalLM" => Rendering::By(Renderer::DeepseekV41),
        "MoonshotKimiaForCausalLM"
        | "KimiK3ForConditionalGeneration"
        | "InklingForCausalLM"
        | "InklingForConditionalGeneration" => Rendering::Unknown(format!(
            "vLLM renders chats of {name} by code, not by the template"
        )),
        _ => return None,
    })
}

fn mistral() -> Rendering {
    Rendering::Unknown("vLLM's mistral tokenizer mode renders chats by code".to_owned())
}

/// vLLM takes Mistral's own tokenizer where the weights are `consolidated*.safetensors` and its file
/// is there. A folder without weights does not tell.
fn by_files(folder: &Folder) -> Rendering {
    if !folder.has("tekken.json") && !folder.has_like("tokenizer.model.v", "") {
        return Rendering::By(Renderer::Template);
    }
    if folder.has_like("consolidated", ".safetensors") {
        return mistral();
    }
    if folder.has_like("model", ".safetensors") {
        return Rendering::By(Renderer::Template);
    }
    Rendering::Unknown(
        "the folder has Mistral's tokenizer and no weights, so that it does not tell whether vLLM \
         renders chats by code; say which tokenizer mode the engine runs with"
            .to_owned(),
    )
}
