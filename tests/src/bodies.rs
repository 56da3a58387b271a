//! Request bodies of every interface that vLLM serves, mixed as real clients mix them: for comparing
//! our text with the engine's. The same for the same seed.
//!
//! Prompts are a few hundred tokens long and share beginnings, so that a second request finds
//! something in the cache.

mod chat;
mod others;

use serde_json::{Value, json};

use crate::workload::{Kind, Random};

/// A body and where it goes.
#[derive(Debug, Clone)]
pub struct Body {
    /// What it is about and its number, for messages.
    pub name: String,
    /// Where it is posted.
    pub path: &'static str,
    /// The body.
    pub body: Value,
}

/// What makes one kind of body.
type Maker = fn(&mut Words) -> Value;

/// Bodies for a model that generates: `each` of every kind.
#[must_use]
pub fn generate(seed: u64, model: &str, each: usize) -> Vec<Body> {
    make(seed, model, each, &[chat::KINDS, others::KINDS])
}

/// Bodies for a model that embeds: `each` of every kind.
#[must_use]
pub fn embed(seed: u64, model: &str, each: usize) -> Vec<Body> {
    make(seed, model, each, &[others::EMBEDDING_KINDS])
}

fn make(
    seed: u64,
    model: &str,
    each: usize,
    kinds: &[&[(&str, &'static str, Maker)]],
) -> Vec<Body> {
    let mut bodies = Vec::new();
    for (kind, path, maker) in kinds.iter().copied().flatten() {
        for number in 0..each {
            let mut words = Words::new(seed ^ ((bodies.len() as u64) << 20));
            let mut body = maker(&mut words);
            if let Some(body) = body.as_object_mut() {
                body.insert("model".to_owned(), json!(model));
            }
            bodies.push(Body {
                name: format!("{kind} {number}"),
                path,
                body,
            });
        }
    }
    bodies
}

/// Texts of all sorts.
struct Words {
    random: Random,
}

/// Beginnings that many prompts share.
const SHARED: usize = 3;
/// Texts that tokenizers, templates and JSON writers treat with care.
const ODD: [&str; 14] = [
    "e\u{301}te\u{301} cafe\u{301} \u{1100}\u{1161}\u{11a8}",
    "<|im_start|>system\nnot a turn<|im_end|>",
    "<think>\nno thought\n</think>\n\n",
    "   leading,  double   and trailing   ",
    "\n\n\nlines\r\n\ttabs\t\n",
    "你好，世界。前缀缓存很有用！",
    "مرحبا بالعالم 👩‍👩‍👧‍👦🚀🇩🇪",
    "{\"json\": [1, 2.50, 1e10, null], \"quote\": \"\\\"\"}",
    "{{ not_a_template }} {% raw %}",
    "fn main() { println!(\"{}\", 1 << 3); } // ok",
    "\u{a0}\u{200b}\u{feff}ﬁ ½ Å\u{212b} ①",
    "<tool_call>\n{\"name\": \"x\"}\n</tool_call>",
    "<tool_response>x</tool_response> /no_think",
    "a\u{0}b\u{1f}c\\u00e9 \u{2028}",
];

impl Words {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
        }
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.random.one_in(n)
    }

    fn below(&mut self, n: usize) -> usize {
        self.random.below(n)
    }

    fn of<T: Clone>(&mut self, items: &[T]) -> T {
        let at = self.random.below(items.len());
        items[at].clone()
    }

    /// A beginning that other bodies have as well: a few hundred tokens.
    fn shared(&mut self) -> String {
        let which = self.random.below(SHARED) as u64;
        let kind = if which == 2 {
            Kind::Unicode
        } else {
            Kind::Chat
        };
        crate::workload::prose(&mut Random::new(900 + which), kind, 14)
    }

    /// Some text of its own, with something odd in it half of the time.
    fn text(&mut self) -> String {
        let kind = if self.one_in(3) {
            Kind::Unicode
        } else {
            Kind::Chat
        };
        let sentences = 1 + self.below(5);
        let mut text = crate::workload::prose(&mut self.random, kind, sentences);
        if self.one_in(2) {
            let odd = self.of(&ODD);
            if self.one_in(2) {
                text.insert_str(0, odd);
            } else {
                text.push_str(odd);
            }
        }
        text
    }

    /// Token ids of ordinary tokens.
    fn ids(&mut self, count: usize) -> Vec<u32> {
        (0..count)
            .map(|_| 300 + self.random.below(100_000) as u32)
            .collect()
    }

    /// Values as JSON schemas and tool arguments have them.
    fn arguments(&mut self) -> Value {
        let text = self.of(&ODD);
        self.of(&[
            json!({"city": "Zürich", "days": 3, "exact": true}),
            json!({"q": text, "nested": {"b": [1, 2.5, null], "a": "x"}}),
            json!({}),
            json!({"ratio": 0.1, "big": 1e22, "negative": -7, "list": []}),
        ])
    }
}
