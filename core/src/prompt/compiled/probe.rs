//! What vLLM asks of its own chat templates when it starts (`entrypoints/anthropic/serving.py`).

use minijinja::value::Value;

use super::{Chat, CompiledProfile};
use crate::prompt::Api;
use crate::prompt::apis::{EFFORTS, Probes};
use crate::prompt::media::Stand;
use crate::prompt::work::Work;

impl CompiledProfile {
    /// What the engine finds out about its templates when it starts.
    pub(super) fn probe(&mut self) {
        let templates = [self.template.as_ref(), self.tool_template.as_ref()];
        let mut templates = templates.into_iter().flatten().peekable();
        let merge_inline_system =
            templates.peek().is_none() || templates.any(|template| !template.takes_inline_system());
        let disabled_effort = match self.profile.anthropic_disabled_thinking_effort.as_str() {
            "auto" if self.knows_effort_none() => "none",
            "auto" => "low",
            fixed => fixed,
        };
        self.probes = Probes {
            merge_inline_system,
            disabled_effort: disabled_effort.to_owned(),
        };
    }

    /// The effort `none` is neither refused nor taken for another.
    fn knows_effort_none(&self) -> bool {
        let render = |effort: &str| {
            let message = [("role", "user"), ("content", "Hi")];
            let message = Value::from_pairs(message);
            let body = Value::from_pairs([
                ("messages", Value::from(vec![message])),
                ("reasoning_effort", Value::from(effort)),
            ]);
            let chat = Chat {
                api: Api::ChatCompletions,
                original: &body,
                body: body.clone(),
                special_tokens: false,
                work: &Work::unlimited(),
            };
            self.render_chat(&chat, 0, Stand::of(self.profile()))
                .ok()
                .map(|(text, _)| text)
        };
        let none = render("none");
        none.is_some() && !EFFORTS.iter().any(|effort| render(effort) == none)
    }
}
