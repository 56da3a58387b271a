//! A seeded stream of requests as agents, chats and batch jobs send them: shared system prompts,
//! growing conversations, tools, several scripts, strings and token ids.
//!
//! The caller sends a request and tells the answer ([`Workload::answered`]), so that the next turn
//! of that conversation carries it.

mod text;

pub use text::Random;

use serde_json::{Value, json};
use text::{id, sentence, sentences, tools};

/// Some sentences.
pub(crate) fn prose(random: &mut Random, kind: Kind, count: usize) -> String {
    sentences(random, kind, count)
}

/// What a conversation is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Chat with a system prompt shared by many, and several turns.
    Chat,
    /// The same with tool definitions, tool calls and tool answers.
    Tools,
    /// Chat in other scripts, with emoji and combining marks.
    Unicode,
    /// `/v1/completions` with a string: a shared document and a question.
    Text,
    /// `/v1/completions` with token ids.
    TokenIds,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Chat,
        Self::Tools,
        Self::Unicode,
        Self::Text,
        Self::TokenIds,
    ];
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// `/v1/chat/completions` or `/v1/completions`.
    pub path: &'static str,
    /// Its JSON body.
    pub body: Value,
    /// What it belongs to; for [`Workload::answered`].
    pub conversation: usize,
    /// Of that conversation.
    pub kind: Kind,
}

impl Request {
    /// All text of the prompt, for estimates of its tokens per byte; empty for token ids.
    #[must_use]
    pub fn text(&self) -> String {
        if let Some(prompt) = self.body.get("prompt").and_then(Value::as_str) {
            return prompt.to_owned();
        }
        let messages = self.body.get("messages").and_then(Value::as_array);
        let contents = messages
            .into_iter()
            .flatten()
            .filter_map(|m| m.get("content")?.as_str());
        contents.collect::<Vec<_>>().join("\n")
    }
}

/// Sizes of a workload.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Model name in requests.
    pub model: String,
    /// Different system prompts (and documents and tool sets).
    pub shared: usize,
    /// Sentences in each.
    pub shared_sentences: usize,
    /// Conversations open at once.
    pub open: usize,
    /// Turns after which one ends.
    pub turns: usize,
    /// Largest token id used in token-id prompts, exclusive.
    pub token_ids_below: u32,
    /// Most tokens generated for one answer.
    pub max_tokens: usize,
}

#[derive(Debug)]
struct Conversation {
    kind: Kind,
    messages: Vec<Value>,
    tools: Value,
    text: String,
    ids: Vec<u32>,
    salt: Option<String>,
    turns: usize,
}

/// The stream of requests.
#[derive(Debug)]
pub struct Workload {
    random: Random,
    sizes: Sizes,
    open: Vec<Conversation>,
    asked: u64,
}

impl Workload {
    /// A workload that is the same for the same seed, sizes and answers.
    #[must_use]
    pub fn new(seed: u64, sizes: Sizes) -> Self {
        Self {
            random: Random::new(seed),
            sizes,
            open: Vec::new(),
            asked: 0,
        }
    }

    /// The next request.
    pub fn request(&mut self) -> Request {
        if self.open.len() < self.sizes.open {
            let conversation = self.begin();
            self.open.push(conversation);
        }
        let at = self.random.below(self.open.len());
        if self
            .open
            .get(at)
            .is_some_and(|c| c.turns >= self.sizes.turns)
        {
            let fresh = self.begin();
            if let Some(slot) = self.open.get_mut(at) {
                *slot = fresh;
            }
        }
        self.ask(at)
    }

    /// Tells the answer to the last request of a conversation.
    pub fn answered(&mut self, conversation: usize, text: &str) {
        let random = &mut self.random;
        let Some(c) = self.open.get_mut(conversation) else {
            return;
        };
        c.turns += 1;
        match c.kind {
            Kind::Text => {
                c.text.push_str(text);
            }
            Kind::TokenIds => {
                let limit = self.sizes.token_ids_below;
                c.ids.extend((0..20).map(|_| id(random, limit)));
            }
            Kind::Tools if random.one_in(3) => {
                let call = format!("call_{}", random.bits());
                let arguments =
                    json!({"query": sentence(random, Kind::Chat), "limit": 5}).to_string();
                let function = json!({"name": "search", "arguments": arguments});
                c.messages.push(json!({"role": "assistant", "content": null,
                    "tool_calls": [{"id": call, "type": "function", "function": function}]}));
                let result = json!({"hits": [sentence(random, Kind::Chat), sentence(random, Kind::Unicode)]});
                c.messages.push(
                    json!({"role": "tool", "tool_call_id": call, "content": result.to_string()}),
                );
                c.messages
                    .push(json!({"role": "assistant", "content": text}));
            }
            _ => c
                .messages
                .push(json!({"role": "assistant", "content": text})),
        }
    }

    fn begin(&mut self) -> Conversation {
        let kind = Kind::ALL
            .get(self.random.below(Kind::ALL.len()))
            .copied()
            .unwrap_or(Kind::Chat);
        // A shared part is made from its own seed, so that every user of it gets the same bytes.
        let which = self.random.below(self.sizes.shared);
        let mut shared = Random::new(which as u64 * 31 + kind as u64);
        let text: String = sentences(&mut shared, kind, self.sizes.shared_sentences);
        let limit = self.sizes.token_ids_below;
        let ids = if kind == Kind::TokenIds {
            (0..self.sizes.shared_sentences * 12)
                .map(|_| id(&mut shared, limit))
                .collect()
        } else {
            Vec::new()
        };
        let system = json!({"role": "system", "content": text});
        let messages = if matches!(kind, Kind::Text | Kind::TokenIds) {
            Vec::new()
        } else {
            vec![system]
        };
        let tools = if kind == Kind::Tools {
            tools(&mut shared)
        } else {
            Value::Null
        };
        let salt = self
            .random
            .one_in(16)
            .then(|| format!("tenant-{}", self.random.below(3)));
        Conversation {
            kind,
            messages,
            tools,
            text,
            ids,
            salt,
            turns: 0,
        }
    }

    fn ask(&mut self, at: usize) -> Request {
        self.asked += 1;
        let asked = self.asked;
        let random = &mut self.random;
        let max_tokens = 1 + random.below(self.sizes.max_tokens);
        let mut body =
            json!({"model": self.sizes.model, "max_tokens": max_tokens, "temperature": 0});
        let (mut kind, mut path) = (Kind::Chat, "/v1/chat/completions");
        if let Some(c) = self.open.get_mut(at) {
            kind = c.kind;
            let count = 1 + random.below(4);
            let question = format!("Question {asked}: {}", sentences(random, kind, count));
            match kind {
                Kind::Text => {
                    path = "/v1/completions";
                    c.text.push_str(&format!("\n\n{question}\n"));
                    set(&mut body, "prompt", json!(c.text));
                }
                Kind::TokenIds => {
                    path = "/v1/completions";
                    let limit = self.sizes.token_ids_below;
                    c.ids
                        .extend((0..30 + random.below(60)).map(|_| id(random, limit)));
                    set(&mut body, "prompt", json!(c.ids));
                }
                _ => {
                    c.messages
                        .push(json!({"role": "user", "content": question}));
                    set(&mut body, "messages", json!(c.messages));
                }
            }
            if !c.tools.is_null() {
                set(&mut body, "tools", c.tools.clone());
                // Some engines only take "auto" with a tool-call parser switched on.
                set(&mut body, "tool_choice", json!("none"));
            }
            if let Some(salt) = &c.salt {
                set(&mut body, "cache_salt", json!(salt));
            }
        }
        if random.one_in(4) {
            set(&mut body, "stream", json!(true));
            set(&mut body, "stream_options", json!({"include_usage": true}));
        }
        Request {
            path,
            body,
            conversation: at,
            kind,
        }
    }
}

fn set(body: &mut Value, key: &str, value: Value) {
    if let Some(map) = body.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> Sizes {
        let model = "m".to_owned();
        Sizes {
            model,
            shared: 3,
            shared_sentences: 30,
            open: 8,
            turns: 4,
            token_ids_below: 4000,
            max_tokens: 8,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let (mut a, mut b) = (Workload::new(5, sizes()), Workload::new(5, sizes()));
        for _ in 0..200 {
            let (x, y) = (a.request(), b.request());
            assert_eq!(x.body, y.body);
            a.answered(x.conversation, "an answer");
            b.answered(y.conversation, "an answer");
        }
    }

    #[test]
    fn a_turn_begins_with_the_turn_before() {
        let mut w = Workload::new(
            1,
            Sizes {
                open: 1,
                turns: 100,
                ..sizes()
            },
        );
        let first = w.request();
        w.answered(first.conversation, "an answer");
        let second = w.request();
        let key = if first.path == "/v1/completions" {
            "prompt"
        } else {
            "messages"
        };
        let (a, b) = (first.body[key].to_string(), second.body[key].to_string());
        assert!(b.starts_with(&a[..a.len() - 1]), "{a}\n{b}");
        assert!(b.len() > a.len());
    }
}
