//! How Python writes values: `str()`, `repr()` and the shortest float that reads back.
//!
//! Templates print lists, dicts, booleans and floats, and the engine's Jinja2 prints them as Python
//! does.

use core::fmt::{self, Write};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Writes formatted text; to a string that cannot fail.
pub(super) fn put(out: &mut String, text: fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// Nesting that is written out before giving up. JSON itself is refused beyond 128.
pub(super) const MAX_DEPTH: usize = 256;

pub(super) fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, "value is nested too deeply")
}

/// A float, if the value is one. Integers are not.
pub(super) fn as_float(value: &Value) -> Option<f64> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        f64::try_from(value.clone()).ok()
    } else {
        None
    }
}

/// `str(value)`: strings as they are, everything else as `repr`.
///
/// # Errors
/// If the value is nested too deeply or cannot be iterated.
pub(super) fn write_str(out: &mut String, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => {
            out.push_str(text);
            Ok(())
        }
        None if value.is_undefined() => Ok(()),
        None => write_repr(out, value, 0),
    }
}

/// `str(value)` as a new string.
///
/// # Errors
/// As [`write_str`].
pub(super) fn to_str(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_str(&mut out, value)?;
    Ok(out)
}

/// `repr(value)`.
pub(super) fn write_repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::String => write_str_repr(out, value.as_str().unwrap_or_default()),
        ValueKind::Number => match as_float(value) {
            Some(float) => write_float(out, float),
            None => put(out, format_args!("{value}")),
        },
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()?.checked() {
                if count > 0 {
                    out.push_str(", ");
                }
                count += 1;
                write_repr(out, &item?, depth + 1)?;
            }
            if tuple && count == 1 {
                out.push(',');
            }
            out.push(if tuple { ')' } else { ']' });
        }
        ValueKind::Map => {
            out.push('{');
            let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
            for (n, (key, item)) in pairs.into_iter().flatten().enumerate() {
                if n > 0 {
                    out.push_str(", ");
                }
                write_repr(out, &key, depth + 1)?;
                out.push_str(": ");
                write_repr(out, &item, depth + 1)?;
            }
            out.push('}');
        }
        // None, True, False and objects of the engine.
        _ => put(out, format_args!("{value}")),
    }
    Ok(())
}

/// A float as Python's `repr` gives it.
pub(super) fn write_float(out: &mut String, float: f64) {
    if float.is_nan() {
        return out.push_str("nan");
    }
    if float.is_infinite() {
        return out.push_str(if float < 0.0 { "-inf" } else { "inf" });
    }
    // Rust gives the same shortest digits; only the layout differs.
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{float}");
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        put(out, format_args!("{mantissa}e{sign}{:02}", exponent.abs()));
    }
}

fn write_str_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                match code {
                    0..0x100 => put(out, format_args!("\\x{code:02x}")),
                    0x100..0x1_0000 => put(out, format_args!("\\u{code:04x}")),
                    _ => put(out, format_args!("\\U{code:08x}")),
                }
            }
        }
    }
    out.push(quote);
}

/// Python's `str.isprintable` for one character: Rust escapes the same classes. The letter before it
/// keeps combining marks from being escaped for standing first.
fn is_printable(c: char) -> bool {
    let text: String = ['a', c].iter().collect();
    !text.escape_debug().any(|escaped| escaped == '\\')
}

/// Python's `str.isspace` for one character.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
