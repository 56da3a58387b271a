//! What vLLM (0.32) makes of `tools`: validated and written out again, known keys only, in order.

use minijinja::value::{Value, ValueKind};

use super::Skip;
use super::request::field;

/// The tools as the template sees them; `None` if it sees none.
///
/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses; unless they `may_be_empty`, an empty list
/// among it.
pub(super) fn normalise(
    body: &Value,
    hide_if_none: bool,
    may_be_empty: bool,
) -> Result<Option<Value>, Skip> {
    let Some(tools) = field(body, "tools") else {
        return Ok(None);
    };
    if tools.kind() != ValueKind::Seq || (!may_be_empty && tools.len() == Some(0)) {
        return Err(Skip::InvalidRequest);
    }
    let unused = field(body, "tool_choice").is_some_and(|choice| choice.as_str() == Some("none"));
    let iter = tools.try_iter().map_err(|_| Skip::InvalidRequest)?;
    let tools = iter
        .map(|tool| dump(&tool))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((!(hide_if_none && unused)).then(|| Value::from(tools)))
}

/// Missing description and parameters are null; `strict` and `defer_loading` are there only if set.
fn dump(tool: &Value) -> Result<Value, Skip> {
    if field(tool, "type").is_some_and(|kind| kind.as_str() != Some("function")) {
        return Err(Skip::InvalidRequest);
    }
    let function = field(tool, "function").ok_or(Skip::InvalidRequest)?;
    let typed = |map: &Value, name: &str, kind: ValueKind| match field(map, name) {
        Some(value) if value.kind() != kind => Err(Skip::InvalidRequest),
        other => Ok(other),
    };
    let name = typed(&function, "name", ValueKind::String)?.ok_or(Skip::InvalidRequest)?;
    let null = || Value::from(());
    let outer = typed(tool, "defer_loading", ValueKind::Bool)?;
    let inner = typed(&function, "defer_loading", ValueKind::Bool)?.or_else(|| outer.clone());
    let mut function_dump = vec![
        ("name", name),
        (
            "description",
            typed(&function, "description", ValueKind::String)?.unwrap_or_else(null),
        ),
        (
            "parameters",
            typed(&function, "parameters", ValueKind::Map)?.unwrap_or_else(null),
        ),
    ];
    let strict = typed(&function, "strict", ValueKind::Bool)?;
    function_dump.extend(strict.map(|strict| ("strict", strict)));
    function_dump.extend(inner.map(|defer| ("defer_loading", defer)));
    let mut dump = vec![
        ("type", Value::from("function")),
        ("function", Value::from_pairs(function_dump)),
    ];
    dump.extend(outer.map(|defer| ("defer_loading", defer)));
    Ok(Value::from_pairs(dump))
}
