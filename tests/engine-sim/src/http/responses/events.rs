//! A chat's answer as a response, whole or as events.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Form, Stored};

pub(super) struct Responses {
    id: String,
    /// What the request asked for, told again in the answer.
    asked: Value,
    /// The conversation so far, without instructions: they hold for one answer.
    messages: Vec<Value>,
    /// Where the answer is kept, if it is.
    stored: Option<Arc<Stored>>,
    created: Value,
    model: Value,
    text: String,
    output: Vec<Value>,
    finish: Value,
    usage: Value,
    /// Number of the next event.
    sequence: u64,
}

impl Responses {
    pub(super) fn new(id: String, body: &Value, chat: &Value, stored: Arc<Stored>) -> Self {
        let mut asked = json!({});
        for field in [
            "instructions",
            "max_output_tokens",
            "metadata",
            "previous_response_id",
        ] {
            asked[field] = body[field].clone();
        }
        asked["tools"] = json!(body["tools"].as_array().map_or(&[][..], Vec::as_slice));
        let choice = body["tool_choice"].clone();
        asked["tool_choice"] = if choice.is_null() {
            json!("auto")
        } else {
            choice
        };
        let messages = chat["messages"].as_array().into_iter().flatten();
        Self {
            id,
            asked,
            messages: messages
                .filter(|m| m["role"] != "system")
                .cloned()
                .collect(),
            stored: (body["store"] != false).then_some(stored),
            created: Value::Null,
            model: Value::Null,
            text: String::new(),
            output: Vec::new(),
            finish: Value::Null,
            usage: Value::Null,
            sequence: 0,
        }
    }

    fn response(&self, status: &str) -> Value {
        let cut = status == "incomplete";
        let why = if cut {
            json!({"reason": "max_output_tokens"})
        } else {
            Value::Null
        };
        let mut response = json!({"id": self.id, "created_at": self.created, "incomplete_details": why, "model": self.model,
            "object": "response", "output": self.output, "parallel_tool_calls": true, "temperature": 1.0, "top_p": 1.0,
            "background": false, "service_tier": "auto", "status": status, "truncation": "disabled", "usage": self.usage});
        for (field, value) in self.asked.as_object().into_iter().flatten() {
            response[field] = value.clone();
        }
        response
    }

    /// The finished response, which is stored.
    fn finished(&mut self) -> Value {
        if let Some(stored) = self.stored.take() {
            let mut messages = std::mem::take(&mut self.messages);
            let calls = self
                .output
                .iter()
                .filter(|item| item["type"] == "function_call");
            let calls: Vec<Value> = calls
                .map(|item| {
                    json!({"id": item["call_id"], "type": "function",
                    "function": {"name": item["name"], "arguments": item["arguments"]}})
                })
                .collect();
            let mut message = json!({"role": "assistant", "content": self.text});
            if !calls.is_empty() {
                message["tool_calls"] = json!(calls);
            }
            messages.push(message);
            stored.put(self.id.clone(), messages);
        }
        self.response(if self.finish == "length" {
            "incomplete"
        } else {
            "completed"
        })
    }

    fn event(&mut self, kind: &str, mut data: Value) -> String {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        format!("event: {kind}\ndata: {data}\n\n")
    }

    fn message(&self, status: &str, content: &Value) -> Value {
        json!({"id": format!("msg_{}", self.id), "type": "message", "role": "assistant", "status": status, "content": content})
    }

    fn part(text: &str) -> Value {
        json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
    }

    fn call(&self, call: &Value, status: &str, arguments: &Value) -> Value {
        json!({"id": format!("fc_{}", self.id), "type": "function_call", "call_id": call["id"], "status": status,
            "name": call["function"]["name"], "arguments": arguments})
    }

    /// The place in the answer of the text that is being written.
    fn place(&self) -> Value {
        json!({"item_id": format!("msg_{}", self.id), "output_index": self.output.len(), "content_index": 0})
    }

    fn with(mut place: Value, field: &str, value: Value) -> Value {
        place[field] = value;
        place
    }

    fn open_text(&mut self) -> String {
        let index = self.output.len();
        let item = self.message("in_progress", &json!([]));
        let added = json!({"output_index": index, "item": item});
        let part = Self::with(self.place(), "part", Self::part(""));
        self.event("response.output_item.added", added)
            + &self.event("response.content_part.added", part)
    }

    fn close_text(&mut self) -> String {
        if self.text.is_empty() {
            return String::new();
        }
        let (place, part) = (self.place(), Self::part(&self.text));
        let mut text = Self::with(place.clone(), "text", json!(self.text));
        text["logprobs"] = json!([]);
        let item = self.message("completed", &json!([part]));
        let done = json!({"output_index": self.output.len(), "item": item});
        self.output.push(item);
        self.event("response.output_text.done", text)
            + &self.event(
                "response.content_part.done",
                Self::with(place, "part", part),
            )
            + &self.event("response.output_item.done", done)
    }

    fn tool(&mut self, call: &Value) -> String {
        let index = self.output.len();
        let arguments = &call["function"]["arguments"];
        let place = json!({"item_id": format!("fc_{}", self.id), "output_index": index});
        let begun = self.call(call, "in_progress", &json!(""));
        let item = self.call(call, "completed", arguments);
        let mut done = Self::with(place.clone(), "arguments", arguments.clone());
        done["name"] = call["function"]["name"].clone();
        self.output.push(item.clone());
        self.event(
            "response.output_item.added",
            json!({"output_index": index, "item": begun}),
        ) + &self.event(
            "response.function_call_arguments.delta",
            Self::with(place, "delta", arguments.clone()),
        ) + &self.event("response.function_call_arguments.done", done)
            + &self.event(
                "response.output_item.done",
                json!({"output_index": index, "item": item}),
            )
    }
}

fn usage(chat: &Value) -> Value {
    let details = &chat["prompt_tokens_details"];
    let cached = json!({"cached_tokens": details["cached_tokens"], "cache_write_tokens": details["created_cache_tokens"],
        "input_tokens_per_turn": [], "cached_tokens_per_turn": [details["cached_tokens"]]});
    let output = json!({"reasoning_tokens": 0, "tool_output_tokens": 0, "output_tokens_per_turn": [],
        "tool_output_tokens_per_turn": []});
    json!({"input_tokens": chat["prompt_tokens"], "input_tokens_details": cached, "output_tokens": chat["completion_tokens"],
        "output_tokens_details": output, "total_tokens": chat["total_tokens"]})
}

impl Form for Responses {
    fn whole(&mut self, chat: Value) -> Value {
        (self.created, self.model) = (chat["created"].clone(), chat["model"].clone());
        let choice = &chat["choices"][0];
        self.finish = choice["finish_reason"].clone();
        self.usage = usage(&chat["usage"]);
        if let Some(text) = choice["message"]["content"]
            .as_str()
            .filter(|text| !text.is_empty())
        {
            text.clone_into(&mut self.text);
            let item = self.message("completed", &json!([Self::part(text)]));
            self.output.push(item);
        }
        for call in choice["message"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let item = self.call(call, "completed", &call["function"]["arguments"]);
            self.output.push(item);
        }
        self.finished()
    }

    fn chunk(&mut self, chunk: &Value) -> String {
        let mut out = String::new();
        if self.sequence == 0 {
            (self.created, self.model) = (chunk["created"].clone(), chunk["model"].clone());
            let response = self.response("in_progress");
            out += &self.event("response.created", json!({"response": response}));
            out += &self.event("response.in_progress", json!({"response": response}));
        }
        let choice = &chunk["choices"][0];
        if choice.is_null() {
            self.usage = usage(&chunk["usage"]);
            out += &self.close_text();
            let response = self.finished();
            return out + &self.event("response.completed", json!({"response": response}));
        }
        if !choice["finish_reason"].is_null() {
            self.finish = choice["finish_reason"].clone();
        }
        if let Some(text) = choice["delta"]["content"]
            .as_str()
            .filter(|text| !text.is_empty())
        {
            if self.text.is_empty() {
                out += &self.open_text();
            }
            self.text += text;
            let mut delta = Self::with(self.place(), "delta", json!(text));
            delta["logprobs"] = json!([]);
            out += &self.event("response.output_text.delta", delta);
        }
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            out += &self.tool(call);
        }
        out
    }

    /// The completed response was the end.
    fn end(&mut self) -> String {
        String::new()
    }
}
