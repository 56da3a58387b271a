//! `json.dumps(value, ensure_ascii=False)` as Python writes it: what chat templates put into prompts.

use serde_json::Value;

/// Python's text for a JSON value: separators `", "` and `": "`, key order kept, only control characters,
/// quotes and backslashes escaped.
pub(crate) fn dumps(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() => out.push_str(&float(f)),
            _ => out.push_str(&n.to_string()),
        },
        Value::String(s) => string(out, s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (i, (key, item)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                string(out, key);
                out.push_str(": ");
                write(out, item);
            }
            out.push('}');
        }
    }
}

fn string(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// `repr(float)`: shortest digits, exponent form below 1e-4 and from 1e16 on.
fn float(f: f64) -> String {
    let shown = format!("{f:e}");
    let Some((mantissa, exponent)) = shown.split_once('e') else {
        return shown;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{f:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_python() {
        let check = |json: &str, python: &str| {
            assert_eq!(dumps(&serde_json::from_str(json).unwrap()), python);
        };
        check(
            r#"{"b":[1,-2,true,null],"a":{}}"#,
            r#"{"b": [1, -2, true, null], "a": {}}"#,
        );
        check(r#""\u00e9\u0001\n/\u007f\"""#, "\"é\\u0001\\n/\u{7f}\\\"\"");
        for (json, python) in [
            ("1.0", "1.0"),
            ("0.5", "0.5"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("1.5e-5", "1.5e-05"),
            ("0.0001", "0.0001"),
            ("-0.0", "-0.0"),
            ("1e300", "1e+300"),
            ("123456789.125", "123456789.125"),
        ] {
            check(json, python);
        }
    }
}
