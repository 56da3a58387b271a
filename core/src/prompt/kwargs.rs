//! The variables a template gets beside messages and tools, in vLLM's order of precedence.

use minijinja::value::{Value, ValueKind};

use super::request::{field, pairs};
use super::{Profile, Skip};

/// Arguments of transformers' `apply_chat_template` that change more than a variable, or that
/// clash with one. The engine refuses the first two.
const REFUSED: [&str; 2] = ["chat_template", "tokenize"];
const SPECIAL: [&str; 12] = [
    "tools",
    "conversation",
    "messages",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "tokenizer_kwargs",
    "sanitize_control_tokens",
    "self",
];

/// Most `chat_template_kwargs` of one request. Templates declare a handful; a look-up goes through
/// all of them.
pub(super) const KWARGS_MAX: usize = 256;

/// Template variables of a request.
pub(super) struct Kwargs {
    /// In no particular order, each name once.
    pub(super) variables: Vec<(Value, Value)>,
    /// The final message is left open.
    pub(super) continue_final_message: bool,
}

/// Server defaults, then the request's `chat_template_kwargs`, then its fields. null and `"auto"`
/// never override; with `keep_unset` those of the request's kwargs do.
///
/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses, [`Skip::RequestTemplate`],
/// [`Skip::Unsupported`], [`Skip::TemplateLimit`] for more than [`KWARGS_MAX`].
pub(super) fn merge(
    body: &Value,
    special_tokens: &[(Value, Value)],
    defaults: &[(Value, Value)],
    keep_unset: bool,
    profile: &Profile,
) -> Result<Kwargs, Skip> {
    let mut variables = Variables(special_tokens.to_vec());
    for (name, value) in defaults {
        variables.set(name.clone(), value.clone());
    }
    let mut thinking_given = false;
    if let Some(kwargs) = field(body, "chat_template_kwargs") {
        if kwargs.kind() != ValueKind::Map {
            return Err(Skip::InvalidRequest);
        }
        if kwargs.len().is_some_and(|n| n > KWARGS_MAX) {
            return Err(Skip::TemplateLimit);
        }
        for (name, value) in pairs(&kwargs) {
            let key = name.as_str().unwrap_or_default();
            match key {
                "chat_template" if !value.is_none() => return Err(Skip::RequestTemplate),
                _ if REFUSED.contains(&key) && !value.is_none() => {
                    return Err(Skip::InvalidRequest);
                }
                _ if SPECIAL.contains(&key) => return Err(Skip::Unsupported),
                _ => {}
            }
            thinking_given |= key == "enable_thinking";
            if keep_unset {
                variables.put(name, value);
            } else {
                variables.set(name, value);
            }
        }
    }
    let flag = |name: &str, default: bool| match field(body, name) {
        Some(value) if value.kind() != ValueKind::Bool => Err(Skip::Unsupported),
        Some(value) => Ok(value.is_true()),
        None => Ok(default),
    };
    let add_generation_prompt = flag("add_generation_prompt", true)?;
    let continue_final_message = flag("continue_final_message", false)?;
    if add_generation_prompt && continue_final_message {
        return Err(Skip::InvalidRequest);
    }
    variables.set("add_generation_prompt".into(), add_generation_prompt.into());
    if let Some(documents) = field(body, "documents") {
        if documents.kind() != ValueKind::Seq {
            return Err(Skip::InvalidRequest);
        }
        variables.set("documents".into(), documents);
    }
    if let Some(effort) = field(body, "reasoning_effort") {
        let effort = mapped(effort, profile);
        let on = effort.as_str() != Some("none");
        variables.set("reasoning_effort".into(), effort);
        if !thinking_given && profile.rules.effort_sets_thinking {
            variables.set("enable_thinking".into(), on.into());
        }
    }
    variables.set_missing("documents", Value::from(()));
    variables
        .0
        .retain(|(name, _)| name.as_str() != Some("continue_final_message"));
    Ok(Kwargs {
        variables: variables.0,
        continue_final_message,
    })
}

/// `--reasoning-effort-map`.
fn mapped(effort: Value, profile: &Profile) -> Value {
    let map = &profile.reasoning_effort_map;
    let to = effort.as_str().filter(|_| profile.rules.effort_map);
    let to = to.and_then(|effort| map.get(effort)?.as_str());
    to.map_or(effort.clone(), Value::from)
}

struct Variables(Vec<(Value, Value)>);

impl Variables {
    fn set(&mut self, name: Value, value: Value) {
        if !value.is_none() && value.as_str() != Some("auto") {
            self.put(name, value);
        }
    }

    fn put(&mut self, name: Value, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    fn set_missing(&mut self, name: &str, value: Value) {
        if !self.0.iter().any(|(known, _)| known.as_str() == Some(name)) {
            self.0.push((Value::from(name), value));
        }
    }
}
