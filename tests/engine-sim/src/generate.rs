//! What the simulated model "says": deterministic, seeded by the prompt, made of words that tokenise like
//! ordinary text, and at a set rate of tokens that re-tokenising the text would not give.

use serde_json::{Value, json};

use crate::model::Model;
use crate::python_json::dumps;
use crate::template::call_text;

/// Small deterministic random numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Seeded by anything.
    pub(crate) fn of(seed: u64, tokens: &[u32]) -> Self {
        let fold = |h: u64, t: &u32| (h ^ u64::from(*t)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(tokens.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, fold))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap_or(0)
    }

    /// True with probability `p`.
    fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    fn of_list<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list.get(self.below(list.len()))
            .copied()
            .unwrap_or_default()
    }
}

/// What to generate.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    /// Most tokens, at least 1.
    pub(crate) max_tokens: usize,
    /// Do not stop before `max_tokens`.
    pub(crate) ignore_eos: bool,
    /// The answer starts a turn (so without a space in front).
    pub(crate) starts_turn: bool,
    /// Functions to call instead of answering in words; empty for none.
    pub(crate) call_one_of: &'a [Value],
    pub(crate) noncanonical_rate: f64,
}

/// The planned answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// At least one; the last one ends the turn if `stopped`.
    pub(crate) tokens: Vec<u32>,
    /// Ended by the model itself, not by `max_tokens`.
    pub(crate) stopped: bool,
    /// Name and arguments (JSON text) if the whole answer is a tool call.
    pub(crate) call: Option<(String, String)>,
}

const WORDS: &[&str] = &[
    "the", "parcel", "harbour", "because", "value", "system", "morning", "answer", "with", "and",
    "of", "window", "returns", "function", "message", "list", "careful", "between", "another",
    "report", "engine", "router", "prefix", "is", "was", "not", "should", "letters", "tomorrow",
    "station", "customer", "weather", "to", "in", "a", "for", "which", "holds", "block", "token",
    "first", "second", "explains", "example", "number", "table", "under", "quick", "slow",
    "memory",
];
const RARE: &[&str] = &[
    "Größe",
    "naïve",
    "日本語",
    "谢谢",
    "🚀",
    "café",
    "مرحبا",
    "4711",
    "0.25",
    "`x = y`",
    "Łukasz",
    "—",
];
const MOST_WORDS: usize = 160;

/// Plans an answer.
pub(crate) fn answer(model: &Model, random: &mut Random, ask: &Ask<'_>) -> anyhow::Result<Answer> {
    if let Some(tool) = ask.call_one_of.get(random.below(ask.call_one_of.len())) {
        let (name, arguments) = call(random, tool);
        let tokens = model.encode(&call_text(&name, &arguments))?;
        let mut answer = cut(model, tokens, ask);
        answer.call = Some((name, arguments)).filter(|_| answer.stopped);
        return Ok(answer);
    }
    let mut tokens = Vec::new();
    loop {
        let starts = ask.starts_turn && tokens.is_empty();
        tokens.extend(passage(model, random, starts, ask)?);
        if !ask.ignore_eos || tokens.len() >= ask.max_tokens {
            return Ok(cut(model, tokens, ask));
        }
    }
}

fn cut(model: &Model, mut tokens: Vec<u32>, ask: &Ask<'_>) -> Answer {
    let stopped = tokens.len() < ask.max_tokens;
    if stopped {
        tokens.push(model.end_of_turn());
    } else {
        tokens.truncate(ask.max_tokens);
    }
    Answer {
        tokens,
        stopped,
        call: None,
    }
}

/// Sentences of words, each with its space in front, tokenised.
fn passage(
    model: &Model,
    random: &mut Random,
    starts: bool,
    ask: &Ask<'_>,
) -> anyhow::Result<Vec<u32>> {
    let count = (8 + random.below(MOST_WORDS)).min(ask.max_tokens + 1);
    let (mut tokens, mut text) = (Vec::new(), String::new());
    let mut sentence_starts = true;
    for i in 0..count {
        let word = if random.below(24) == 0 {
            random.of_list(RARE)
        } else {
            random.of_list(WORDS)
        };
        let mut piece = String::from(if starts && i == 0 { "" } else { " " });
        if sentence_starts {
            piece.extend(word.chars().take(1).flat_map(char::to_uppercase));
            piece.extend(word.chars().skip(1));
        } else {
            piece += word;
        }
        if random.chance(ask.noncanonical_rate)
            && let Some(odd) = noncanonical(model, &piece)?
        {
            tokens.extend(model.encode(&std::mem::take(&mut text))?);
            tokens.extend(odd);
        } else {
            text += &piece;
        }
        sentence_starts = random.below(9) == 0 || i + 1 == count;
        text += match (sentence_starts, random.below(12)) {
            (true, 0) => ".\n\n",
            (true, _) => ".",
            (false, 0) => ",",
            (false, _) => "",
        };
        if text.ends_with('\n') && i + 1 == count {
            text.truncate(text.trim_end().len());
        }
    }
    tokens.extend(model.encode(&text)?);
    Ok(tokens)
}

/// Other tokens for the same bytes: the word cut in two. `None` if no cut makes a difference.
fn noncanonical(model: &Model, piece: &str) -> anyhow::Result<Option<Vec<u32>>> {
    let canonical = model.encode(piece)?;
    for (at, _) in piece.char_indices().skip(2) {
        let mut ids = model.encode(&piece[..at])?;
        ids.extend(model.encode(&piece[at..])?);
        if ids != canonical {
            return Ok(Some(ids));
        }
    }
    Ok(None)
}

/// A call of a tool with plausible arguments.
fn call(random: &mut Random, tool: &Value) -> (String, String) {
    let function = &tool["function"];
    let mut arguments = serde_json::Map::new();
    let properties = function["parameters"]["properties"].as_object();
    let required = function["parameters"]["required"].as_array();
    for (name, schema) in properties.into_iter().flatten() {
        let needed = required.is_some_and(|list| list.iter().any(|r| r == name));
        if !needed && random.below(2) == 0 {
            continue;
        }
        let value = match schema["type"].as_str() {
            Some("integer") => json!(random.below(1000)),
            Some("number") => json!(random.below(1000) as f64 / 8.0),
            Some("boolean") => json!(random.below(2) == 0),
            Some("array") => json!([random.of_list(WORDS), random.of_list(WORDS)]),
            Some("object") => json!({}),
            _ => match schema["enum"]
                .as_array()
                .and_then(|e| e.get(random.below(e.len())))
            {
                Some(one) => one.clone(),
                None => json!(format!(
                    "{} {}",
                    random.of_list(WORDS),
                    random.of_list(RARE)
                )),
            },
        };
        arguments.insert(name.clone(), value);
    }
    (
        function["name"].as_str().unwrap_or_default().to_owned(),
        dumps(&Value::Object(arguments)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(rate: f64) -> Ask<'static> {
        Ask {
            max_tokens: 500,
            ignore_eos: false,
            starts_turn: true,
            call_one_of: &[],
            noncanonical_rate: rate,
        }
    }

    #[test]
    fn canonical_answers_tokenise_back_and_others_do_not() {
        let model = Model::load().unwrap();
        let mut differ = 0;
        for seed in 0..200 {
            let at_rate = |rate| {
                let answer = answer(&model, &mut Random::of(seed, &[1, 2]), &ask(rate)).unwrap();
                assert!(answer.stopped && answer.tokens.last() == Some(&model.end_of_turn()));
                let text = model.decode(&answer.tokens);
                let again = model
                    .encode(&format!("<|im_start|>assistant\n{text}<|im_end|>"))
                    .unwrap();
                again.ends_with(&answer.tokens)
            };
            assert!(at_rate(0.0), "seed {seed}");
            differ += usize::from(!at_rate(0.05));
        }
        assert!(differ > 150, "{differ} of 200");
    }

    #[test]
    fn the_prompt_and_the_seed_decide() {
        let model = Model::load().unwrap();
        let of = |seed, prompt: &[u32]| {
            answer(&model, &mut Random::of(seed, prompt), &ask(0.0))
                .unwrap()
                .tokens
        };
        assert_eq!(of(1, &[5, 6]), of(1, &[5, 6]));
        assert_ne!(of(1, &[5, 6]), of(2, &[5, 6]));
        assert_ne!(of(1, &[5, 6]), of(1, &[6, 5]));
    }

    #[test]
    fn ignore_eos_goes_on_to_the_limit() {
        let model = Model::load().unwrap();
        let ask = Ask {
            max_tokens: 1000,
            ignore_eos: true,
            ..ask(0.0)
        };
        let got = answer(&model, &mut Random::of(1, &[]), &ask).unwrap();
        assert_eq!((got.tokens.len(), got.stopped), (1000, false));
    }

    #[test]
    fn calls_a_tool() {
        let model = Model::load().unwrap();
        let tools = [
            json!({"function": {"name": "track", "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}}),
        ];
        let ask = Ask {
            call_one_of: &tools,
            ..ask(0.0)
        };
        let got = answer(&model, &mut Random::of(1, &[]), &ask).unwrap();
        let (name, arguments) = got.call.unwrap();
        assert_eq!(name, "track");
        assert!(arguments.starts_with("{\"n\": "));
        assert_eq!(model.decode(&got.tokens), call_text(&name, &arguments));
    }
}
