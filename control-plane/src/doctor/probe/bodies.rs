//! The requests that are sent, or only rendered.

use prefix_picker_core::prompt::Api;
use serde_json::{Value, json};

/// Most words of a prompt: hybrid models have blocks of thousands of tokens.
const WORDS_MAX: u32 = 6_000;
/// Most tokens that a word and its space are taken for.
const TOKENS_PER_WORD_MAX: u64 = 3;

/// A text that tokenizers of any kind cut in their own way, and give back as it was.
pub(super) const PLAIN: &str = "It isn't done: 1234567 tokens, 3.14 % of them in   rows!\n\n\tdef total(values):\n\t\treturn sum(v * 2 for v in values)  # (weights)\nhttps://example.com/a?b=1&c=2\n";

/// Words of a prompt that fills two blocks at least, and that the engine takes.
pub(super) fn words(block_size: u32, max_model_len: Option<u64>) -> u32 {
    let wanted = block_size.saturating_mul(2).saturating_add(40);
    let room = max_model_len.map_or(u64::MAX, |tokens| tokens / TOKENS_PER_WORD_MAX);
    wanted
        .min(WORDS_MAX)
        .min(u32::try_from(room).unwrap_or(u32::MAX))
        .max(8)
}

/// So many words, which no prompt began with before.
pub(super) fn unique_text(words: u32) -> String {
    let mut nonce = [0; 8];
    // Without chance the prompt may have been cached before: then its events do not come.
    let _ = getrandom::fill(&mut nonce);
    let mut text = format!("Doctor {}:", hex::encode(nonce));
    let some = [
        "one", "two", "red", "blue", "sun", "rain", "stone", "tree", "bird",
    ];
    for (number, word) in (0..words).zip(some.iter().cycle()) {
        text.push(' ');
        text.push_str(word);
        if number % 9 == 8 {
            text.push('.');
        }
    }
    text
}

/// What a text of [`unique_text`] begins with, as no other does.
pub(super) fn mark(text: &str) -> &str {
    text.split(':').next().unwrap_or(text)
}

/// A request of one token.
pub(super) fn of(api: Api, model: &str, text: &str) -> Value {
    let mut body = match api {
        Api::ChatCompletions => json!({"messages": [{"role": "user", "content": text}]}),
        Api::Completions => json!({"prompt": text}),
        _ => return json!({"model": model, "input": text}),
    };
    body["model"] = json!(model);
    body["max_tokens"] = json!(1);
    body["temperature"] = json!(0);
    body["return_token_ids"] = json!(true);
    body
}

/// Chats that templates differ in: turns, and tools.
pub(super) fn chats(model: &str) -> Vec<Value> {
    let turns = json!([
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "What is a prefix cache?"},
        {"role": "assistant", "content": "A store of what was computed of a prompt's beginning."},
        {"role": "user", "content": "And who evicts from it?"},
    ]);
    let tools = json!([{"type": "function", "function": {"name": "look_up", "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}}}]);
    let asked = json!([{"role": "user", "content": "Look up: cache"}]);
    vec![
        json!({"model": model, "messages": turns, "max_tokens": 1}),
        json!({"model": model, "messages": asked, "tools": tools, "max_tokens": 1}),
    ]
}

/// The prompt's tokens in an answer to `return_token_ids`.
pub(super) fn prompt_ids(answer: &Value) -> Option<Vec<u32>> {
    let of_chat = answer.get("prompt_token_ids");
    let found = of_chat.filter(|ids| ids.is_array());
    let found = found.or_else(|| answer.pointer("/choices/0/prompt_token_ids"))?;
    serde_json::from_value(found.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_fill_blocks_and_fit() {
        assert_eq!(words(16, None), 72);
        assert_eq!(words(4096, None), WORDS_MAX);
        assert_eq!(words(16, Some(120)), 40);
        let text = unique_text(9);
        assert!(
            text.ends_with(" bird.") && text.split(' ').count() == 11,
            "{text}"
        );
        assert_ne!(mark(&unique_text(1)), mark(&unique_text(1)));
        assert!(text.starts_with(mark(&text)) && mark(&text).len() == 23);
    }
}
