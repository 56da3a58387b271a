//! Tools as Harmony shows them: JSON schemas turned into something like TypeScript
//! (oss-harmony 0.0.11: `src/encoding.rs`).

use std::collections::HashSet;

use minijinja::value::{Value, ValueKind};

use super::{Tool, items};
use crate::prompt::request::pairs;

/// The namespace `functions`; nothing without tools.
pub(super) fn write_tools(out: &mut String, tools: &[Tool]) {
    if tools.is_empty() {
        return;
    }
    out.push_str("# Tools\n\n## functions\n\nnamespace functions {\n\n");
    for tool in tools {
        for line in tool.description.lines() {
            out.push_str(&format!("// {line}\n"));
        }
        match &tool.parameters {
            Some(schema) => {
                out.push_str(&format!("type {} = (_: ", tool.name));
                write_type(out, schema, "");
                out.push_str(") => any;\n\n");
            }
            None => out.push_str(&format!("type {} = () => any;\n\n", tool.name)),
        }
    }
    out.push_str("} // namespace functions");
}

/// A member that is there, null or not.
fn get(map: &Value, key: &str) -> Option<Value> {
    if map.kind() != ValueKind::Map {
        return None;
    }
    map.get_attr(key).ok().filter(|value| !value.is_undefined())
}

fn text(map: &Value, key: &str) -> Option<String> {
    get(map, key)?.as_str().map(str::to_owned)
}

fn list(map: &Value, key: &str) -> Option<Vec<Value>> {
    let value = get(map, key).filter(|value| value.kind() == ValueKind::Seq)?;
    Some(items(&value).collect())
}

fn strings(list: &[Value]) -> Vec<&str> {
    list.iter().filter_map(Value::as_str).collect()
}

fn is_enum(schema: &Value) -> bool {
    list(schema, "enum").is_some_and(|values| !values.is_empty())
}

/// Compact JSON, as Rust's serde_json writes it.
fn json(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A default value: quoted if it is text, but not where `bare` enums show theirs as they are.
fn default_of(schema: &Value, bare: bool) -> Option<String> {
    let value = get(schema, "default")?;
    Some(match value.as_str() {
        Some(text) if !is_enum(schema) => format!("default: \"{text}\""),
        Some(text) if bare => format!("default: {text}"),
        _ => format!("default: {}", json(&value)),
    })
}

/// The type of a schema, and null if it may be that.
fn write_nullable(out: &mut String, schema: &Value, indent: &str) {
    let from = out.len();
    write_type(out, schema, indent);
    let nullable =
        get(schema, "nullable").is_some_and(|v| v.kind() == ValueKind::Bool && v.is_true());
    if nullable && !out.get(from..).unwrap_or_default().contains("null") {
        out.push_str(" | null");
    }
}

fn write_type(out: &mut String, schema: &Value, indent: &str) {
    if let Some(variants) = list(schema, "oneOf") {
        for variant in &variants {
            out.push_str(&format!("\n{indent} | "));
            write_nullable(out, variant, &format!("{indent}   "));
            let comments = [text(variant, "description"), default_of(variant, false)];
            write_comments(out, comments);
        }
        return;
    }
    if let Some(types) = list(schema, "type") {
        let types: Vec<&str> = strings(&types).into_iter().map(number_or).collect();
        if !types.is_empty() {
            out.push_str(&types.join(" | "));
            return;
        }
    }
    match text(schema, "type").as_deref() {
        Some("object") => write_object(out, schema, indent),
        Some("string") => {
            let values = list(schema, "enum").unwrap_or_default();
            let quoted = strings(&values).into_iter().map(|v| format!("\"{v}\""));
            let quoted: Vec<String> = quoted.collect();
            if quoted.is_empty() {
                out.push_str("string");
            } else {
                out.push_str(&quoted.join(" | "));
            }
        }
        Some("number" | "integer") => out.push_str("number"),
        Some("boolean") => out.push_str("boolean"),
        Some("array") => match get(schema, "items") {
            Some(items) => {
                write_type(out, &items, indent);
                out.push_str("[]");
            }
            None => out.push_str("Array<any>"),
        },
        _ => out.push_str("any"),
    }
}

fn number_or(kind: &str) -> &str {
    if kind == "integer" { "number" } else { kind }
}

fn write_comments(out: &mut String, comments: [Option<String>; 2]) {
    let comments: Vec<String> = comments.into_iter().flatten().collect();
    if !comments.is_empty() {
        out.push_str(&format!(" // {}", comments.join(" ")));
    }
}

fn write_object(out: &mut String, schema: &Value, indent: &str) {
    if let Some(description) = text(schema, "description") {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    out.push_str("{\n");
    let required = list(schema, "required").unwrap_or_default();
    let required: HashSet<&str> = strings(&required).into_iter().collect();
    let properties = get(schema, "properties").unwrap_or_default();
    for (key, property) in pairs(&properties) {
        let key = key.as_str().unwrap_or_default();
        let optional = if required.contains(key) { "" } else { "?" };
        write_property(out, &property, indent, &format!("{key}{optional}"));
    }
    out.push_str(&format!("{indent}}}"));
}

fn write_property(out: &mut String, property: &Value, indent: &str, name: &str) {
    if let Some(title) = text(property, "title") {
        out.push_str(&format!("{indent}// {title}\n{indent}//\n"));
    }
    let description = text(property, "description");
    let has_variants = get(property, "oneOf").is_some();
    if !has_variants && let Some(description) = &description {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    let examples = list(property, "examples").unwrap_or_default();
    if !examples.is_empty() {
        out.push_str(&format!("{indent}// Examples:\n"));
        for example in strings(&examples) {
            out.push_str(&format!("{indent}// - \"{example}\"\n"));
        }
    }
    if let Some(variants) = list(property, "oneOf") {
        return write_variants(out, property, &variants, indent, name);
    }
    out.push_str(&format!("{indent}{name}: "));
    write_nullable(out, property, &format!("{indent}    "));
    out.push(',');
    if !has_variants && let Some(default) = default_of(property, true) {
        out.push_str(&format!(" // {default}"));
    }
    out.push('\n');
}

/// A property of several kinds. What is said about all of them is not said again of one.
fn write_variants(
    out: &mut String,
    property: &Value,
    variants: &[Value],
    indent: &str,
    name: &str,
) {
    let description = text(property, "description");
    let first = variants
        .first()
        .and_then(|first| text(first, "description"));
    let above = description.is_some() && description != first;
    if above && let Some(description) = &description {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    if let Some(default) = default_of(property, true) {
        out.push_str(&format!("{indent}// {default}\n"));
    }
    out.push_str(&format!("{indent}{name}:\n"));
    for (n, variant) in variants.iter().enumerate() {
        out.push_str(&format!("{indent} | "));
        write_nullable(out, variant, &format!("{indent}   "));
        let own = text(variant, "description").filter(|own| Some(own) != description.as_ref());
        let own = own.filter(|_| n > 0 || !above);
        write_comments(out, [own, default_of(variant, true)]);
        out.push('\n');
    }
    out.push_str(&format!("{indent},\n"));
}
