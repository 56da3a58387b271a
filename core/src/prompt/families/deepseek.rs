//! What the DeepSeek renderers share: their tokens, tools as JSON lines, tool calls as DSML.

use minijinja::value::Value;

use super::items;
use crate::prompt::Skip;
use crate::prompt::request::{field, pairs};
use crate::prompt::tojson::dumps;

pub(super) const BOS: &str = "<｜begin▁of▁sentence｜>";
pub(super) const EOS: &str = "<｜end▁of▁sentence｜>";
pub(super) const USER: &str = "<｜User｜>";
pub(super) const ASSISTANT: &str = "<｜Assistant｜>";
pub(super) const THINK: &str = "<think>";
pub(super) const THINK_END: &str = "</think>";

pub(super) fn fill_in_the_middle(prompt: &str, suffix: &str) -> String {
    [
        "<｜fim▁begin｜>",
        prompt,
        "<｜fim▁hole｜>",
        suffix,
        "<｜fim▁end｜>",
    ]
    .concat()
}

/// What the tags of a tool call are called.
#[derive(Clone, Copy)]
pub(super) struct Tags {
    pub(super) calls: &'static str,
    pub(super) invoke: &'static str,
    pub(super) parameter: &'static str,
}

/// The functions of `tools`, one JSON text a line.
pub(super) fn write_schemas(out: &mut String, tools: &Value) -> Result<(), Skip> {
    for (n, tool) in items(tools).enumerate() {
        if n > 0 {
            out.push('\n');
        }
        let function = field(&tool, "function").ok_or(Skip::InvalidRequest)?;
        dumps(out, &function).map_err(|_| Skip::Unsupported)?;
    }
    Ok(())
}

/// The tool calls of a message, with the empty line before them.
pub(super) fn write_calls(out: &mut String, calls: &Value, tags: Tags) -> Result<(), Skip> {
    let Tags {
        calls: block,
        invoke,
        parameter,
    } = tags;
    out.push_str(&format!("\n\n<｜DSML｜{block}>\n"));
    for call in items(calls) {
        let function = field(&call, "function").ok_or(Skip::InvalidRequest)?;
        let name = field(&function, "name").ok_or(Skip::InvalidRequest)?;
        let name = name.as_str().ok_or(Skip::InvalidRequest)?;
        out.push_str(&format!("<｜DSML｜{invoke} name=\"{name}\">\n"));
        let arguments = field(&function, "arguments").ok_or(Skip::InvalidRequest)?;
        for (n, (key, value)) in pairs(&arguments).enumerate() {
            if n > 0 {
                out.push('\n');
            }
            let key = key.as_str().unwrap_or_default();
            let text = value.as_str();
            let is_text = text.is_some();
            out.push_str(&format!(
                "<｜DSML｜{parameter} name=\"{key}\" string=\"{is_text}\">"
            ));
            match text {
                Some(text) => out.push_str(text),
                None => dumps(out, &value).map_err(|_| Skip::Unsupported)?,
            }
            out.push_str(&format!("</｜DSML｜{parameter}>"));
        }
        out.push_str(&format!("\n</｜DSML｜{invoke}>\n"));
    }
    out.push_str(&format!("</｜DSML｜{block}>"));
    Ok(())
}
