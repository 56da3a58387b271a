//! The prompt profile: all that turns one model's requests into text.
//!
//! The control plane builds it from the model's folder and pushes it to the gateways as JSON. The
//! hash of what decides its text goes into every block hash, so that an old and a new template can
//! live side by side while a roll-out lasts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Rules;

/// Version of [`Profile`]'s meaning. Goes into its hash: raise it when the same profile would give
/// other text.
pub const PROFILE_VERSION: u32 = 3;

/// What the control plane pushes: templates, special tokens and the tokenizer's normalisation.
///
/// Maps are ordered, so that the JSON and with it [`Profile::hash`] are the same everywhere.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// [`PROFILE_VERSION`] of the writer.
    pub version: u32,
    /// The model's name or path, for people.
    pub model: String,
    /// The default chat template, Jinja2 source.
    pub chat_template: Option<String>,
    /// Templates chosen by name; `tool_use` is taken when the request has tools.
    pub named_templates: BTreeMap<String, String>,
    /// `bos_token`, `eos_token`, ...: text that templates may use.
    pub special_tokens: BTreeMap<String, String>,
    /// What the tokenizer does to text before it looks for tokens.
    pub canonical: Canonical,
    /// Who turns a chat into text.
    pub renderer: Renderer,
    /// What depends on the engine's version.
    pub rules: Rules,
    /// How message content is handed to the template.
    pub content_format: ContentFormat,
    /// The engine's `--interleave-mm-strings`.
    pub interleave_mm_strings: bool,
    /// The engine's `--trust-request-chat-template`.
    pub trust_request_chat_template: bool,
    /// The engine's `--reasoning-effort-map` (vLLM 0.33).
    pub reasoning_effort_map: BTreeMap<String, serde_json::Value>,
    /// The text that stands for one media item, by modality (`image`, `audio`, `video`), where the
    /// engine repeats it as often as the item has tokens. Nothing with `--mm-processor-kwargs`,
    /// `--media-io-kwargs` or `--enable-tower-connector-lora`: there a client's `uuid` is not what
    /// the engine calls the item.
    pub media_placeholders: BTreeMap<String, String>,
    /// What the engine writes for one media item where content is one string, by modality (its
    /// `get_placeholder_str`); `{i}` stands for the item's number, from 1.
    pub media_strings: BTreeMap<String, String>,
    /// The engine's `--default-chat-template-kwargs`.
    pub default_chat_template_kwargs: BTreeMap<String, serde_json::Value>,
    /// The engine's `--exclude-tools-when-tool-choice-none`.
    pub exclude_tools_when_tool_choice_none: bool,
    /// The engine's `--anthropic-disabled-thinking-effort`: `auto`, or the effort that stands for
    /// "thinking disabled" in `/v1/messages`.
    pub anthropic_disabled_thinking_effort: String,
    /// The engine's `max_model_len` in tokens; 0: not known. Only requests that allow their prompt
    /// to be truncated need it. It decides which of them are looked up, and no text.
    pub max_model_len: u32,
    /// The engine's local time against UTC, for `strftime_now`.
    pub utc_offset_minutes: i32,
    /// Chat requests.
    pub chat: Capability,
    /// Completions with text prompts.
    pub completions: Capability,
    /// Prompts given as token ids.
    pub token_ids: Capability,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            version: PROFILE_VERSION,
            model: String::new(),
            chat_template: None,
            named_templates: BTreeMap::new(),
            special_tokens: BTreeMap::new(),
            canonical: Canonical::default(),
            renderer: Renderer::default(),
            rules: Rules::default(),
            content_format: ContentFormat::default(),
            interleave_mm_strings: false,
            trust_request_chat_template: false,
            reasoning_effort_map: BTreeMap::new(),
            media_placeholders: BTreeMap::new(),
            media_strings: BTreeMap::new(),
            default_chat_template_kwargs: BTreeMap::new(),
            exclude_tools_when_tool_choice_none: false,
            anthropic_disabled_thinking_effort: "auto".to_owned(),
            max_model_len: 0,
            utc_offset_minutes: 0,
            chat: Capability::Exact,
            completions: Capability::Exact,
            token_ids: Capability::Exact,
        }
    }
}

impl Profile {
    /// Identity of this profile, by which gateways know whether they have it: the first 8 bytes,
    /// big-endian, of SHA-256 over its JSON (fields in declared order, maps sorted, no white space).
    ///
    /// Everything is part of it but the model's name: that is for people, and two control planes may
    /// have the same files in folders of different names.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let nameless = Self {
            model: String::new(),
            ..self.clone()
        };
        nameless.hash_of_json()
    }

    /// Identity of the text that this profile makes, which goes into every block hash: as
    /// [`Self::hash`], but of a profile whose `max_model_len` is not known, so that an index outlives
    /// the moment when it becomes known.
    #[must_use]
    pub fn seed_hash(&self) -> u64 {
        let timeless = Self {
            model: String::new(),
            max_model_len: 0,
            ..self.clone()
        };
        timeless.hash_of_json()
    }

    fn hash_of_json(&self) -> u64 {
        // Strings, numbers and maps with string keys: this cannot fail.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let digest = Sha256::digest(&json);
        digest
            .iter()
            .take(8)
            .fold(0, |hash, &byte| (hash << 8) | u64::from(byte))
    }
}

/// Can this kind of request be turned into exactly the engine's text?
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Yes, byte for byte.
    #[default]
    Exact,
    /// No; affinity works from routing history alone.
    PredictedOnly {
        /// What stands in the way, for people.
        why: String,
    },
}

/// Who turns a chat into text in the engine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renderer {
    /// The chat template, by Jinja.
    #[default]
    Template,
    /// vLLM's tokenizer mode `deepseek_v32`.
    DeepseekV32,
    /// vLLM's tokenizer mode `deepseek_v4`.
    DeepseekV4,
    /// vLLM's tokenizer mode `deepseek_v41`.
    DeepseekV41,
    /// gpt-oss: OpenAI's Harmony, without a tool server.
    Harmony {
        /// The engine's `VLLM_SYSTEM_START_DATE`; its local date if there is none.
        #[serde(default)]
        system_start_date: Option<String>,
        /// The engine's `VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS`.
        #[serde(default)]
        system_instructions: bool,
    },
}

impl Renderer {
    /// The engine makes token ids of a chat at once: no BOS is added, and no normaliser sees it.
    #[must_use]
    pub(super) fn makes_token_ids(&self) -> bool {
        matches!(self, Self::Harmony { .. })
    }
}

/// How the engine hands message content to the template (`--chat-template-content-format`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentFormat {
    /// Found out from the template: `Openai` if it loops over a message's content.
    #[default]
    Auto,
    /// Text parts joined by a newline.
    String,
    /// A list of parts.
    Openai,
}

/// What a tokenizer does to text so that its tokens' bytes differ from the text's.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Canonical {
    /// Steps applied, in order, to each run of text between added tokens.
    pub steps: Vec<CanonicalStep>,
    /// Tokens that are found in text before any step runs.
    pub added_tokens: Vec<AddedToken>,
    /// What the pre-tokenizer adds and drops after the steps.
    pub pieces: Pieces,
    /// Text of what the post-processor puts before a prompt when special tokens are on
    /// (`/v1/completions`): the BOS token, or nothing.
    pub completions_prefix: String,
}

/// One step of a tokenizer's normaliser.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CanonicalStep {
    /// Unicode normalisation form C.
    Nfc,
    /// Unicode normalisation form D.
    Nfd,
    /// Unicode normalisation form KC.
    Nfkc,
    /// Unicode normalisation form KD.
    Nfkd,
    /// Every character in lower case, whatever stands around it.
    Lowercase,
    /// Combining marks dropped.
    DropMarks,
    /// Marks that take no space of their own dropped (BERT's accents).
    DropNonspacing,
    /// White space at the ends of the run dropped.
    Strip {
        /// At its beginning.
        left: bool,
        /// At its end.
        right: bool,
    },
    /// Two spaces or more become one text.
    Squeeze(String),
    /// Control characters dropped, odd white space made spaces, as `nmt_nfkc` of SentencePiece does.
    Nmt,
    /// Control characters dropped, white space made spaces, as BERT does.
    BertClean,
    /// Spaces around each Chinese character, as BERT does.
    BertChinese,
    /// Text put before the run, if the run is not empty.
    Prepend(String),
    /// Every occurrence of a text replaced.
    Replace {
        /// Text to look for; nothing happens if it is empty.
        from: String,
        /// What takes its place.
        to: String,
    },
}

/// What a pre-tokenizer adds and drops in each run of text between added tokens.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pieces {
    /// Nothing.
    #[default]
    Whole,
    /// A space is put before a run that does not begin with one.
    Spaced {
        /// Only before a run that is the prompt's beginning.
        first_only: bool,
    },
    /// Only words count: white space is dropped, and a space is put before each word.
    Words {
        /// Each punctuation character is a word of its own, as in BERT.
        punctuation: bool,
        /// U+2581 stands for a space: no other is put before a word that begins with it.
        marks: bool,
    },
}

/// A token that is matched in the text itself, before normalisation, like `<|im_start|>`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AddedToken {
    /// Its text.
    pub content: String,
    /// White space to its left is part of the match.
    pub lstrip: bool,
    /// White space to its right is part of the match.
    pub rstrip: bool,
    /// Matches only where no word character stands next to it.
    pub single_word: bool,
    /// Matched in normalised text rather than in the text as given.
    pub normalized: bool,
}
