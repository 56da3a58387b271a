//! Words, sentences and tool definitions for the prompts.

use serde_json::{Value, json};

use super::Kind;

/// A small deterministic generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n` (0 for 0).
    pub fn below(&mut self, n: usize) -> usize {
        self.bits().checked_rem(n as u64).unwrap_or(0) as usize
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<'a, T: ?Sized>(&mut self, items: &[&'a T], or: &'a T) -> &'a T {
        items.get(self.below(items.len())).copied().unwrap_or(or)
    }
}

/// Split at white space.
const WORDS: &str = "the of and a to in is that it was for on are with as be this from have or by one not but what \
    all when there can more if server client request memory cache prefix token model batch latency \
    throughput engine router schedule page block hash table replica gateway answer question \
    carefully please explain because however therefore configuration deployment kubernetes network \
    a_variable HttpResponse don't it's e.g. 3.14 1024 2026-11-29 O(n) x+y README.md";
/// Split at bars: white space is part of one of them.
const SCRIPTS: &str = "你好，世界。|前缀缓存很有用|こんにちは|キャッシュ|안녕하세요|привет|мир|μνήμη|שלום|مرحبا|नमस्ते|สวัสดี|e\u{301}t\u{e9}|nai\u{308}ve|👩‍👩‍👧‍👦|🚀|🇩🇪|ﬁne|Straße|½|\u{a0}|…";

/// Ids of ordinary tokens: the first few hundred are single bytes and specials in most vocabularies.
pub(super) fn id(random: &mut Random, below: u32) -> u32 {
    let from = 300.min(below / 2);
    from + random.below((below - from) as usize) as u32
}

fn pick<'a>(random: &mut Random, words: impl Iterator<Item = &'a str> + Clone) -> &'a str {
    let at = random.below(words.clone().count());
    words.into_iter().nth(at).unwrap_or_default()
}

/// One sentence, in several scripts where the kind wants it.
pub(super) fn sentence(random: &mut Random, kind: Kind) -> String {
    let mut text = String::new();
    for i in 0..6 + random.below(12) {
        let other = kind == Kind::Unicode && random.one_in(3);
        let word = if other {
            pick(random, SCRIPTS.split('|'))
        } else {
            pick(random, WORDS.split_whitespace())
        };
        if i > 0 {
            text.push(' ');
        }
        text.push_str(word);
    }
    text.push_str(random.of(&[". ", "? ", ".\n", ":\n  - ", "! "], ". "));
    text
}

/// Several.
pub(super) fn sentences(random: &mut Random, kind: Kind, count: usize) -> String {
    (0..count)
        .map(|_| sentence(random, kind))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// Three tool definitions.
pub(super) fn tools(random: &mut Random) -> Value {
    let one = |name: &str, random: &mut Random| {
        json!({"type": "function", "function": {
            "name": name,
            "description": sentences(random, Kind::Chat, 3),
            "parameters": {"type": "object", "required": ["query"], "properties": {
                "query": {"type": "string", "description": sentences(random, Kind::Unicode, 1)},
                "limit": {"type": "integer", "minimum": 1, "default": 10},
            }},
        }})
    };
    json!([
        one("search", random),
        one("read_file", random),
        one("send", random)
    ])
}
