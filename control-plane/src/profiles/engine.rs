//! Whether the engine renders this model's chats with a template at all: some it renders by code
//! (vLLM 0.33: `config/model.py`, `renderers/`, `tokenizers/registry.py`).

use serde_json::Value;

use super::files::Folder;
use super::{ProfileLoadError, TokenizerMode};

/// Architectures whose chats vLLM renders by code of its own.
const BY_CODE: [&str; 8] = [
    "MoonshotKimiaForCausalLM",
    "KimiK3ForConditionalGeneration",
    "DeepseekV32ForCausalLM",
    "DeepseekV4ForCausalLM",
    "DeepseekV4ForConditionalGeneration",
    "DeepseekV41ForCausalLM",
    "InklingForCausalLM",
    "InklingForConditionalGeneration",
];

/// Why chats cannot be rendered from the template, if so.
pub(super) fn chat_obstacle(
    folder: &Folder,
    mode: TokenizerMode,
) -> Result<Option<String>, ProfileLoadError> {
    let config = folder.json("config.json")?.unwrap_or_default();
    if config.get("model_type").and_then(Value::as_str) == Some("gpt_oss") {
        return Ok(Some(
            "vLLM renders gpt-oss chats by Harmony, not by the template".to_owned(),
        ));
    }
    match mode {
        TokenizerMode::Hf => return Ok(None),
        TokenizerMode::Mistral => {
            return Ok(Some(
                "vLLM's mistral tokenizer mode renders chats by code".to_owned(),
            ));
        }
        TokenizerMode::Auto => {}
    }
    let architectures = config
        .get("architectures")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let by_code = architectures
        .filter_map(Value::as_str)
        .find(|name| BY_CODE.contains(name));
    if let Some(name) = by_code {
        return Ok(Some(format!(
            "vLLM renders chats of {name} by code, not by the template"
        )));
    }
    Ok(mistral_obstacle(folder))
}

/// vLLM takes Mistral's own tokenizer where the weights are `consolidated*.safetensors` and its file
/// is there. A folder without weights does not tell.
fn mistral_obstacle(folder: &Folder) -> Option<String> {
    if !folder.has("tekken.json") && !folder.has_like("tokenizer.model.v", "") {
        return None;
    }
    let consolidated = folder.has_like("consolidated", ".safetensors");
    let others = folder.has_like("model", ".safetensors");
    if consolidated {
        Some(
            "vLLM's mistral tokenizer mode (chosen for this folder) renders chats by code"
                .to_owned(),
        )
    } else if others {
        None
    } else {
        Some(
            "the folder has Mistral's tokenizer and no weights, so that it does not tell whether vLLM \
             renders chats by code; say which tokenizer mode the engine runs with"
                .to_owned(),
        )
    }
}
