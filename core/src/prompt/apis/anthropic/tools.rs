//! Tools, those that come and go in system messages among them.

use std::collections::HashMap;

use minijinja::value::{Value, ValueKind};

use super::super::{Map, elements, has, is_one_of, optional, optional_str, required_str};
use super::Given;
use crate::prompt::Skip;
use crate::prompt::request::{field, pairs};

pub(super) fn tool_choice(body: &Value) -> Result<Option<Value>, Skip> {
    let Some(choice) = optional(body, "tool_choice", ValueKind::Map)? else {
        return Ok(None);
    };
    let name = optional_str(&choice, "name")?;
    match required_str(&choice, "type")?.as_str() {
        Some("auto") => Ok(Some(Value::from("auto"))),
        Some("any") => Ok(Some(Value::from("required"))),
        Some("none") => Ok(Some(Value::from("none"))),
        Some("tool") => {
            let name = name
                .filter(|name| name.is_true())
                .ok_or(Skip::InvalidRequest)?;
            let function = Map::default().with("name", name).value();
            let choice = Map::default().with("type", "function");
            Ok(Some(choice.with("function", function).value()))
        }
        _ => Err(Skip::InvalidRequest),
    }
}

/// A tool's definition and its name.
struct Tool {
    name: Value,
    definition: Value,
    /// Cleared where a system message adds the tool.
    deferred: Option<Value>,
    removed: bool,
}

impl Tool {
    fn of(definition: Value) -> Result<Self, Skip> {
        let name = required_str(&definition, "name")?;
        optional_str(&definition, "description")?;
        let schema = field(&definition, "input_schema");
        if schema.is_none_or(|schema| schema.kind() != ValueKind::Map) {
            return Err(Skip::InvalidRequest);
        }
        let deferred = optional(&definition, "defer_loading", ValueKind::Bool)?;
        Ok(Self {
            name,
            definition,
            deferred,
            removed: false,
        })
    }

    fn value(self) -> Value {
        let schema = field(&self.definition, "input_schema").unwrap_or_default();
        let schema = if has(&schema, "type") {
            schema
        } else {
            let kind = (Value::from("type"), Value::from("object"));
            Value::from_pairs(pairs(&schema).chain([kind]))
        };
        let mut function = Map::default()
            .with("name", self.name)
            .copy(&self.definition, &["description"])
            .with("parameters", schema)
            .copy(&self.definition, &["strict"]);
        if let Some(deferred) = self.deferred {
            function = function.with("defer_loading", deferred);
        }
        Map::default()
            .with("type", "function")
            .with("function", function.value())
            .value()
    }
}

/// The tools in effect at the end of the conversation.
pub(super) fn tools(body: &Value, messages: &[Given]) -> Result<Option<Value>, Skip> {
    let mut given = None;
    if let Some(tools) = field(body, "tools") {
        let tools = elements(&tools)?.map(Tool::of);
        given = Some(tools.collect::<Result<Vec<_>, _>>()?);
    }
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    let mut changes = blocks
        .filter_map(|block| {
            let kind = field(block, "type")?;
            is_one_of(&kind, &["tool_addition", "tool_removal"]).then_some((kind, block))
        })
        .peekable();
    if changes.peek().is_none() {
        let tools = given.map(|tools| tools.into_iter().map(Tool::value).collect::<Vec<_>>());
        return Ok(tools.map(Value::from));
    }
    let mut tools = Tools::default();
    for tool in given.unwrap_or_default() {
        tools.put(tool);
    }
    for (kind, block) in changes {
        tools.change(kind.as_str() == Some("tool_removal"), block)?;
    }
    let tools = tools.list.into_iter().filter(|tool| !tool.removed);
    Ok(Some(Value::from(
        tools.map(Tool::value).collect::<Vec<_>>(),
    )))
}

/// Tools by name, in order.
#[derive(Default)]
struct Tools {
    list: Vec<Tool>,
    places: HashMap<Value, usize>,
}

impl Tools {
    /// Of several with the same name the last counts, in the place of the first.
    fn put(&mut self, tool: Tool) {
        match self.get(&tool.name) {
            Some(known) => *known = tool,
            None => {
                self.places.insert(tool.name.clone(), self.list.len());
                self.list.push(tool);
            }
        }
    }

    fn get(&mut self, name: &Value) -> Option<&mut Tool> {
        self.list.get_mut(*self.places.get(name)?)
    }

    fn change(&mut self, removal: bool, block: &Value) -> Result<(), Skip> {
        let change = optional(block, "tool", ValueKind::Map)?.ok_or(Skip::InvalidRequest)?;
        match required_str(&change, "type")?.as_str() {
            Some("tool_definition") if !removal => {
                let definition = field(&change, "definition").ok_or(Skip::InvalidRequest)?;
                self.put(Tool::of(definition)?);
            }
            Some("tool_reference") => {
                let name = required_str(&change, "name")?;
                let tool = self.get(&name).ok_or(Skip::InvalidRequest)?;
                tool.removed = removal;
                if !removal {
                    tool.deferred = None;
                }
            }
            _ => return Err(Skip::InvalidRequest),
        }
        Ok(())
    }
}
