//! A profile, compiled once, and the rendering of requests with it.

mod probe;

use std::collections::BTreeMap;

use minijinja::value::{Value, ValueKind};

use super::apis::{self, Input, Probes};
use super::canonical::Canonicaliser;
use super::clock::Clock;
use super::content::ContentStyle;
use super::media::{Item, Stand, UNKNOWN};
use super::request::field;
use super::template::Template;
use super::work::Work;
use super::{
    Api, Capability, ContentFormat, ParsedRequest, Profile, Prompt, PromptText, Skip, families,
    forwarded, kwargs, media, messages, tools, truncation,
};

/// What transformers puts at the end of a message that is to be continued, to find it again.
const CONTINUE_MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Longest template that a request may bring, in bytes; the longest published ones are shorter.
const REQUEST_TEMPLATE_MAX: usize = 64 << 10;

/// A chat, whatever interface it came by.
#[derive(Debug)]
pub(super) struct Chat<'r> {
    /// The interface.
    pub(super) api: Api,
    /// The request as the client sent it.
    pub(super) original: &'r Value,
    /// The same in the shape of chat completions: what the engine makes of it before rendering.
    pub(super) body: Value,
    /// The tokenizer adds its special tokens (BOS), unless the request says otherwise.
    pub(super) special_tokens: bool,
    /// What it may still cost.
    pub(super) work: &'r Work,
}

impl Chat<'_> {
    /// The tools as the template sees them; `None` if it sees none.
    ///
    /// # Errors
    /// [`Skip::InvalidRequest`] for what the engine refuses.
    pub(super) fn tools(&self, profile: &Profile) -> Result<Option<Value>, Skip> {
        let may_be_empty = self.api != Api::ChatCompletions;
        let hide_if_none = profile.exclude_tools_when_tool_choice_none;
        tools::normalise(&self.body, hide_if_none, may_be_empty, &profile.rules)
    }

    /// `--default-chat-template-kwargs` apply.
    fn has_server_defaults(&self) -> bool {
        !matches!(self.api, Api::Embeddings | Api::Pooling)
    }

    /// In responses the engine merges twice, and skips the first time if it has no defaults.
    pub(super) fn keeps_unset(&self, defaults: &[(Value, Value)]) -> bool {
        self.api == Api::Responses && defaults.is_empty()
    }

    pub(super) fn style<'s>(&'s self, content: ContentStyle<'s>) -> messages::Style<'s> {
        messages::Style {
            content,
            work: self.work,
            validated: self.api != Api::Responses,
            reasoning_content: matches!(self.api, Api::ChatCompletions | Api::Messages),
        }
    }
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
    probes: Probes,
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
        let mut compiled = Self {
            template: compile("default", default)?,
            tool_template: compile("tool_use", named.get("tool_use"))?,
            special_tokens: profile.special_tokens.iter().map(text).collect(),
            default_kwargs: default_kwargs(&profile.default_chat_template_kwargs),
            canonical: Canonicaliser::new(&profile.canonical),
            profile: profile.clone(),
            probes: Probes::default(),
        };
        compiled.probe();
        Ok(compiled)
    }

    /// The profile this was compiled from.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The prompt that the engine will see, or why it cannot be told. Of several prompts, each a
    /// request of its own to the engine, the first.
    ///
    /// `now_unix_s` is the time that a template's `strftime_now` shows, in seconds since 1970.
    ///
    /// # Errors
    /// Every [`Skip`] but [`Skip::InvalidJson`].
    pub fn render(&self, request: &ParsedRequest, now_unix_s: i64) -> Result<Prompt, Skip> {
        let mut prompts = self.render_all(request, now_unix_s, 1);
        prompts.pop().unwrap_or(Err(Skip::InvalidRequest))
    }

    /// All prompts of a request in order, `max` at most. There is always one, be it a [`Skip`].
    pub fn render_all(
        &self,
        request: &ParsedRequest,
        now_unix_s: i64,
        max: usize,
    ) -> Vec<Result<Prompt, Skip>> {
        let work = Work::new(request.bytes, request.values_left);
        self.render_with(request, now_unix_s, max, &work)
    }

    /// What the template says when it fails at the first prompt: its message and the line in its
    /// source, for people. `None` if it does not fail.
    #[must_use]
    pub fn template_failure(&self, request: &ParsedRequest, now_unix_s: i64) -> Option<String> {
        let work = Work::new(request.bytes, request.values_left);
        self.render_with(request, now_unix_s, 1, &work);
        work.failure()
    }

    fn render_with(
        &self,
        request: &ParsedRequest,
        now_unix_s: i64,
        max: usize,
        work: &Work,
    ) -> Vec<Result<Prompt, Skip>> {
        match apis::inputs(request, &self.probes, &self.profile.rules, max, work) {
            Err(skip) => vec![Err(skip)],
            Ok(inputs) if inputs.is_empty() => vec![Err(Skip::InvalidRequest)],
            Ok(inputs) => {
                let render = |input| self.render_input(request, input, work, now_unix_s);
                inputs.into_iter().map(render).collect()
            }
        }
    }

    fn render_input(
        &self,
        request: &ParsedRequest,
        input: Input,
        work: &Work,
        now_unix_s: i64,
    ) -> Result<Prompt, Skip> {
        match input {
            Input::Chat(chat) => {
                if let Some(ids) = forwarded::token_ids(&chat, &self.profile.rules)? {
                    exact(&self.profile.token_ids)?;
                    return Ok(Prompt::TokenIds(token_ids(&ids)?));
                }
                exact(&self.profile.chat)?;
                let prompt = self.render_with_media(&chat, now_unix_s)?;
                let truncation = truncation::of(&chat.body, chat.api)?;
                truncation.text(&prompt.text, self.profile.max_model_len)?;
                Ok(Prompt::Text(prompt))
            }
            Input::Text {
                text,
                special_tokens,
            } => {
                exact(&self.profile.completions)?;
                let text = text.as_str().ok_or(Skip::InvalidRequest)?;
                let text = match suffix(request) {
                    Some(suffix) => self.fill_in_the_middle(&request.body, text, &suffix)?,
                    None => text.to_owned(),
                };
                let text = self.canonical.apply(text, special_tokens, work)?;
                let truncation = truncation::of(&request.body, request.api)?;
                truncation.text(&text, self.profile.max_model_len)?;
                Ok(Prompt::Text(text.into()))
            }
            Input::Ids(ids) => {
                exact(&self.profile.token_ids)?;
                if suffix(request).is_some() {
                    return Err(Skip::InvalidRequest);
                }
                let ids = token_ids(&ids)?;
                let truncation = truncation::of(&request.body, request.api)?;
                let ids = truncation.ids(ids, self.profile.max_model_len)?;
                Ok(Prompt::TokenIds(ids))
            }
        }
    }

    fn render_with_media(&self, chat: &Chat, now_unix_s: i64) -> Result<PromptText, Skip> {
        let stand = Stand::of(&self.profile);
        let (text, items) = self.render_chat(chat, now_unix_s, stand)?;
        if items.is_empty() {
            return Ok(text.into());
        }
        let named = media::uuids_are_identifiers(chat.original);
        if let Some(prompt) = media::locate(&text, &items, &self.profile, named) {
            return Ok(prompt);
        }
        let other = Stand {
            unknown: UNKNOWN[1],
            replace_first: true,
            ..stand
        };
        let (other, _) = self.render_chat(chat, now_unix_s, other)?;
        let exact_bytes = media::exact_before_first(&text, &other, &self.profile);
        Ok(PromptText {
            exact_bytes,
            ..text.into()
        })
    }

    /// Canonical text, and the media in it.
    fn render_chat(
        &self,
        chat: &Chat,
        now_unix_s: i64,
        stand: Stand,
    ) -> Result<(String, Vec<Item>), Skip> {
        let mut items = Vec::new();
        let defaults = self.defaults(chat);
        let text = match families::render(&self.profile, chat, defaults, now_unix_s)? {
            Some(text) => text,
            None => self.render_template(chat, now_unix_s, stand, &mut items)?,
        };
        if self.profile.renderer.makes_token_ids() {
            return Ok((text, items));
        }
        let special_tokens =
            field(&chat.body, "add_special_tokens").map_or(chat.special_tokens, |v| v.is_true());
        let text = self.canonical.apply(text, special_tokens, chat.work)?;
        Ok((text, items))
    }

    fn defaults(&self, chat: &Chat) -> &[(Value, Value)] {
        if chat.has_server_defaults() {
            &self.default_kwargs
        } else {
            &[]
        }
    }

    fn render_template(
        &self,
        chat: &Chat,
        now_unix_s: i64,
        stand: Stand,
        items: &mut Vec<Item>,
    ) -> Result<String, Skip> {
        let body = &chat.body;
        let own = self.request_template(body)?;
        let defaults = self.defaults(chat);
        let mut given = kwargs::merge(
            body,
            &self.special_tokens,
            defaults,
            chat.keeps_unset(defaults),
            &self.profile,
        )?;
        let tools = chat.tools(&self.profile)?;
        let template = match (&own, &tools, &self.tool_template) {
            (Some(template), ..) | (None, Some(_), Some(template)) => template,
            _ => self.template.as_ref().ok_or(Skip::NoTemplate)?,
        };
        let as_parts = match self.profile.content_format {
            ContentFormat::Auto => template.takes_parts,
            ContentFormat::String => false,
            ContentFormat::Openai => true,
        };
        let messages = field(body, "messages").ok_or(Skip::InvalidRequest)?;
        let content = ContentStyle {
            as_parts,
            rules: &self.profile.rules,
            stand,
        };
        let mut messages = messages::normalise(&messages, chat.style(content), items)?;
        let rules = &self.profile.rules;
        let knows_developer = template.knows_developer || !rules.developer_becomes_system;
        if !knows_developer && messages.iter().any(|m| m.is_role("developer")) {
            messages = messages::without_developer(messages);
        }
        let mut continued = None;
        if given.continue_final_message {
            let last = messages.last_mut().filter(|_| template.mentions_content);
            let text = last.and_then(|message| message.mark(CONTINUE_MARK));
            continued = Some(text.ok_or(Skip::InvalidRequest)?);
        }
        let messages = messages.into_iter();
        let messages: Vec<Value> = messages
            .map(|m| m.into_value(&self.profile.rules))
            .collect();
        given
            .variables
            .push(("tools".into(), tools.unwrap_or_else(|| Value::from(()))));
        given
            .variables
            .push(("messages".into(), Value::from(messages)));
        let clock = Clock::at(now_unix_s, self.profile.utc_offset_minutes);
        let mut text = template.render(given.variables, clock, chat.work)?;
        if let Some(final_text) = continued {
            cut_at_mark(&mut text, &final_text)?;
        }
        Ok(text)
    }

    /// The engine wants text on both sides, and no echo.
    fn fill_in_the_middle(
        &self,
        body: &Value,
        prompt: &str,
        suffix: &Value,
    ) -> Result<String, Skip> {
        let suffix = suffix.as_str().ok_or(Skip::InvalidRequest)?;
        let text = families::fill_in_the_middle(&self.profile.renderer, prompt, suffix);
        let text = text.ok_or(Skip::Unsupported)?;
        if field(body, "echo").is_some_and(|echo| echo.is_true()) {
            return Err(Skip::InvalidRequest);
        }
        Ok(text)
    }

    /// The request's own template, where the engine trusts it. Compiled each time: such requests
    /// are rare, and no client may fill a cache.
    fn request_template(&self, body: &Value) -> Result<Option<Template>, Skip> {
        let Some(source) = field(body, "chat_template") else {
            return Ok(None);
        };
        if !self.profile.trust_request_chat_template {
            return Err(Skip::RequestTemplate);
        }
        match source.as_str() {
            // The engine takes its own, too.
            Some("") => Ok(None),
            Some(source) if source.len() > REQUEST_TEMPLATE_MAX => Err(Skip::TemplateLimit),
            Some(source) => match Template::compile(source) {
                Ok(template) => Ok(Some(template)),
                Err(_) => Err(Skip::TemplateError),
            },
            None => Err(Skip::InvalidRequest),
        }
    }
}

/// Only fill-in-the-middle renderers take it, each in its own way.
fn suffix(request: &ParsedRequest) -> Option<Value> {
    let has = request.api == Api::Completions;
    has.then(|| field(&request.body, "suffix")).flatten()
}

fn token_ids(ids: &Value) -> Result<Vec<u32>, Skip> {
    if ids.kind() != ValueKind::Seq || ids.len() == Some(0) {
        return Err(Skip::InvalidRequest);
    }
    let ids = ids.try_iter().map_err(|_| Skip::InvalidRequest)?;
    let ids = ids.map(|id| u32::try_from(id).map_err(|_| Skip::InvalidRequest));
    ids.collect()
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
