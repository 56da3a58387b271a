//! A profile, compiled once, and the rendering of requests with it.

use std::collections::BTreeMap;

use minijinja::value::{Value, ValueKind};

use super::canonical::Canonicaliser;
use super::clock::Clock;
use super::request::field;
use super::template::Template;
use super::{
    Api, Capability, ContentFormat, ParsedRequest, Profile, Prompt, Skip, families, kwargs,
    messages, tools,
};

/// What transformers puts at the end of a message that is to be continued, to find it again.
const CONTINUE_MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A chat, whatever interface it came by.
#[derive(Debug)]
pub(super) struct Chat<'r> {
    /// The interface.
    #[allow(dead_code)]
    pub(super) api: Api,
    /// The request as the client sent it.
    #[allow(dead_code)]
    pub(super) original: &'r Value,
    /// The same in the shape of chat completions: what the engine makes of it before rendering.
    pub(super) body: Value,
    /// The tokenizer adds its special tokens (BOS), unless the request says otherwise.
    pub(super) special_tokens: bool,
    /// Size of the request's body.
    pub(super) bytes: usize,
}

/// A [`Profile`] whose templates are compiled.
#[derive(Debug)]
pub struct CompiledProfile {
    profile: Profile,
    template: Option<Template>,
    tool_template: Option<Template>,
    special_tokens: Vec<(Value, Value)>,
    default_kwargs: Vec<(Value, Value)>,
    canonical: Canonicaliser,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A template does not compile.
    #[error("chat template {name:?} does not compile")]
    Template {
        /// `default`, or the name in [`Profile::named_templates`].
        name: String,
        /// Where and why.
        #[source]
        source: minijinja::Error,
    },
}

impl CompiledProfile {
    /// Compiles the templates of a profile.
    ///
    /// # Errors
    /// [`ProfileError::Template`] names the template that does not compile, and where.
    pub fn compile(profile: &Profile) -> Result<Self, ProfileError> {
        let compile = |name: &str, source: Option<&String>| {
            let template = source.map(|source| Template::compile(source)).transpose();
            template.map_err(|source| ProfileError::Template {
                name: name.to_owned(),
                source,
            })
        };
        let named = &profile.named_templates;
        let default = profile
            .chat_template
            .as_ref()
            .or_else(|| named.get("default"));
        let text = |(name, text): (&String, &String)| {
            (Value::from(name.as_str()), Value::from(text.as_str()))
        };
        Ok(Self {
            template: compile("default", default)?,
            tool_template: compile("tool_use", named.get("tool_use"))?,
            special_tokens: profile.special_tokens.iter().map(text).collect(),
            default_kwargs: default_kwargs(&profile.default_chat_template_kwargs),
            canonical: Canonicaliser::new(&profile.canonical),
            profile: profile.clone(),
        })
    }

    /// The profile this was compiled from.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The prompt that the engine will see, or why it cannot be told.
    ///
    /// `now_unix_s` is the time that a template's `strftime_now` shows, in seconds since 1970.
    ///
    /// # Errors
    /// Every [`Skip`] but [`Skip::InvalidJson`].
    pub fn render(&self, request: &ParsedRequest, now_unix_s: i64) -> Result<Prompt, Skip> {
        if field(&request.body, "truncate_prompt_tokens").is_some() {
            return Err(Skip::Truncated);
        }
        match request.api {
            Api::ChatCompletions => {
                let chat = Chat {
                    api: request.api,
                    original: &request.body,
                    body: request.body.clone(),
                    special_tokens: false,
                    bytes: request.bytes,
                };
                let text = self.render_chat(&chat, now_unix_s)?;
                Ok(Prompt::Text(text.into()))
            }
            Api::Completions => self.render_completion(&request.body),
            Api::Responses | Api::Messages | Api::Embeddings | Api::Pooling | Api::Tokenize => {
                Err(Skip::Unsupported)
            }
        }
    }

    fn render_chat(&self, chat: &Chat, now_unix_s: i64) -> Result<String, Skip> {
        exact(&self.profile.chat)?;
        let text = match families::render(&self.profile, chat, &self.default_kwargs, now_unix_s)? {
            Some(text) => text,
            None => self.render_template(chat, now_unix_s)?,
        };
        if self.profile.renderer.makes_token_ids() {
            return Ok(text);
        }
        let special_tokens =
            field(&chat.body, "add_special_tokens").map_or(chat.special_tokens, |v| v.is_true());
        Ok(self.canonical.apply(text, special_tokens))
    }

    fn render_template(&self, chat: &Chat, now_unix_s: i64) -> Result<String, Skip> {
        let body = &chat.body;
        if field(body, "chat_template").is_some() {
            return Err(Skip::RequestTemplate);
        }
        let mut given = kwargs::merge(body, &self.special_tokens, &self.default_kwargs)?;
        let tools = tools::normalise(body, self.profile.exclude_tools_when_tool_choice_none)?;
        let template = match (&tools, &self.tool_template) {
            (Some(_), Some(template)) => template,
            _ => self.template.as_ref().ok_or(Skip::NoTemplate)?,
        };
        let as_parts = match self.profile.content_format {
            ContentFormat::Auto => template.takes_parts,
            ContentFormat::String => false,
            ContentFormat::Openai => true,
        };
        let messages = field(body, "messages").ok_or(Skip::InvalidRequest)?;
        let mut messages = messages::normalise(&messages, as_parts)?;
        if !template.knows_developer && messages.iter().any(|m| m.is_role("developer")) {
            messages = messages::without_developer(messages);
        }
        let mut continued = None;
        if given.continue_final_message {
            let last = messages.last_mut().filter(|_| template.mentions_content);
            let text = last.and_then(|message| message.mark(CONTINUE_MARK));
            continued = Some(text.ok_or(Skip::InvalidRequest)?);
        }
        let messages: Vec<Value> = messages.into_iter().map(|m| m.into_value()).collect();
        given
            .variables
            .push(("tools".into(), tools.unwrap_or_else(|| Value::from(()))));
        given
            .variables
            .push(("messages".into(), Value::from(messages)));
        let clock = Clock::at(now_unix_s, self.profile.utc_offset_minutes);
        let mut text = template.render(given.variables, clock, chat.bytes)?;
        if let Some(final_text) = continued {
            cut_at_mark(&mut text, &final_text)?;
        }
        Ok(text)
    }

    /// The engine wants text on both sides, and no echo.
    fn fill_in_the_middle(
        &self,
        body: &Value,
        prompt: &Value,
        suffix: &Value,
    ) -> Result<Value, Skip> {
        let suffix = suffix.as_str().ok_or(Skip::InvalidRequest)?;
        let renderer = &self.profile.renderer;
        let prompt = prompt.as_str().ok_or(Skip::InvalidRequest)?;
        let text = families::fill_in_the_middle(renderer, prompt, suffix);
        let text = text.ok_or(Skip::Unsupported)?;
        if field(body, "echo").is_some_and(|echo| echo.is_true()) {
            return Err(Skip::InvalidRequest);
        }
        Ok(Value::from(text))
    }

    fn render_completion(&self, body: &Value) -> Result<Prompt, Skip> {
        if field(body, "prompt_embeds").is_some() {
            return Err(Skip::PromptEmbeds);
        }
        let prompt = field(body, "prompt").ok_or(Skip::InvalidRequest)?;
        // Of several prompts, each a request of its own to the engine, the first decides.
        let prompt = match prompt.kind() {
            ValueKind::Seq => {
                let first = prompt
                    .get_item_by_index(0)
                    .map_err(|_| Skip::InvalidRequest)?;
                if first.kind() == ValueKind::Number {
                    prompt
                } else {
                    first
                }
            }
            _ => prompt,
        };
        // Only fill-in-the-middle renderers take it, each in its own way.
        let suffix = field(body, "suffix");
        let prompt = match &suffix {
            Some(suffix) => self.fill_in_the_middle(body, &prompt, suffix)?,
            None => prompt,
        };
        if let Some(text) = prompt.as_str() {
            exact(&self.profile.completions)?;
            let special_tokens = field(body, "add_special_tokens").is_none_or(|v| v.is_true());
            let text = self.canonical.apply(text.to_owned(), special_tokens);
            return Ok(Prompt::Text(text.into()));
        }
        if prompt.kind() != ValueKind::Seq || prompt.len() == Some(0) {
            return Err(Skip::InvalidRequest);
        }
        exact(&self.profile.token_ids)?;
        let ids = prompt.try_iter().map_err(|_| Skip::InvalidRequest)?;
        let ids = ids.map(|id| u32::try_from(id).map_err(|_| Skip::InvalidRequest));
        ids.collect::<Result<_, _>>().map(Prompt::TokenIds)
    }
}

fn exact(capability: &Capability) -> Result<(), Skip> {
    match capability {
        Capability::Exact => Ok(()),
        Capability::PredictedOnly { .. } => Err(Skip::PredictedOnly),
    }
}

/// Through JSON text, so that a number is the same kind of number as in a request.
fn default_kwargs(kwargs: &BTreeMap<String, serde_json::Value>) -> Vec<(Value, Value)> {
    let value = |json: &serde_json::Value| {
        let text = serde_json::to_string(json).ok()?;
        serde_json::from_str::<Value>(&text).ok()
    };
    let pair = |(name, json): (&String, _)| Some((Value::from(name.as_str()), value(json)?));
    kwargs.iter().filter_map(pair).collect()
}

/// Ends the text where the message that is to be continued ends.
fn cut_at_mark(text: &mut String, final_text: &str) -> Result<(), Skip> {
    if !text.contains(final_text.trim_matches(super::python::is_space)) {
        return Err(Skip::InvalidRequest);
    }
    let mark = CONTINUE_MARK.trim_end();
    let at = text.rfind(mark).ok_or(Skip::InvalidRequest)?;
    let whole = text
        .get(at..)
        .is_some_and(|tail| tail.starts_with(CONTINUE_MARK));
    text.truncate(at);
    if !whole {
        // The template trimmed the message, and with it the end of the mark.
        text.truncate(text.trim_end_matches(super::python::is_space).len());
    }
    Ok(())
}
