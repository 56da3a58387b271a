//! Filters and tests where minijinja and Jinja2 differ, beside `tojson`.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State};

use super::methods::strip;
use super::python::{to_str, write_str};
use super::tojson::tojson;

/// Puts them into an environment.
pub(super) fn add_to(env: &mut Environment<'_>) {
    env.add_filter("tojson", tojson);
    env.add_filter("string", |value: &Value| -> Result<Value, Error> {
        if value.as_str().is_some() {
            Ok(value.clone())
        } else {
            to_str(value).map(Value::from)
        }
    });
    env.add_filter(
        "trim",
        |value: &Value, chars: Option<Value>| -> Result<Value, Error> {
            let value = to_text(value)?;
            let text = value.as_str().unwrap_or_default();
            let kept = strip(text, chars.as_ref(), true, true)?;
            // Mostly there is nothing to trim, and long text need not be copied.
            Ok(if kept.len() == text.len() && !value.is_safe() {
                value
            } else {
                Value::from(kept)
            })
        },
    );
    env.add_filter("join", join);
    env.add_filter("int", int);
    env.add_filter("e", escape);
    env.add_filter("escape", escape);
    env.add_filter("forceescape", |value: &Value| {
        escape(&Value::from(to_str(value)?))
    });
    // Python's lays out what is long; no template is known to use it.
    env.remove_filter("pprint");
    env.add_function(
        "raise_exception",
        |message: Option<Value>| -> Result<Value, Error> {
            let message = message.map(|v| v.to_string()).unwrap_or_default();
            Err(Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    env.add_test("iterable", |value: &Value| {
        !value.is_none() && (value.is_undefined() || value.try_iter().is_ok())
    });
    // Jinja2 asks for a length and for items by key: strings and dicts have both.
    env.add_test("sequence", |value: &Value| {
        value.is_undefined()
            || matches!(
                value.kind(),
                ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::String
            )
    });
}

/// How `{{ value }}` is written out.
///
/// # Errors
/// As [`write_str`], or when the output refuses more.
pub(super) fn format(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    let written = if let Some(text) = value.as_str() {
        out.write_str(text)
    } else {
        let mut text = String::new();
        write_str(&mut text, value)?;
        out.write_str(&text)
    };
    written.map_err(|_| Error::from(ErrorKind::WriteFailure))
}

fn to_text(value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() {
        Ok(value.clone())
    } else {
        to_str(value).map(Value::from)
    }
}

/// `value|join(d='', attribute=None)`: `str()` of every item.
fn join(
    state: &mut State,
    value: &Value,
    separator: Option<Value>,
    attribute: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let separator = match separator.or(kwargs.get("d")?) {
        Some(separator) => to_str(&separator)?,
        None => String::new(),
    };
    let attribute = attribute
        .or(kwargs.get("attribute")?)
        .filter(|v| !v.is_none());
    kwargs.assert_all_used()?;
    let items = match attribute {
        Some(attribute) => {
            let name = Kwargs::from_iter([("attribute", attribute)]);
            state.apply_filter("map", &[value.clone(), Value::from(name)])?
        }
        None => value.clone(),
    };
    let mut out = String::new();
    for (n, item) in items.try_iter()?.checked().enumerate() {
        let before = out.len();
        if n > 0 {
            out.push_str(&separator);
        }
        write_str(&mut out, &item?)?;
        let written = (out.len() - before) / 64;
        state.consume_fuel(u64::try_from(written).unwrap_or(u64::MAX))?;
    }
    Ok(Value::from(out))
}

/// `value|int(default=0, base=10)`: what is no number is the default.
fn int(
    state: &State,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = default
        .or(kwargs.get("default")?)
        .unwrap_or_else(|| Value::from(0));
    minijinja::filters::int(state, value, Some(default), base, kwargs)
}

/// `markupsafe.escape`.
fn escape(value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    let mut out = String::new();
    for c in to_str(value)?.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Ok(Value::from_safe_string(out))
}
