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

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

const CONFIG_FILE: &str = "tokenizer_config.json";
const TEMPLATE_FILE: &str = "chat_template.jinja";
const PROCESSORS_FILE: &str = "chat_template.json";

/// Folders with named templates: transformers' own name, and one that is found in the wild.
const FOLDERS: [&str; 2] = ["additional_chat_templates", "chat_templates"];

#[derive(Debug, Default)]
pub(super) struct Templates {
    pub(super) default: Option<String>,
    pub(super) named: BTreeMap<String, String>,
    /// Where each of them stands, by its name; the default one's is `default`.
    pub(super) files: BTreeMap<String, String>,
}

impl Templates {
    /// One template, whatever the folder has.
    pub(super) fn only(text: String) -> Self {
        Self {
            default: Some(text),
            ..Self::default()
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
                    path: folder.file(CONFIG_FILE),
                    what: what.to_owned(),
                })?;
        }
        for below in FOLDERS {
            for (name, template) in folder.jinja_files(below)? {
                let file = format!("{below}/{name}.jinja");
                templates.add(name, template, &file);
            }
        }
        if let Some(template) = folder.text(TEMPLATE_FILE)? {
            templates.add(DEFAULT.to_owned(), template, TEMPLATE_FILE);
        }
        let processor = folder.json(PROCESSORS_FILE)?.unwrap_or_default();
        if let Some(template) = processor.get("chat_template").and_then(Value::as_str) {
            templates.set_processors(template);
        }
        Ok(templates)
    }

    fn add(&mut self, name: String, template: String, file: &str) {
        self.files.insert(name.clone(), file.to_owned());
        if name == DEFAULT {
            self.default = Some(template);
        } else {
            self.named.insert(name, template);
        }
    }

    fn add_configured(&mut self, template: &Value) -> Result<(), &'static str> {
        const SHAPE: &str = "chat_template is neither a text nor a list of {name, template}";
        match template {
            Value::String(text) => self.add(DEFAULT.to_owned(), text.clone(), CONFIG_FILE),
            Value::Array(named) => {
                for entry in named {
                    let text =
                        |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
                    let (name, template) = text("name").zip(text("template")).ok_or(SHAPE)?;
                    self.add(name, template, CONFIG_FILE);
                }
            }
            Value::Object(named) => {
                for (name, template) in named {
                    let template = template.as_str().ok_or(SHAPE)?;
                    self.add(name.clone(), template.to_owned(), CONFIG_FILE);
                }
            }
            _ => return Err(SHAPE),
        }
        Ok(())
    }

    /// The processor's template for requests without tools, the tokenizer's for those with.
    fn set_processors(&mut self, template: &str) {
        let file = self.files.get(DEFAULT).cloned().unwrap_or_default();
        let tokenizers = self.default.take().filter(|text| text != template);
        self.add(DEFAULT.to_owned(), template.to_owned(), PROCESSORS_FILE);
        if let Some(tokenizers) = tokenizers
            && !self.named.contains_key(TOOL_USE)
        {
            self.add(TOOL_USE.to_owned(), tokenizers, &file);
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
