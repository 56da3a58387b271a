//! Chat completions.

use serde_json::{Value, json};

use super::{Maker, Words};

const PATH: &str = "/v1/chat/completions";

pub(super) const KINDS: &[(&str, &str, Maker)] = &[
    ("chat", PATH, plain),
    ("chat turns", PATH, turns),
    ("chat parts", PATH, parts),
    ("chat tools", PATH, tools),
    ("chat tool results", PATH, tool_results),
    ("chat reasoning", PATH, reasoning),
    ("chat kwargs", PATH, kwargs),
    ("chat effort", PATH, effort),
    ("chat continued", PATH, continued),
    ("chat developer", PATH, developer),
    ("chat salt", PATH, salt),
    ("chat stream", PATH, stream),
    ("chat odd", PATH, odd),
];

/// A request that ends soon.
fn request(messages: Vec<Value>, more: Value) -> Value {
    let mut body = json!({"messages": messages, "max_tokens": 2, "temperature": 0});
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    body
}

fn opening(w: &mut Words) -> Vec<Value> {
    vec![
        json!({"role": "system", "content": w.shared()}),
        json!({"role": "user", "content": w.text()}),
    ]
}

fn plain(w: &mut Words) -> Value {
    let messages = if w.one_in(4) {
        vec![json!({"role": "user", "content": w.shared() + &w.text()})]
    } else {
        opening(w)
    };
    request(messages, json!({}))
}

fn several_turns(w: &mut Words) -> Vec<Value> {
    let mut messages = opening(w);
    for _ in 0..1 + w.below(3) {
        messages.push(json!({"role": "assistant", "content": w.text()}));
        messages.push(json!({"role": "user", "content": w.text()}));
    }
    messages
}

fn turns(w: &mut Words) -> Value {
    let mut messages = several_turns(w);
    if w.one_in(3) {
        messages[1]["name"] = json!("anna");
    }
    if w.one_in(4) {
        messages.insert(3, json!({"role": "system", "content": w.text()}));
    }
    request(messages, json!({"user": "someone", "seed": 1}))
}

fn parts(w: &mut Words) -> Value {
    let part = |text: String| json!({"type": "text", "text": text});
    let messages = vec![
        json!({"role": "system", "content": [part(w.shared())]}),
        json!({"role": "user", "content": [part(w.text()), part(w.text())]}),
        json!({"role": "assistant", "content": [part(w.text())]}),
        json!({"role": "user", "content": [part(String::new()), w.text(), part(w.text())]}),
    ];
    request(messages, json!({}))
}

pub(super) fn tool_list(w: &mut Words) -> Vec<Value> {
    let mut tools = vec![
        json!({"type": "function", "function": {
            "name": "weather", "description": w.text(),
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Zürich", "a<b>&'c'"]},
                "days": {"type": "integer", "minimum": 0.5}}, "required": ["city"], "additionalProperties": false}}}),
        json!({"type": "function", "function": {"name": "now"}}),
    ];
    if w.one_in(2) {
        tools.push(json!({"function": {"strict": true, "name": "look_up", "parameters": {"z": 1, "a": [null, 1e5, -0.0]},
            "description": null}, "type": "function"}));
    }
    if w.one_in(3) {
        tools[0]["function"]["unknown_key"] = json!("dropped");
        tools[1]["vendor"] = json!({"x": 1});
    }
    tools
}

fn tools(w: &mut Words) -> Value {
    let mut body = request(opening(w), json!({"tools": tool_list(w)}));
    match w.below(5) {
        0 => body["tool_choice"] = json!("none"),
        1 => body["tool_choice"] = json!("auto"),
        2 => body["parallel_tool_calls"] = json!(false),
        _ => {}
    }
    body
}

fn tool_results(w: &mut Words) -> Value {
    let mut messages = opening(w);
    let call = |w: &mut Words, id: &str| {
        let arguments = w.arguments().to_string();
        json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}})
    };
    let calls = vec![call(w, "call_1"), call(w, "call_2")];
    let content = w.of(&[json!(null), json!(""), json!("Let me see. ")]);
    messages.push(json!({"role": "assistant", "content": content, "tool_calls": calls}));
    messages.push(json!({"role": "tool", "tool_call_id": "call_1", "content": w.text()}));
    let parts = json!([{"type": "text", "text": w.text()}, {"type": "text", "text": "more"}]);
    messages.push(json!({"role": "tool", "tool_call_id": "call_2", "content": parts}));
    if w.one_in(2) {
        messages.push(json!({"role": "assistant", "content": w.text(), "tool_calls": []}));
        messages.push(json!({"role": "user", "content": w.text()}));
    }
    let with_tools = w.one_in(3);
    let more = if with_tools {
        json!({})
    } else {
        json!({"tools": tool_list(w)})
    };
    request(messages, more)
}

fn reasoning(w: &mut Words) -> Value {
    let mut messages = opening(w);
    let key = w.of(&["reasoning", "reasoning_content"]);
    let mut answer = json!({"role": "assistant", "content": w.text()});
    answer[key] = json!(w.text());
    messages.push(answer);
    if w.one_in(2) {
        let arguments = w.arguments().to_string();
        messages.push(json!({"role": "user", "content": w.text()}));
        let mut call = json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "now", "arguments": arguments}}]});
        call[key] = json!(w.text());
        messages.push(call);
        messages.push(json!({"role": "tool", "tool_call_id": "c1", "content": w.text()}));
    } else {
        messages.push(json!({"role": "user", "content": w.text()}));
    }
    request(messages, json!({}))
}

fn kwargs(w: &mut Words) -> Value {
    let text = w.text();
    let kwargs = w.of(&[
        json!({"enable_thinking": false}),
        json!({"enable_thinking": true, "unknown": text}),
        json!({"bos_token": "<s>", "enable_thinking": null}),
        json!({"enable_thinking": "auto"}),
        json!({}),
    ]);
    request(several_turns(w), json!({"chat_template_kwargs": kwargs}))
}

fn effort(w: &mut Words) -> Value {
    let effort = w.of(&["none", "low", "medium", "high", "minimal"]);
    let mut body = request(opening(w), json!({"reasoning_effort": effort}));
    if w.one_in(3) {
        body["chat_template_kwargs"] = json!({"enable_thinking": effort == "none"});
    }
    if w.one_in(3) {
        body["documents"] = json!([{"title": "a", "text": w.text()}]);
    }
    body
}

fn continued(w: &mut Words) -> Value {
    let mut messages = opening(w);
    let own = json!({"add_generation_prompt": false});
    if w.one_in(3) {
        return request(messages, own);
    }
    messages.push(json!({"role": "assistant", "content": w.text()}));
    let mut body = request(messages, own);
    if !w.one_in(4) {
        body["continue_final_message"] = json!(true);
    }
    body
}

fn developer(w: &mut Words) -> Value {
    let mut messages = several_turns(w);
    match w.below(3) {
        0 => messages[0]["role"] = json!("developer"),
        1 => messages.insert(1, json!({"role": "developer", "content": w.text()})),
        _ => messages.insert(3, json!({"role": "developer", "content": w.text()})),
    }
    request(messages, json!({}))
}

fn salt(w: &mut Words) -> Value {
    let salt = w.of(&["tenant-a", "tenant-b", "ünï"]);
    request(several_turns(w), json!({"cache_salt": salt}))
}

fn stream(w: &mut Words) -> Value {
    let options = json!({"include_usage": true, "continuous_usage_stats": w.one_in(2)});
    request(
        several_turns(w),
        json!({"stream": true, "stream_options": options}),
    )
}

fn odd(w: &mut Words) -> Value {
    let mut messages = opening(w);
    match w.below(8) {
        0 => {
            messages[0]["content"] =
                json!(format!("x-anthropic-billing-header: a=1;\n{}", w.shared()))
        }
        1 => messages[1]["vendor_field"] = json!({"x": 1}),
        2 => messages.push(json!({"role": "assistant"})),
        3 => {
            messages[1]["content"] = json!([{"type": "input_text", "text": w.text()}, {"type": "text", "text": "x", "extra": 1}])
        }
        4 => messages.push(json!({"role": "critic", "content": w.text()})),
        5 => {
            return request(
                messages,
                json!({"add_special_tokens": true, "logprobs": true, "top_logprobs": 1}),
            );
        }
        6 => return request(messages, json!({"truncate_prompt_tokens": 40})),
        _ => {
            return request(
                messages,
                json!({"response_format": {"type": "json_object"}, "n": 2, "metadata": {"a": "b"}}),
            );
        }
    }
    request(messages, json!({}))
}
