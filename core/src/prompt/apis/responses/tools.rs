//! Tools in the shape of chat completions.

use minijinja::value::Value;

use super::super::{Map, elements, has, is_one_of, required_str};
use crate::prompt::Skip;
use crate::prompt::request::{field, pairs};

/// Joins the name of a group of tools to that of a tool in it.
const NAMESPACE_SEPARATOR: &str = "__";

pub(super) fn flat_name(namespace: &Value, name: &Value) -> Value {
    let namespace = namespace.as_str().unwrap_or_default();
    let name = name.as_str().unwrap_or_default();
    Value::from(format!("{namespace}{NAMESPACE_SEPARATOR}{name}"))
}

/// Functions in the shape of chat completions; the engine's own tools are not shown to the model.
/// `None` if there are no tools at all.
pub(super) fn tools(body: &Value) -> Result<Option<Value>, Skip> {
    if !has(body, "tools") {
        return Ok(None);
    }
    let given = field(body, "tools").ok_or(Skip::InvalidRequest)?;
    let (mut shown, mut any) = (Vec::new(), false);
    for tool in elements(&given)? {
        any = true;
        let kind = required_str(&tool, "type")?;
        match kind.as_str() {
            Some("function") => shown.push(function(&tool, required_str(&tool, "name")?)),
            Some("custom") => shown.push(custom(&tool)?),
            Some("namespace") => {
                let namespace = required_str(&tool, "name")?;
                required_str(&tool, "description")?;
                let inner = field(&tool, "tools").ok_or(Skip::InvalidRequest)?;
                for tool in elements(&inner)? {
                    let name = required_str(&tool, "name")?;
                    match required_str(&tool, "type")?.as_str() {
                        Some("function") => {
                            shown.push(function(&tool, flat_name(&namespace, &name)))
                        }
                        Some("custom") => {}
                        _ => return Err(Skip::InvalidRequest),
                    }
                }
            }
            _ => {}
        }
    }
    Ok(any.then(|| Value::from(shown)))
}

fn function(tool: &Value, name: Value) -> Value {
    let function = Map::default().with("name", name);
    let names = ["description", "parameters", "strict", "defer_loading"];
    as_tool(function.copy(tool, &names))
}

fn as_tool(function: Map) -> Value {
    Map::default()
        .with("type", "function")
        .with("function", function.value())
        .value()
}

fn custom(tool: &Value) -> Result<Value, Skip> {
    if let Some(format) = field(tool, "format") {
        let kind = required_str(&format, "type")?;
        if kind.as_str() != Some("text") {
            return Err(Skip::InvalidRequest);
        }
    }
    let input = Map::default()
        .with("type", "string")
        .with("description", "The freeform text payload for this tool.");
    let parameters = Map::default()
        .with("type", "object")
        .with(
            "properties",
            Map::default().with("input", input.value()).value(),
        )
        .with("required", vec![Value::from("input")])
        .with("additionalProperties", false);
    let function = Map::default()
        .with("name", required_str(tool, "name")?)
        .copy(tool, &["description"])
        .with("parameters", parameters.value());
    Ok(as_tool(function))
}

/// The engine refuses a choice among tools that are not there.
pub(super) fn tool_choice(body: &Value, has_tools: bool) -> Result<(), Skip> {
    if !has(body, "tool_choice") {
        return Ok(());
    }
    let choice = field(body, "tool_choice").ok_or(Skip::InvalidRequest)?;
    let fits = match choice.as_str() {
        Some("auto" | "none") => true,
        Some("required") => has_tools,
        Some(_) => false,
        None => {
            let named = field(&choice, "type");
            let named = named.is_some_and(|kind| is_one_of(&kind, &["function", "custom"]));
            pairs(&choice).next().is_some() && (has_tools || !named)
        }
    };
    fits.then_some(()).ok_or(Skip::InvalidRequest)
}
