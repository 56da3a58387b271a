//! Whether what the engine reports of a request can be held against one prediction.

use minijinja::value::ValueKind;

use super::request::field;
use super::{Api, ParsedRequest};

impl ParsedRequest {
    /// Will the engine's `cached_tokens` be that of this one prompt, looked up in its cache?
    ///
    /// Not so in vLLM 0.32 where a request is several to the engine (the figure is the last one's:
    /// entrypoints/openai/completion/serving.py), or wants something that is only there for tokens
    /// that were computed, so that the cache is not read (`prompt_logprobs`, also by `echo`:
    /// sampling_params.py, `skip_reading_prefix_cache`).
    #[must_use]
    pub fn has_one_figure(&self) -> bool {
        let body = &self.body;
        let is = |name: &str| field(body, name).is_some_and(|v| v.is_true());
        let more_than_one = |name: &str| {
            let count = field(body, name).and_then(|v| i64::try_from(v).ok());
            count.is_some_and(|n| n > 1)
        };
        let several = |name: &str| {
            let list = field(body, name).filter(|v| v.kind() == ValueKind::Seq);
            list.is_some_and(|list| {
                let first = list.get_item_by_index(0).ok();
                let ids = first.is_some_and(|v| v.kind() == ValueKind::Number);
                !ids && list.len().is_some_and(|n| n > 1)
            })
        };
        // 0 counts, too: it is asked for by being there.
        let asks_logprobs = field(body, "prompt_logprobs").is_some()
            || (is("echo")
                && ["logprobs", "top_logprobs"]
                    .iter()
                    .any(|n| field(body, n).is_some()));
        !(more_than_one("n")
            || more_than_one("best_of")
            || several("prompt")
            // In responses a list is one conversation.
            || (self.api != Api::Responses && several("input"))
            || asks_logprobs
            || is("use_beam_search"))
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use crate::prompt::{Api, parse_request};

    #[test]
    fn one_prompt_and_one_answer() {
        let has = |body: &str| {
            let body = format!("{{\"model\": \"m\"{body}}}");
            parse_request(Api::Completions, body.as_bytes())
                .unwrap()
                .has_one_figure()
        };
        for body in [
            "",
            r#", "prompt": "a", "n": 1, "best_of": null"#,
            r#", "prompt": ["a"], "echo": true"#,
            r#", "prompt": [1, 2, 3], "logprobs": 3"#,
            r#", "prompt": [[1, 2]], "use_beam_search": false"#,
        ] {
            assert!(has(body), "{body}");
        }
        for body in [
            r#", "n": 2"#,
            r#", "best_of": 3"#,
            r#", "prompt": ["a", "b"]"#,
            r#", "prompt": [[1], [2]]"#,
            r#", "prompt_logprobs": 0"#,
            r#", "echo": true, "logprobs": 0"#,
            r#", "use_beam_search": true"#,
        ] {
            assert!(!has(body), "{body}");
        }
    }

    #[test]
    fn a_list_is_one_conversation_or_several_inputs() {
        let has = |api, input: &str| {
            let body = format!("{{\"model\": \"m\", \"input\": {input}}}");
            parse_request(api, body.as_bytes())
                .unwrap()
                .has_one_figure()
        };
        let items = r#"[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]"#;
        assert!(has(Api::Responses, items));
        for input in [r#""a""#, r#"["a"]"#, "[1, 2]", "[[1, 2]]"] {
            assert!(has(Api::Embeddings, input), "{input}");
        }
        for input in [r#"["a", "b"]"#, "[[1], [2]]"] {
            assert!(!has(Api::Embeddings, input), "{input}");
            assert!(!has(Api::Pooling, input), "{input}");
        }
    }
}
