//! The text that stands for one media item in a rendered prompt, for models where vLLM puts the same
//! token in its place as often as the item has tokens, and nothing else.
//!
//! Only such models are listed, each by what its processor's `_get_prompt_updates` does (vLLM 0.32,
//! `model_executor/models/`). Others write more into the prompt than stands in the template (Gemma 3:
//! line breaks and an end token; Qwen3-VL's videos: time stamps; Pixtral: a token at each row's end):
//! there, a prompt's text is known up to its first item.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ProfileLoadError;
use super::files::Folder;
use crate::vocab::Vocab;

/// Modality, and the fields of `config.json` that may hold its token's id.
type Placeholder = (&'static str, &'static [&'static str]);

const IMAGE: Placeholder = ("image", &["image_token_id"]);
const VIDEO: Placeholder = ("video", &["video_token_id"]);
const LLAVA_IMAGE: Placeholder = ("image", &["image_token_index", "image_token_id"]);
const LLAVA_VIDEO: Placeholder = ("video", &["video_token_index", "video_token_id"]);

fn placeholders_of(architecture: &str) -> &'static [Placeholder] {
    match architecture {
        // qwen2_vl.py, qwen2_5_vl.py: `[placeholder[modality]] * num_tokens`.
        "Qwen2VLForConditionalGeneration" | "Qwen2_5_VLForConditionalGeneration" => &[IMAGE, VIDEO],
        // qwen3_vl.py, `get_image_replacement_qwen3vl`; the others use its processor.
        "Qwen3VLForConditionalGeneration"
        | "Qwen3VLMoeForConditionalGeneration"
        | "Qwen3_5ForConditionalGeneration"
        | "Qwen3_5MoeForConditionalGeneration" => &[IMAGE],
        // llava.py, `BaseLlavaMultiModalProcessor`: `[image_token_id] * num_image_tokens`.
        "LlavaForConditionalGeneration" | "LlavaNextForConditionalGeneration" => &[LLAVA_IMAGE],
        // llava_onevision.py: the same, and `[video_token_id] * num_video_tokens`.
        "LlavaOnevisionForConditionalGeneration" => &[LLAVA_IMAGE, LLAVA_VIDEO],
        _ => &[],
    }
}

/// Text by modality; empty for models that are not known to repeat one token.
pub(super) fn placeholders(
    folder: &Folder,
    vocab: &Vocab,
) -> Result<BTreeMap<String, String>, ProfileLoadError> {
    let config = folder.json("config.json")?.unwrap_or_default();
    let architecture = config
        .pointer("/architectures/0")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // llava.py, `_build_llava_or_pixtral_hf_info`.
    if config
        .pointer("/vision_config/model_type")
        .and_then(Value::as_str)
        == Some("pixtral")
    {
        return Ok(BTreeMap::new());
    }
    let text_of = |fields: &[&str]| -> Option<String> {
        let id = fields
            .iter()
            .find_map(|field| config.get(*field)?.as_u64())?;
        let bytes = vocab.bytes(u32::try_from(id).ok()?)?;
        let text = std::str::from_utf8(bytes).ok()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let known = placeholders_of(architecture).iter();
    Ok(known
        .filter_map(|(modality, fields)| Some(((*modality).to_owned(), text_of(fields)?)))
        .collect())
}

#[cfg(test)]
mod tests {
    use crate::profiles::load_model_dir;

    /// `<|image_pad|>` is 3, `<|video_pad|>` is 4 here.
    fn placeholders_in(config: serde_json::Value) -> Vec<(String, String)> {
        let name = format!("prefix-picker-media-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let token = |id: u32, content: &str| serde_json::json!({"id": id, "content": content, "special": true, "normalized": false});
        let tokenizer = serde_json::json!({
            "added_tokens": [token(3, "<|image_pad|>"), token(4, "<|video_pad|>")],
            "normalizer": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
        });
        std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
        let profile = load_model_dir(&dir).unwrap().profile;
        std::fs::remove_dir_all(dir).unwrap();
        profile.media_placeholders.into_iter().collect()
    }

    #[test]
    fn only_models_known_to_repeat_one_token_have_placeholders() {
        let config = |architecture: &str, more: serde_json::Value| {
            let mut config = serde_json::json!({"architectures": [architecture]});
            let fields = more.as_object().unwrap().clone();
            config.as_object_mut().unwrap().extend(fields);
            placeholders_in(config)
        };
        let ids = || serde_json::json!({"image_token_id": 3, "video_token_id": 4});
        let image = ("image".to_owned(), "<|image_pad|>".to_owned());
        let video = ("video".to_owned(), "<|video_pad|>".to_owned());
        let both = [image.clone(), video];
        assert_eq!(config("Qwen2_5_VLForConditionalGeneration", ids()), both);
        let images = config("Qwen3VLForConditionalGeneration", ids());
        assert_eq!(images, std::slice::from_ref(&image));
        let index = serde_json::json!({"image_token_index": 3, "vision_config": {"model_type": "clip_vision_model"}});
        assert_eq!(config("LlavaForConditionalGeneration", index), [image]);
        let pixtral =
            serde_json::json!({"image_token_index": 3, "vision_config": {"model_type": "pixtral"}});
        assert_eq!(config("LlavaForConditionalGeneration", pixtral), []);
        assert_eq!(config("Gemma3ForConditionalGeneration", ids()), []);
        let unknown = serde_json::json!({"image_token_id": 9, "video_token_id": "4"});
        assert_eq!(config("Qwen2VLForConditionalGeneration", unknown), []);
    }
}
