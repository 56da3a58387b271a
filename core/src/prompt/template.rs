//! One chat template, compiled, in an environment that behaves as Hugging Face's Jinja2.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind};

use super::Skip;
use super::clock::Clock;
use super::{detect, filters, markup, methods, source};

/// Work that one render may do: instructions, and 64-byte pieces of what it writes. A chat of 400 KB
/// needs some ten thousand.
const FUEL: u64 = 2_000_000;
/// Most bytes a render may give: a floor, and a multiple of the request's size.
const BASE_OUTPUT_BYTES: usize = 1 << 20;
const OUTPUT_PER_BODY_BYTE: usize = 8;

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
        env.set_fuel(Some(FUEL));
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
        })
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
        let template = self.env.get_template(NAME).map_err(skip)?;
        let most =
            BASE_OUTPUT_BYTES.saturating_add(body_bytes.saturating_mul(OUTPUT_PER_BODY_BYTE));
        let mut out = Bounded {
            bytes: Vec::with_capacity(body_bytes),
            most,
            full: false,
        };
        let rendered = template.render_captured_to(Value::from_pairs(variables), &mut out);
        match rendered.map(drop) {
            Err(_) if out.full => return Err(Skip::TemplateLimit),
            other => other.map_err(skip)?,
        }
        String::from_utf8(out.bytes).map_err(|_| Skip::TemplateError)
    }
}

/// Output that refuses to grow beyond a size.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.most - self.bytes.len() {
            self.full = true;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn skip(error: Error) -> Skip {
    match error.kind() {
        ErrorKind::OutOfFuel => Skip::TemplateLimit,
        _ => Skip::TemplateError,
    }
}
