//! Completions, responses, messages, embeddings.

use serde_json::{Value, json};

use super::chat::tool_list;
use super::{Maker, Words};

const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

pub(super) const KINDS: &[(&str, &str, Maker)] = &[
    ("completions", COMPLETIONS, text),
    ("completions list", COMPLETIONS, list),
    ("completions ids", COMPLETIONS, ids),
    ("completions options", COMPLETIONS, options),
    ("responses", RESPONSES, response_text),
    ("responses items", RESPONSES, response_items),
    ("responses tools", RESPONSES, response_tools),
    ("responses options", RESPONSES, response_options),
    ("messages", MESSAGES, message_text),
    ("messages blocks", MESSAGES, message_blocks),
    ("messages tools", MESSAGES, message_tools),
    ("messages options", MESSAGES, message_options),
];

pub(super) const EMBEDDING_KINDS: &[(&str, &str, Maker)] = &[
    ("embeddings", "/v1/embeddings", embedding),
    ("embeddings list", "/v1/embeddings", embedding_list),
    ("embeddings chat", "/v1/embeddings", embedding_chat),
    ("pooling", "/pooling", pooling),
];

/// Adds fields to a body.
fn with(mut body: Value, more: Value) -> Value {
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    body
}

fn long_text(w: &mut Words) -> String {
    w.shared() + &w.text()
}

fn text(w: &mut Words) -> Value {
    json!({"prompt": long_text(w), "max_tokens": 2, "temperature": 0})
}

fn list(w: &mut Words) -> Value {
    json!({"prompt": [long_text(w), w.text()], "max_tokens": 2})
}

fn ids(w: &mut Words) -> Value {
    let ids = super::Words::new(77).ids(160);
    let own = w.ids(70);
    let ids: Vec<u32> = ids.into_iter().chain(own).collect();
    let prompt = if w.one_in(3) {
        json!([ids, [5, 6, 7]])
    } else {
        json!(ids)
    };
    json!({"prompt": prompt, "max_tokens": 2})
}

fn options(w: &mut Words) -> Value {
    let more = w.of(&[
        json!({"echo": true, "max_tokens": 1}),
        json!({"add_special_tokens": false}),
        json!({"cache_salt": "tenant-a"}),
        json!({"suffix": "the end"}),
        json!({"truncate_prompt_tokens": 64}),
        json!({"stream": true, "stream_options": {"include_usage": true}}),
        json!({"logprobs": 1, "n": 2}),
        json!({"prompt": ""}),
    ]);
    with(text(w), more)
}

fn respond(input: Value, more: Value) -> Value {
    with(
        json!({"input": input, "max_output_tokens": 2, "temperature": 0}),
        more,
    )
}

fn response_text(w: &mut Words) -> Value {
    let input = json!(w.text());
    if w.one_in(3) {
        return respond(json!(long_text(w)), json!({}));
    }
    respond(input, json!({"instructions": w.shared()}))
}

fn input_message(w: &mut Words, role: &str) -> Value {
    let text = w.text();
    let kind = if role == "assistant" {
        "output_text"
    } else {
        "input_text"
    };
    if role == "assistant" {
        return json!({"type": "message", "role": role, "id": "msg_1", "status": "completed",
            "content": [{"type": kind, "text": text, "annotations": []}]});
    }
    match w.below(3) {
        0 => json!({"role": role, "content": text}),
        1 => json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]}),
        _ => {
            json!({"role": role, "content": [{"type": kind, "text": text}, {"type": kind, "text": "more"}]})
        }
    }
}

fn response_items(w: &mut Words) -> Value {
    let mut input = vec![input_message(w, "user")];
    if w.one_in(3) {
        let role = w.of(&["system", "developer"]);
        input.insert(0, input_message(w, role));
    }
    for _ in 0..w.below(3) {
        input.push(input_message(w, "assistant"));
        input.push(input_message(w, "user"));
    }
    let more = if w.one_in(4) {
        json!({})
    } else {
        json!({"instructions": w.shared()})
    };
    respond(json!(input), more)
}

fn response_tools(w: &mut Words) -> Value {
    let tools: Vec<Value> = tool_list(w)
        .into_iter()
        .map(|tool| {
            with(
                json!({"type": "function", "strict": true, "parameters": {}}),
                tool["function"].clone(),
            )
        })
        .collect();
    let mut input = vec![input_message(w, "user")];
    if w.one_in(2) {
        input.push(json!({"type": "reasoning", "id": "rs_1", "summary": [],
            "content": [{"type": "reasoning_text", "text": w.text()}]}));
    }
    if !w.one_in(3) {
        let arguments = w.arguments().to_string();
        input.push(json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": arguments}));
        input
            .push(json!({"type": "function_call_output", "call_id": "call_1", "output": w.text()}));
        input.push(input_message(w, "user"));
    }
    respond(
        json!(input),
        json!({"tools": tools, "instructions": w.shared()}),
    )
}

fn response_options(w: &mut Words) -> Value {
    let shared = w.shared();
    let more = w.of(&[
        json!({"reasoning": {"effort": "low"}}),
        json!({"reasoning": {"effort": "none"}}),
        json!({"truncation": "auto"}),
        json!({"cache_salt": "tenant-a"}),
        json!({"previous_response_id": "resp_123"}),
        json!({"stream": true}),
        json!({"text": {"format": {"type": "json_object"}}, "store": false, "metadata": {"a": "b"}}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
    ]);
    let input = if w.one_in(3) {
        json!([input_message(w, "user"), {"type": "message", "role": "assistant", "id": "msg_2", "status": "incomplete",
            "content": [{"type": "output_text", "text": w.text(), "annotations": []}]}])
    } else {
        json!(w.text())
    };
    respond(input, with(json!({"instructions": shared}), more))
}

fn ask(messages: Vec<Value>, more: Value) -> Value {
    with(
        json!({"messages": messages, "max_tokens": 2, "temperature": 0}),
        more,
    )
}

fn message_text(w: &mut Words) -> Value {
    let mut messages = vec![json!({"role": "user", "content": w.text()})];
    for _ in 0..w.below(3) {
        messages.push(json!({"role": "assistant", "content": w.text()}));
        messages.push(json!({"role": "user", "content": w.text()}));
    }
    ask(messages, json!({"system": w.shared()}))
}

fn block(text: String) -> Value {
    json!({"type": "text", "text": text})
}

fn message_blocks(w: &mut Words) -> Value {
    let system = json!([
        block("x-anthropic-billing-header: cc_version=1".to_owned()),
        {"type": "text", "text": w.shared(), "cache_control": {"type": "ephemeral"}},
        block(w.text()),
    ]);
    let answer =
        json!([{"type": "thinking", "thinking": w.text(), "signature": "s"}, block(w.text())]);
    let messages = vec![
        json!({"role": "user", "content": [block(w.text()), block(w.text())]}),
        json!({"role": "assistant", "content": answer}),
        json!({"role": "user", "content": [block(w.text())]}),
    ];
    ask(messages, json!({"system": system}))
}

fn message_tools(w: &mut Words) -> Value {
    let tools: Vec<Value> = tool_list(w)
        .iter()
        .map(|tool| {
            let function = &tool["function"];
            let schema = match &function["parameters"] {
                Value::Null => json!({"type": "object"}),
                other => other.clone(),
            };
            json!({"name": function["name"], "description": function["description"], "input_schema": schema})
        })
        .collect();
    let mut messages = vec![json!({"role": "user", "content": w.text()})];
    if !w.one_in(3) {
        let (first, second) = (w.arguments(), w.arguments());
        messages.push(json!({"role": "assistant", "content": [block(w.text()),
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": first},
            {"type": "tool_use", "id": "toolu_2", "name": "now", "input": second}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": w.text()},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [block(w.text()), block("more".to_owned())]},
            block(w.text())]}));
    }
    let choice = w.of(&[
        json!({}),
        json!({"tool_choice": {"type": "auto"}}),
        json!({"tool_choice": {"type": "none"}}),
    ]);
    ask(
        messages,
        with(choice, json!({"tools": tools, "system": w.shared()})),
    )
}

fn message_options(w: &mut Words) -> Value {
    let more = w.of(&[
        json!({"thinking": {"type": "disabled"}}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        json!({"output_config": {"effort": "low"}}),
        json!({"stream": true}),
        json!({"metadata": {"user_id": "u"}, "top_k": 3, "stop_sequences": ["x"]}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
    ]);
    let mut messages = vec![json!({"role": "user", "content": w.text()})];
    if w.one_in(3) {
        messages.insert(0, json!({"role": "system", "content": w.text()}));
    }
    ask(messages, with(json!({"system": w.shared()}), more))
}

fn embedding(w: &mut Words) -> Value {
    let more = w.of(&[
        json!({}),
        json!({"cache_salt": "tenant-a"}),
        json!({"add_special_tokens": false}),
        json!({"truncate_prompt_tokens": 100}),
    ]);
    with(json!({"input": long_text(w)}), more)
}

fn embedding_list(w: &mut Words) -> Value {
    let ids = w.ids(120);
    let texts = json!([long_text(w), w.text()]);
    let input = w.of(&[texts, json!(ids), json!([ids, [7, 8]])]);
    json!({"input": input})
}

fn embedding_chat(w: &mut Words) -> Value {
    let messages = json!([
        {"role": "system", "content": w.shared()},
        {"role": "user", "content": w.text()},
    ]);
    let more = w.of(&[
        json!({}),
        json!({"add_generation_prompt": true}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
    ]);
    with(json!({"messages": messages}), more)
}

fn pooling(w: &mut Words) -> Value {
    json!({"input": long_text(w), "task": "embed"})
}
