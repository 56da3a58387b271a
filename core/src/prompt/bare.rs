//! A chat template on its own, without a model's profile: what Hugging Face's
//! `render_jinja_template` gives, for tools and for comparison with Python.
//!
//! Messages reach the template as they are written; nothing of what vLLM does to them before happens
//! here.

use std::collections::BTreeMap;

use minijinja::value::Value;

use super::clock::Clock;
use super::request::{field, pairs};
use super::template::Template;
use super::work::Work;
use super::{ProfileError, Skip};

/// The special tokens that the template sees.
const SPECIAL_TOKENS: [(&str, &str); 4] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("pad_token", "<pad>"),
    ("unk_token", "<unk>"),
];

/// A compiled template.
#[derive(Debug)]
pub struct BareTemplate(Template);

impl BareTemplate {
    /// Compiles a template as its publisher wrote it.
    ///
    /// # Errors
    /// [`ProfileError::Template`] where its syntax is wrong.
    pub fn compile(source: &str) -> Result<Self, ProfileError> {
        let compiled = Template::compile(source).map_err(|source| ProfileError::Template {
            name: "default".to_owned(),
            source,
        })?;
        Ok(Self(compiled))
    }

    /// Renders one conversation: a JSON object with `messages`, and perhaps `tools` and `kwargs`
    /// (more variables). The template also sees `documents=None` and the special tokens `<s>`,
    /// `</s>`, `<pad>`, `<unk>`. `now_unix_s` is the local time that `strftime_now` shows, in seconds
    /// since 1970 as if it were UTC.
    ///
    /// # Errors
    /// [`Skip::InvalidJson`], [`Skip::InvalidRequest`] (no list of messages), [`Skip::TemplateError`]
    /// or [`Skip::TemplateLimit`].
    pub fn render(&self, conversation: &[u8], now_unix_s: i64) -> Result<String, Skip> {
        self.render_with(conversation, now_unix_s, &Work::unlimited())
    }

    /// What it says when it fails: its message and the line in its source, for people. `None` if it does
    /// not fail.
    #[must_use]
    pub fn failure(&self, conversation: &[u8], now_unix_s: i64) -> Option<String> {
        let work = Work::unlimited();
        self.render_with(conversation, now_unix_s, &work).err()?;
        work.failure()
    }

    fn render_with(
        &self,
        conversation: &[u8],
        now_unix_s: i64,
        work: &Work,
    ) -> Result<String, Skip> {
        let value = work.read_json(conversation)?;
        let variables = variables(&value)?;
        self.0.render(variables, Clock::at(now_unix_s, 0), work)
    }
}

fn variables(conversation: &Value) -> Result<Vec<(Value, Value)>, Skip> {
    let get = |name: &str| field(conversation, name);
    let mut variables: BTreeMap<Value, Value> = get("kwargs").iter().flat_map(pairs).collect();
    for (name, text) in SPECIAL_TOKENS {
        variables.insert(name.into(), text.into());
    }
    let messages = get("messages").ok_or(Skip::InvalidRequest)?;
    // transformers itself adds this alias.
    let messages = messages
        .try_iter()
        .map_err(|_| Skip::InvalidRequest)?
        .map(|message| {
            let reasoning =
                field(&message, "reasoning").map(|text| (Value::from("thinking"), text));
            Value::from_pairs(reasoning.into_iter().chain(pairs(&message)))
        });
    variables.insert("messages".into(), messages.collect());
    variables.insert(
        "tools".into(),
        get("tools").unwrap_or_else(|| Value::from(())),
    );
    variables.insert("documents".into(), ().into());
    Ok(variables.into_iter().collect())
}
