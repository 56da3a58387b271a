//! Hugging Face's `tojson` filter: Python's `json.dumps` with non-ASCII text kept.

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, State};

use super::python::{MAX_DEPTH, as_float, put, too_deep, write_float};

struct Layout {
    ensure_ascii: bool,
    sort_keys: bool,
    /// White space for one level, if the output has lines.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
}

/// `value|tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
///
/// # Errors
/// For undefined and whatever else JSON cannot say.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    type Arguments = (
        Option<Value>,
        Option<Value>,
        Option<Value>,
        Option<Value>,
        Kwargs,
    );
    let args = args.into_values();
    let (ensure_ascii, indent, separators, sort_keys, kwargs): Arguments = from_args(&args)?;
    let option = |given: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        let value = match given {
            Some(value) => Some(value),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|v| !v.is_none() && !v.is_undefined()))
    };
    let ensure_ascii = option(ensure_ascii, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let sort_keys = option(sort_keys, "sort_keys")?.is_some_and(|v| v.is_true());
    let indent = option(indent, "indent")?.map(|value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(usize::try_from(value.as_i64().unwrap_or(0).clamp(0, 64)).unwrap_or(0)),
    });
    let mut layout = Layout {
        ensure_ascii,
        sort_keys,
        item_separator: if indent.is_some() { "," } else { ", " }.to_owned(),
        key_separator: ": ".to_owned(),
        indent,
    };
    if let Some(pair) = option(separators, "separators")? {
        let text = |n| {
            let item = pair.get_item_by_index(n)?;
            let text = item.as_str().map(str::to_owned);
            text.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "separators are strings"))
        };
        (layout.item_separator, layout.key_separator) = (text(0)?, text(1)?);
    }
    kwargs.assert_all_used()?;
    let mut out = String::new();
    layout.write(Some(state), &mut out, value, 0)?;
    Ok(Value::from(out))
}

/// Python's `json.dumps(value, ensure_ascii=False)`, appended.
///
/// # Errors
/// For what JSON cannot say.
pub(super) fn dumps(out: &mut String, value: &Value) -> Result<(), Error> {
    let layout = Layout {
        ensure_ascii: false,
        sort_keys: false,
        indent: None,
        item_separator: ", ".to_owned(),
        key_separator: ": ".to_owned(),
    };
    layout.write(None, out, value, 0)
}

/// Work for one item, where a template's work is counted.
fn consume(state: Option<&State>) -> Result<(), Error> {
    state.map_or(Ok(()), |state| state.consume_fuel(1).map(drop))
}

impl Layout {
    fn write(
        &self,
        state: Option<&State>,
        out: &mut String,
        value: &Value,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        match value.kind() {
            ValueKind::String => self.write_text(out, value.as_str().unwrap_or_default()),
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(out, value),
            ValueKind::Seq | ValueKind::Iterable => {
                out.push('[');
                let mut count = 0;
                for item in value.try_iter()?.checked() {
                    consume(state)?;
                    self.begin_item(out, count, depth + 1);
                    count += 1;
                    self.write(state, out, &item?, depth + 1)?;
                }
                self.end(out, ']', count, depth);
            }
            ValueKind::Map => {
                out.push('{');
                let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
                let mut pairs: Vec<(Value, Value)> = pairs.into_iter().flatten().collect();
                if self.sort_keys {
                    pairs.sort_by(|a, b| a.0.cmp(&b.0));
                }
                let count = pairs.len();
                for (n, (key, item)) in pairs.iter().enumerate() {
                    consume(state)?;
                    self.begin_item(out, n, depth + 1);
                    self.write_key(out, key)?;
                    out.push_str(&self.key_separator);
                    self.write(state, out, item, depth + 1)?;
                }
                self.end(out, '}', count, depth);
            }
            _ => return Err(not_json(value)),
        }
        Ok(())
    }

    fn begin_item(&self, out: &mut String, n: usize, depth: usize) {
        if n > 0 {
            out.push_str(&self.item_separator);
        }
        self.new_line(out, depth);
    }

    fn end(&self, out: &mut String, close: char, count: usize, depth: usize) {
        if count > 0 {
            self.new_line(out, depth);
        }
        out.push(close);
    }

    fn new_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    }

    fn write_key(&self, out: &mut String, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.write_text(out, key.as_str().unwrap_or_default()),
            ValueKind::None => out.push_str("\"null\""),
            ValueKind::Bool => out.push_str(if key.is_true() {
                "\"true\""
            } else {
                "\"false\""
            }),
            ValueKind::Number => {
                out.push('"');
                write_number(out, key);
                out.push('"');
            }
            _ => return Err(not_json(key)),
        }
        Ok(())
    }

    fn write_text(&self, out: &mut String, text: &str) {
        out.push('"');
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|b| self.needs_escape(b)) {
            let (plain, tail) = rest.split_at(at);
            out.push_str(plain);
            let mut chars = tail.chars();
            if let Some(c) = chars.next() {
                write_escape(out, c);
            }
            rest = chars.as_str();
        }
        out.push_str(rest);
        out.push('"');
    }

    fn needs_escape(&self, byte: u8) -> bool {
        byte < 0x20 || byte == b'"' || byte == b'\\' || (self.ensure_ascii && byte >= 0x7f)
    }
}

fn write_escape(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        c => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                put(out, format_args!("\\u{unit:04x}"));
            }
        }
    }
}

fn write_number(out: &mut String, value: &Value) {
    match as_float(value) {
        Some(float) if float.is_nan() => out.push_str("NaN"),
        Some(float) if float.is_infinite() => {
            out.push_str(if float < 0.0 { "-Infinity" } else { "Infinity" });
        }
        Some(float) => write_float(out, float),
        None => put(out, format_args!("{value}")),
    }
}

fn not_json(value: &Value) -> Error {
    Error::new(
        ErrorKind::BadSerialization,
        format!("{} is not JSON serializable", value.kind()),
    )
}
