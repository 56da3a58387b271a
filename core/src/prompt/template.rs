//! One chat template, compiled, in an environment that behaves as Hugging Face's Jinja2.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind};

use super::Skip;
use super::clock::Clock;
use super::{detect, filters, markup, methods, source};

/// Work that any render may do: instructions, and 64-byte pieces of text that it makes. A chat of
/// 400 KB needs some ten thousand.
const BASE_FUEL: u64 = 300_000;
/// Work allowed on top for each byte of the request: some templates loop over content that is a
/// string, so character by character. Memory is bounded too, since text costs fuel.
const FUEL_PER_BODY_BYTE: u64 = 8;
/// No request gets more than this: in V8 about 15 ns each, so about 0.1 s, in which the gateway's
/// worker does nothing else.
const FUEL_MAX: u64 = 6_000_000;

const NAME: &str = "chat";

/// A compiled template and what can be told from its source.
#[derive(Debug)]
pub(super) struct Template {
    env: Environment<'static>,
    /// It loops over a message's content, so that it takes lists of parts.
    pub(super) takes_parts: bool,
    /// It mentions the `developer` role.
    pub(super) knows_developer: bool,
    /// It mentions `content`: continuing the final message is possible.
    pub(super) mentions_content: bool,
    shows_time: bool,
    /// It has no `generation` blocks.
    is_plain_jinja: bool,
}

impl Template {
    /// Compiles a template as its publisher wrote it.
    ///
    /// # Errors
    /// Where its syntax is wrong.
    pub(super) fn compile(text: &str) -> Result<Self, Error> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?;
        env.set_syntax(syntax);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_formatter(filters::format);
        env.set_unknown_method_callback(methods::call);
        env.set_debug(false);
        filters::add_to(&mut env);
        let adapted = markup::escape_sums(&source::adapt(text), env.syntax().clone());
        let takes_parts = detect::takes_parts(&adapted, env.syntax().clone());
        env.add_template_owned(NAME, adapted)?;
        Ok(Self {
            env,
            takes_parts,
            knows_developer: text.contains("\"developer\"") || text.contains("'developer'"),
            mentions_content: text.contains("content"),
            shows_time: text.contains("strftime_now"),
            is_plain_jinja: !NOT_PLAIN.iter().any(|tag| text.contains(tag)),
        })
    }

    /// A system message may stand after other messages, as far as the engine can tell when it
    /// starts: it asks with plain Jinja2, without special tokens, the time and other extensions.
    pub(super) fn takes_inline_system(&self) -> bool {
        if !self.is_plain_jinja {
            return false;
        }
        let message =
            |role: &str| Value::from_pairs([("role", Value::from(role)), ("content", "t".into())]);
        let messages = ["system", "user", "system", "user"].map(message);
        let variables = Value::from_pairs([
            ("messages", Value::from(messages.to_vec())),
            ("add_generation_prompt", Value::from(false)),
        ]);
        let mut env = self.env.clone();
        env.set_fuel(Some(BASE_FUEL));
        let template = env.get_template(NAME);
        template.is_ok_and(|template| template.render(variables).is_ok())
    }

    /// Runs it. `variables` is complete but for `strftime_now`; `body_bytes` is the size of the
    /// request, by which work and output are limited.
    ///
    /// # Errors
    /// [`Skip::TemplateError`] or [`Skip::TemplateLimit`].
    pub(super) fn render(
        &self,
        mut variables: Vec<(Value, Value)>,
        clock: Clock,
        body_bytes: usize,
    ) -> Result<String, Skip> {
        if self.shows_time
            && !variables
                .iter()
                .any(|(name, _)| name.as_str() == Some("strftime_now"))
        {
            let now = Value::from_function(move |format: &str| clock.strftime(format));
            variables.push((Value::from("strftime_now"), now));
        }
        // Cheap: everything in it is shared.
        let mut env = self.env.clone();
        let body_bytes = u64::try_from(body_bytes).unwrap_or(u64::MAX);
        let fuel = body_bytes
            .saturating_mul(FUEL_PER_BODY_BYTE)
            .saturating_add(BASE_FUEL)
            .min(FUEL_MAX);
        env.set_fuel(Some(fuel));
        let template = env.get_template(NAME).map_err(skip)?;
        template.render(Value::from_pairs(variables)).map_err(skip)
    }
}

/// vLLM asks with plain Jinja2, in which these are not there.
const NOT_PLAIN: [&str; 2] = ["generation %}", "generation -%}"];

fn skip(error: Error) -> Skip {
    match error.kind() {
        ErrorKind::OutOfFuel => Skip::TemplateLimit,
        _ => Skip::TemplateError,
    }
}
