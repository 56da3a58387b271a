//! What vLLM (0.32) makes of `tools`: validated and written out again, known keys only, in order.

use minijinja::value::{Value, ValueKind};

use super::request::{field, pairs};
use super::{Rules, Skip};

/// The tools as the template sees them; `None` if it sees none.
///
/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses; unless they `may_be_empty`, an empty list
/// among it.
pub(super) fn normalise(
    body: &Value,
    hide_if_none: bool,
    may_be_empty: bool,
    rules: &Rules,
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
        .map(|tool| dump(&tool, rules))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((!(hide_if_none && unused)).then(|| Value::from(tools)))
}

/// Missing description and parameters are null; `strict` and `defer_loading` are there only if set.
fn dump(tool: &Value, rules: &Rules) -> Result<Value, Skip> {
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
    let description = typed(&function, "description", ValueKind::String)?;
    let parameters = typed(&function, "parameters", ValueKind::Map)?;
    let mut known = vec!["name", "description", "parameters", "defer_loading"];
    let mut function_dump = vec![
        ("name".into(), name),
        ("description".into(), description.unwrap_or_else(null)),
        ("parameters".into(), parameters.unwrap_or_else(null)),
    ];
    if rules.tools_know_strict {
        known.push("strict");
        let strict = typed(&function, "strict", ValueKind::Bool)?;
        function_dump.extend(strict.map(|strict| ("strict".into(), strict)));
    }
    function_dump.extend(inner.map(|defer| ("defer_loading".into(), defer)));
    function_dump.extend(unknown(&function, &known, rules));
    let mut dump = vec![
        ("type".into(), Value::from("function")),
        ("function".into(), Value::from_pairs(function_dump)),
    ];
    dump.extend(outer.map(|defer| ("defer_loading".into(), defer)));
    dump.extend(unknown(tool, &["type", "function", "defer_loading"], rules));
    Ok(Value::from_pairs(dump))
}

/// Keys that older versions pass on to the template.
fn unknown(map: &Value, known: &[&str], rules: &Rules) -> Vec<(Value, Value)> {
    if rules.tools_drop_unknown_keys {
        return Vec::new();
    }
    let is_known = |key: &Value| known.contains(&key.as_str().unwrap_or_default());
    pairs(map).filter(|(key, _)| !is_known(key)).collect()
}
