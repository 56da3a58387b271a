//! Python's methods on strings and dicts, as templates call them.
//!
//! Most come from `minijinja-contrib`; here are those it lacks and those where Rust and Python
//! differ (what counts as white space, where lines end).

use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::python::is_space;

/// The environment's callback for methods it does not know.
///
/// # Errors
/// [`ErrorKind::UnknownMethod`], or what is wrong with the arguments.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let known = match value.as_str() {
        Some(text) => string_method(state, text, method, args)?,
        None => other_method(value, method, args)?,
    };
    match known {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn other_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match (value.kind(), method) {
        (ValueKind::Map | ValueKind::Seq, "copy") => {
            let () = from_args(args)?;
            Ok(Some(value.clone()))
        }
        (ValueKind::Seq, "index") => {
            let (what,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *what);
            Ok(Some(Value::from(
                at.ok_or_else(|| invalid("value is not in the list"))?,
            )))
        }
        _ => Ok(None),
    }
}

fn string_method(
    state: &State,
    text: &str,
    method: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<Value>,) = from_args(args)?;
            let (left, right) = (method != "rstrip", method != "lstrip");
            Value::from(strip(text, chars.as_ref(), left, right)?)
        }
        "split" | "rsplit" => split_args(state, text, args, method == "rsplit")?,
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            split_lines(text, keep_ends.unwrap_or(false))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            let kept = text.strip_suffix(suffix).filter(|_| !suffix.is_empty());
            Value::from(kept.unwrap_or(text))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, separator, method == "rpartition")?
        }
        "index" | "rindex" => {
            let (what,): (&str,) = from_args(args)?;
            let at = if method == "index" {
                text.find(what)
            } else {
                text.rfind(what)
            };
            let before = at.and_then(|at| text.get(..at));
            Value::from(
                before
                    .ok_or_else(|| invalid("substring not found"))?
                    .chars()
                    .count(),
            )
        }
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(is_space))
        }
        "capitalize" => {
            let () = from_args(args)?;
            let mut chars = text.chars();
            let first: String = chars
                .next()
                .into_iter()
                .flat_map(char::to_uppercase)
                .collect();
            Value::from(first + &chars.as_str().to_lowercase())
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(casefold(text)?)
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "zfill" | "ljust" | "rjust" | "center" => pad(state, text, method, args)?,
        _ => return Ok(None),
    }))
}

/// `str.casefold`, of the characters below U+0250.
fn casefold(text: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'ß' => out.push_str("ss"),
            'µ' => out.push('μ'),
            'ŉ' => out.push_str("ʼn"),
            'ſ' => out.push('s'),
            'ǰ' => out.push_str("j\u{30c}"),
            '\0'..='\u{24f}' => out.extend(c.to_lowercase()),
            _ => return Err(invalid("casefold knows Latin letters only")),
        }
    }
    Ok(out)
}

/// `str.title`: a letter behind a letter is small, any other large, so `it's` is `It'S`.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            let mut large = c.to_uppercase();
            out.extend(large.next());
            out.extend(large.flat_map(char::to_lowercase));
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// `str.strip(chars)` and its one-sided forms.
pub(super) fn strip<'a>(
    text: &'a str,
    chars: Option<&Value>,
    left: bool,
    right: bool,
) -> Result<&'a str, Error> {
    let set = match chars.filter(|v| !v.is_none()) {
        Some(set) => Some(
            set.as_str()
                .ok_or_else(|| invalid("strip takes a string"))?,
        ),
        None => None,
    };
    let matches = |c: char| set.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if left {
        text.trim_start_matches(matches)
    } else {
        text
    };
    Ok(if right {
        text.trim_end_matches(matches)
    } else {
        text
    })
}

fn split_args(state: &State, text: &str, args: &[Value], right: bool) -> Result<Value, Error> {
    let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(kwargs.get("sep")?).filter(|v| !v.is_none());
    let limit = limit.or(kwargs.get("maxsplit")?).unwrap_or(-1);
    kwargs.assert_all_used()?;
    let limit = usize::try_from(limit)
        .unwrap_or(usize::MAX - 1)
        .saturating_add(1);
    state.consume_fuel(u64::try_from(text.len() / 64).unwrap_or(u64::MAX))?;
    let Some(separator) = separator else {
        return Ok(Value::from(split_space(text, limit, right)));
    };
    let separator = separator
        .as_str()
        .ok_or_else(|| invalid("split takes a string"))?;
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let mut parts: Vec<Value> = if right {
        text.rsplitn(limit, separator).map(Value::from).collect()
    } else {
        text.splitn(limit, separator).map(Value::from).collect()
    };
    if right {
        parts.reverse();
    }
    Ok(Value::from(parts))
}

/// `str.split()`: at runs of white space, no empty parts.
fn split_space(text: &str, limit: usize, right: bool) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut rest = text.trim_matches(is_space);
    while !rest.is_empty() {
        let cut = if right {
            rest.rfind(is_space)
        } else {
            rest.find(is_space)
        };
        match cut {
            Some(at) if parts.len() + 1 < limit => {
                let (head, tail) = rest.split_at(at);
                let (part, more) = if right {
                    (
                        tail.trim_start_matches(is_space),
                        head.trim_end_matches(is_space),
                    )
                } else {
                    (head, tail.trim_start_matches(is_space))
                };
                parts.push(Value::from(part));
                rest = more;
            }
            _ => {
                parts.push(Value::from(rest));
                break;
            }
        }
    }
    if right {
        parts.reverse();
    }
    parts
}

/// `str.splitlines`: Python knows more line ends than `\n`.
fn split_lines(text: &str, keep_ends: bool) -> Value {
    let ends_line = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some((at, end)) = rest.char_indices().find(|&(_, c)| ends_line(c)) {
        let mut next = at + end.len_utf8();
        if end == '\r' && rest.get(next..).is_some_and(|tail| tail.starts_with('\n')) {
            next += 1;
        }
        let (line, tail) = rest.split_at(next);
        lines.push(Value::from(if keep_ends {
            line
        } else {
            line.get(..at).unwrap_or(line)
        }));
        rest = tail;
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Value::from(lines)
}

fn partition(text: &str, separator: &str, right: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let found = if right {
        text.rsplit_once(separator)
    } else {
        text.split_once(separator)
    };
    let parts = match found {
        Some((head, tail)) => [head, separator, tail],
        None if right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn pad(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, with): (usize, Option<&str>) = from_args(args)?;
    let missing = width.saturating_sub(text.chars().count());
    state.consume_fuel(u64::try_from(missing).unwrap_or(u64::MAX))?;
    let fill = |n: usize, c: char| -> String { core::iter::repeat_n(c, n).collect() };
    let c = with.and_then(|with| with.chars().next()).unwrap_or(' ');
    Ok(Value::from(match method {
        "ljust" => format!("{text}{}", fill(missing, c)),
        "rjust" => format!("{}{text}", fill(missing, c)),
        "center" => {
            // CPython puts the odd one to the left if the width is odd.
            let left = missing / 2 + (missing & width & 1);
            format!("{}{text}{}", fill(left, c), fill(missing - left, c))
        }
        _ => {
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let (sign, _) = text.split_at(text.len() - digits.len());
            format!("{sign}{}{digits}", fill(missing, '0'))
        }
    }))
}
