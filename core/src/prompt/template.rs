//! One chat template, compiled, in an environment that behaves as Hugging Face's Jinja2.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind};

use super::Skip;
use super::clock::Clock;
use super::work::{BASE_FUEL, Work};
use super::{detect, filters, markup, methods, source};

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

    /// Runs it. `variables` is complete but for `strftime_now`; fuel is taken from `work`.
    ///
    /// # Errors
    /// [`Skip::TemplateError`] or [`Skip::TemplateLimit`].
    pub(super) fn render(
        &self,
        mut variables: Vec<(Value, Value)>,
        clock: Clock,
        work: &Work,
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
        env.set_fuel(Some(work.fuel()));
        let template = env.get_template(NAME).map_err(|error| skip(&error))?;
        let variables = Value::from_pairs(variables);
        work.set_fuel(0);
        let done = template.render_captured(variables).map_err(|error| {
            let why = skip(&error);
            work.note_failure(error);
            why
        })?;
        let fuel = done.state().fuel_levels();
        work.set_fuel(fuel.map_or(0, |(_, left)| left));
        Ok(done.into_output())
    }
}

/// vLLM asks with plain Jinja2, in which these are not there.
const NOT_PLAIN: [&str; 2] = ["generation %}", "generation -%}"];

fn skip(error: &Error) -> Skip {
    match error.kind() {
        ErrorKind::OutOfFuel => Skip::TemplateLimit,
        _ => Skip::TemplateError,
    }
}
