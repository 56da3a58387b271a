//! Request body -> the text (or token ids) whose bytes equal those of the engine's prompt tokens.
//!
//! Two steps, so that the model's name is known before the profile is chosen:
//!
//! 1. [`parse_request`] reads the body once, straight into template values.
//! 2. [`CompiledProfile::render`] does what the engine does before, during and after the chat
//!    template: message normalisation, the template itself, and the tokenizer's own changes to the
//!    text (NFC and the like).
//!
//! Whatever cannot be made exact is a [`Skip`] with a reason, never a guess: a wrong text would
//! only miss, but a skip is counted and can be acted upon. There is no clock here; the time that
//! `strftime_now` shows is an argument.
//!
//! | module | idea |
//! |---|---|
//! | `profile` | what a model's requests need to become text; pushed by the control plane |
//! | `request`, `json` | JSON body -> [`ParsedRequest`] |
//! | `apis` | every interface turned into chats of one shape, texts, and token ids |
//! | `forwarded` | token ids that come along with messages |
//! | `truncation` | requests that allow the engine to cut their prompt |
//! | `messages`, `content`, `media`, `tools`, `kwargs` | what vLLM does to a request before its template runs |
//! | `template`, `source`, `markup`, `detect`, `filters`, `tojson`, `methods`, `python`, `clock` | minijinja made equal to Hugging Face's Jinja2 |
//! | `canonical`, `normalise` | what the tokenizer's normaliser does to the rendered text |
//! | `figure` | whether the engine's figures will be of one prompt |
//! | `full_report` | where to ask an engine for a full report of cached blocks |
//! | `rules` | what differs between versions of the engine |
//! | `families` | models whose chats the engine renders by code instead of a template |
//! | `compiled` | all of it together |
//! | `bare` | a template alone, for tools |

mod apis;
mod bare;
mod canonical;
mod clock;
mod compiled;
mod content;
mod detect;
mod families;
mod figure;
mod filters;
mod forwarded;
mod full_report;
mod json;
mod kwargs;
mod markup;
mod media;
mod messages;
mod methods;
mod normalise;
mod outline;
mod profile;
mod python;
mod request;
mod rules;
mod source;
mod template;
mod tojson;
mod tools;
mod truncation;
mod work;

pub use bare::BareTemplate;
pub use compiled::{CompiledProfile, ProfileError};
pub use full_report::{Insertion, full_report};
pub use outline::Outline;
pub use profile::{
    AddedToken, Canonical, CanonicalStep, Capability, ContentFormat, PROFILE_VERSION, Pieces,
    Profile, Renderer,
};
pub use request::{ParsedRequest, parse_request};
pub use rules::Rules;

/// The OpenAI-style interface that a request uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`, Anthropic's
    Messages,
    /// `/v1/embeddings`
    Embeddings,
    /// `/pooling`, `/classify`
    Pooling,
    /// `/tokenize`
    Tokenize,
}

impl Api {
    /// Every path that has one.
    pub const PATHS: [(&str, Self); 8] = [
        ("/v1/chat/completions", Self::ChatCompletions),
        ("/v1/completions", Self::Completions),
        ("/v1/responses", Self::Responses),
        ("/v1/messages", Self::Messages),
        ("/v1/embeddings", Self::Embeddings),
        ("/pooling", Self::Pooling),
        ("/classify", Self::Pooling),
        ("/tokenize", Self::Tokenize),
    ];

    /// The interface behind a request's `:path`, with or without a query; `None` for any other.
    ///
    /// A prefix before `/v1/` is the caller's to strip.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let path = path.get(..end)?;
        let found = Self::PATHS.iter().find(|(known, _)| *known == path);
        found.map(|&(_, api)| api)
    }

    /// Stable name for logs and metric labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Embeddings => "embeddings",
            Self::Pooling => "pooling",
            Self::Tokenize => "tokenize",
        }
    }
}

/// What the engine will see, up to its tokenizer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prompt {
    /// Canonical text: its bytes are the concatenated bytes of the engine's prompt tokens.
    Text(PromptText),
    /// Token ids that the client sent; the engine uses them verbatim.
    TokenIds(Vec<u32>),
}

/// A prompt's canonical text, and the media items in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PromptText {
    /// The text. A media item stands in it as one placeholder, as the template writes it.
    pub text: String,
    /// Items whose identifier is known, in order, all before `exact_bytes`.
    pub media: Vec<MediaItem>,
    /// The text is the engine's up to here, in bytes; less than its length where a media item of
    /// unknown identifier, or one that cannot be found in the text, begins.
    pub exact_bytes: usize,
}

/// A media item that the client named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MediaItem {
    /// Where its placeholder begins in the text, in bytes.
    pub at: usize,
    /// Length of the placeholder, in bytes.
    pub len: usize,
    /// What the engine calls it in its KV events: the client's `uuid`.
    pub identifier: String,
}

impl From<String> for PromptText {
    /// Text without media, exact to its end.
    fn from(text: String) -> Self {
        Self {
            exact_bytes: text.len(),
            media: Vec::new(),
            text,
        }
    }
}

/// Why a request has no exact prompt. Each is a normal outcome: the request goes on, picked by
/// session and load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Skip {
    /// The body is not JSON that we can read (broken, nested too deeply, lone surrogates, `NaN`).
    InvalidJson,
    /// JSON, but of a shape that the engine refuses as well.
    InvalidRequest,
    /// Images, audio or video: their placeholders expand inside the engine.
    Multimodal,
    /// `prompt_embeds` instead of text.
    PromptEmbeds,
    /// `previous_response_id`: what was said before is known only to the engine that keeps it.
    StoredHistory,
    /// `truncate_prompt_tokens` keeps the prompt's end, so that there is no prefix.
    Truncated,
    /// The request brings its own `chat_template`.
    RequestTemplate,
    /// The profile has no template for chat requests.
    NoTemplate,
    /// The profile says that this kind of request cannot be made exact.
    PredictedOnly,
    /// The template refused the conversation (`raise_exception`) or failed.
    TemplateError,
    /// The template used more work or memory than is allowed.
    TemplateLimit,
    /// A body of more than 6 MiB, or of so many values that reading them would hold up a gateway's
    /// worker.
    TooComplex,
    /// A part of the request that the engine handles in a way we do not reproduce.
    Unsupported,
}

impl Skip {
    /// Every reason, for metrics that want to be there from the start.
    pub const ALL: [Self; 13] = [
        Self::InvalidJson,
        Self::InvalidRequest,
        Self::Multimodal,
        Self::PromptEmbeds,
        Self::StoredHistory,
        Self::Truncated,
        Self::RequestTemplate,
        Self::NoTemplate,
        Self::PredictedOnly,
        Self::TemplateError,
        Self::TemplateLimit,
        Self::TooComplex,
        Self::Unsupported,
    ];

    /// Stable snake_case name: a metric label and a field of the access log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::InvalidRequest => "invalid_request",
            Self::Multimodal => "multimodal",
            Self::PromptEmbeds => "prompt_embeds",
            Self::StoredHistory => "stored_history",
            Self::Truncated => "truncated",
            Self::RequestTemplate => "request_template",
            Self::NoTemplate => "no_template",
            Self::PredictedOnly => "predicted_only",
            Self::TemplateError => "template_error",
            Self::TemplateLimit => "template_limit",
            Self::TooComplex => "too_complex",
            Self::Unsupported => "unsupported",
        }
    }

    /// What it means and what can be done, as a sentence for people.
    #[must_use]
    pub fn explain(self) -> &'static str {
        match self {
            Self::InvalidJson => {
                "the body is not JSON that can be read (broken, nested too deeply, lone surrogates or NaN)"
            }
            Self::InvalidRequest => {
                "the body is JSON, but not a request that the engine would take; it answers with an error as well"
            }
            Self::Multimodal => {
                "the request has images, audio or video whose placeholders only the engine can expand"
            }
            Self::PromptEmbeds => "the prompt is given as embeddings, which have no text",
            Self::StoredHistory => {
                "previous_response_id: only the engine that gave that answer knows what was said before"
            }
            Self::Truncated => {
                "truncate_prompt_tokens keeps the end of the prompt, so that it has no prefix to share"
            }
            Self::RequestTemplate => {
                "the request brings a chat template of its own, which is not run in the gateway"
            }
            Self::NoTemplate => {
                "the model's folder has no chat template: add chat_template.jinja, or the engine's --chat-template"
            }
            Self::PredictedOnly => {
                "the model's folder tells of something that cannot be reproduced exactly"
            }
            Self::TemplateError => {
                "the chat template refused the conversation (then the engine answers with an error as well), or uses something that is not reproduced here"
            }
            Self::TemplateLimit => {
                "the chat template used more work or memory than the gateway allows it"
            }
            Self::TooComplex => {
                "the body has more than 6 MiB, or so many values that reading them would hold up the gateway"
            }
            Self::Unsupported => {
                "the request uses something that the engine handles in a way that is not reproduced"
            }
        }
    }
}

impl core::fmt::Display for Skip {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Skip {}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod corpus_tests;
#[cfg(test)]
mod jinja_tests;
#[cfg(all(test, not(target_arch = "wasm32")))]
#[expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, too"
)]
mod property_tests;
#[cfg(test)]
mod tests;
