//! Which chat templates a folder holds, and which of them the engine takes.
//!
//! `chat_template.jinja` goes before `chat_template` in `tokenizer_config.json`, which is a text or a
//! list of named ones; `additional_chat_templates/NAME.jinja` add to them. A processor's
//! `chat_template.json` is taken by vLLM where a request has no tools.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ProfileLoadError;
use super::files::Folder;
use super::tokenizer_config::TokenizerConfig;

const TOOL_USE: &str = "tool_use";

/// Folders with named templates: transformers' own name, and one that is found in the wild.
const FOLDERS: [&str; 2] = ["additional_chat_templates", "chat_templates"];

#[derive(Debug, Default)]
pub(super) struct Templates {
    pub(super) default: Option<String>,
    pub(super) named: BTreeMap<String, String>,
}

impl Templates {
    /// One template, whatever the folder has.
    pub(super) fn only(text: String) -> Self {
        Self {
            default: Some(text),
            named: BTreeMap::new(),
        }
    }

    pub(super) fn read(
        folder: &Folder,
        config: &TokenizerConfig,
    ) -> Result<Self, ProfileLoadError> {
        let mut templates = Self::default();
        if let Some(template) = &config.chat_template {
            templates
                .add_configured(template)
                .map_err(|what| ProfileLoadError::Shape {
                    path: folder.file("tokenizer_config.json"),
                    what: what.to_owned(),
                })?;
        }
        for below in FOLDERS {
            for (name, template) in folder.jinja_files(below)? {
                templates.add(name, template);
            }
        }
        if let Some(template) = folder.text("chat_template.jinja")? {
            templates.default = Some(template);
        }
        let processor = folder.json("chat_template.json")?.unwrap_or_default();
        if let Some(template) = processor.get("chat_template").and_then(Value::as_str) {
            templates.set_processors(template);
        }
        Ok(templates)
    }

    fn add(&mut self, name: String, template: String) {
        if name == "default" {
            self.default = Some(template);
        } else {
            self.named.insert(name, template);
        }
    }

    fn add_configured(&mut self, template: &Value) -> Result<(), &'static str> {
        const SHAPE: &str = "chat_template is neither a text nor a list of {name, template}";
        match template {
            Value::String(text) => self.default = Some(text.clone()),
            Value::Array(named) => {
                for entry in named {
                    let text =
                        |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
                    let (name, template) = text("name").zip(text("template")).ok_or(SHAPE)?;
                    self.add(name, template);
                }
            }
            Value::Object(named) => {
                for (name, template) in named {
                    self.add(name.clone(), template.as_str().ok_or(SHAPE)?.to_owned());
                }
            }
            _ => return Err(SHAPE),
        }
        Ok(())
    }

    /// The processor's template for requests without tools, the tokenizer's for those with.
    fn set_processors(&mut self, template: &str) {
        let tokenizers = self.default.replace(template.to_owned());
        if let Some(tokenizers) = tokenizers.filter(|text| text != template) {
            self.named.entry(TOOL_USE.to_owned()).or_insert(tokenizers);
        }
    }

    /// Why chats cannot be rendered from these, if so.
    pub(super) fn obstacle(&self, config: &TokenizerConfig) -> Option<String> {
        if self.default.is_none() && self.named.is_empty() {
            return Some("the folder has no chat template".to_owned());
        }
        if self.default.is_none() {
            return Some("the folder has named chat templates, but no default one".to_owned());
        }
        let all = self.default.iter().chain(self.named.values());
        let uses = |name: &str| all.clone().any(|template| template.contains(name));
        if uses("additional_special_tokens")
            && !config
                .special_tokens
                .contains_key("additional_special_tokens")
        {
            return Some("the chat template uses additional_special_tokens, a list".to_owned());
        }
        None
    }
}
