//! Tokenizers that the engine does not take from `tokenizer.json` as they stand there.
//!
//! Transformers 5 (vLLM 0.32 requires it) has classes with a constructor of their own: of the file they
//! take the vocabulary, the merges and the post-processor, and bring their own normaliser and
//! pre-tokenizer (5.19: `tokenization_utils_tokenizers.py`, `convert_to_native_format`). Most of them
//! bring what the models' files say, too. Not so:
//!
//! - `LlamaTokenizer`, also under its old name `LlamaTokenizerFast`: no normaliser, and `Metaspace`, which
//!   puts no space before a piece that begins with one. Llama 2's files have `Prepend`, which does.
//! - `CodeLlamaTokenizer`: likewise, and only the first piece gets a space.
//! - the model types [`REBUILT_WITH_NFC`], whatever class their files name: NFC. `DeepSeek-R1-Distill-Qwen`'s
//!   file, whose class is `LlamaTokenizerFast`, has no normaliser.
//!
//! Which class counts is `AutoTokenizer`'s decision, by the model's type (`auto/tokenization_auto.py`):
//! for the types [`AS_IN_FILE`], DeepSeek V3's among them, the file counts as it is.

use serde_json::{Value, json};

use super::ProfileLoadError;
use super::canonical::MARK;
use super::files::Folder;
use super::tokenizer_config::TokenizerConfig;
use crate::vocab::tokenizer_json::{TokenStyle, TokenizerJson};

/// Model types for which a Llama class in `tokenizer_config.json` does not count: `TokenizersBackend` is
/// registered for them, or mistral-common with the file to fall back to.
const AS_IN_FILE: &str = "EvollaModel arctic aria bigbird_pegasus camembertv2-base canary chameleon \
    chatlm cohere_asr deepseek_ocr deepseek_ocr2 deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 \
    deepseek_vl deepseek_vl_hybrid deepseek_vl_v2 ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 \
    glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2 gpt_bigcode granite granitemoe \
    granitemoehybrid granitemoeshared h2ovl_chat hyperclovax hyperclovax_vlm internlm2 jamba janus \
    kimi_k25 kimi_linear kosmos-2 llava llava_next mimo_v2_flash minicpm3 minicpmv minicpmv4_6 \
    minicpmv4_7 minimax_m2 ministral ministral3 mistral mistral3 mixtral modernbert \
    modernbert-decoder molmo molmo2 nemotron nvfp4 nystromformer olmo2 olmo3 olmo_hybrid opencua \
    openvla paddleocr_vl pegasus_x persimmon phi3 phi3_v phimoe pix2struct pixtral smolvlm stablelm \
    step3_vl step3p5 umt5 vipllava voxtral voxtral_realtime xlm-roberta-xl";

/// Model types whose own class is taken in place of any other.
const REBUILT_WITH_NFC: &str = "qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp";

/// Models that are known by their names to need the file as it is.
const NAMED_AS_IN_FILE: [&str; 2] = [
    "deepseek-ai/deepseek-r1-distill-llama-",
    "deepseek-ai/deepseek-coder-",
];

/// Makes of a file what the engine makes of it, or says why that is not known.
pub(super) fn as_the_engine_has_it(
    folder: &Folder,
    config: &TokenizerConfig,
    style: TokenStyle,
    tokenizer: &mut TokenizerJson,
) -> Result<Option<String>, ProfileLoadError> {
    let model = folder.json("config.json")?.unwrap_or_default();
    let text = |key: &str| model.get(key).and_then(Value::as_str);
    let class = config.tokenizer_class.as_deref();
    let Some(class) = class.or_else(|| text("tokenizer_class")) else {
        return Ok(None);
    };
    let class = class.strip_suffix("Fast").unwrap_or(class);
    let model_type = text("model_type");
    let is_of = |types: &str| model_type.is_some_and(|own| types.split(' ').any(|one| one == own));
    if is_of(REBUILT_WITH_NFC) {
        if style == TokenStyle::ByteLevel {
            tokenizer.normalizer = json!({"type": "NFC"});
        }
        return Ok(None);
    }
    if !matches!(class, "LlamaTokenizer" | "CodeLlamaTokenizer") || is_of(AS_IN_FILE) {
        return Ok(None);
    }
    let name = folder.name().to_lowercase();
    if NAMED_AS_IN_FILE.iter().any(|known| name.starts_with(known)) {
        return Ok(None);
    }
    if model_type.is_none() {
        return Ok(Some(format!(
            "whether the engine takes tokenizer.json as it is, or as its class {class} has it, depends on model_type in \
             config.json, which the folder lacks: add the engine's config.json"
        )));
    }
    let bpe = tokenizer.model.r#type.as_deref().unwrap_or("BPE") == "BPE";
    if style != TokenStyle::SentencePiece || !bpe {
        return Ok(Some(format!(
            "the engine rebuilds the tokenizer as {class}, which needs a SentencePiece BPE, and tokenizer.json is none: its \
             tokens are not those of the file (if the engine knows better by the model's name, give model, not model_dir)"
        )));
    }
    let scheme = match (config.add_prefix_space, class) {
        (Some(false), _) => "never",
        (_, "LlamaTokenizer") if config.legacy => "always",
        _ => "first",
    };
    tokenizer.normalizer = Value::Null;
    tokenizer.pre_tokenizer = json!({
        "type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": false,
    });
    Ok(None)
}
