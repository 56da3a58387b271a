//! Whether generated tokens are those that the tokenizer makes of their text.
//!
//! The real tokenizer looks at short pieces of what models generate, beside the hot path and within a
//! share of one core: see [`crate::index::grown`] for why and for which pieces. A tokenizer for which
//! pieces do not tell (one that puts a space before every text, say) is found out by a text of our
//! own when it is loaded, and not used.
//!
//! Absent here: formats other than `tokenizer.json`. Pools without a usable tokenizer trust what
//! engines store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokenizers::Tokenizer;

use crate::engine::Engine;
use crate::index::grown::Tail;
use crate::vocab::Vocab;

/// How often blocks are looked for.
const PERIOD: Duration = Duration::from_millis(10);
/// How long they are looked at, each time, over all pools: a quarter of a core.
const BUDGET: Duration = Duration::from_micros(2_500);
/// Blocks taken at a time.
const BLOCKS: usize = 16;

/// Prose, code, lists, numbers and marks: what pieces of any of it must agree with the whole on.
const SAMPLE: &str = "The quick brown fox jumps over the lazy dog, and it's 42 times faster than \
before!\n\nHere is what you can do:\n1. Check the log (see `server.log`) for errors.\n2. Don't \
restart it; the cache would be lost.\n\n```python\ndef total(values):\n    result = 0\n    for \
value in values:\n        result += value * 3.5  # weights\n    return result\n```\n\nSome more \
words follow here: cafe and naive, state-of-the-art, e.g. https://example.com/path?x=1&y=2 and so \
on. It should work for anything that people write about, in long sentences or short ones.\n";

/// Why a tokenizer is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// There is no `tokenizer.json`, or it cannot be read.
    #[error("tokenizer.json cannot be loaded: {0}")]
    Load(String),
    /// Pieces of a text have other tokens than the text.
    #[error("tokens of pieces are not those of the whole")]
    Pieces,
}

/// A pool's tokenizer.
pub struct Checker {
    tokenizer: Tokenizer,
    vocab: Arc<Vocab>,
}

impl Checker {
    /// The tokenizer of a model's folder.
    ///
    /// # Errors
    /// It has no `tokenizer.json`, or one that pieces of text tell nothing about.
    pub fn of_model_dir(dir: &Path, vocab: Arc<Vocab>) -> Result<Self, Unusable> {
        let bytes = std::fs::read(dir.join("tokenizer.json"))
            .map_err(|error| Unusable::Load(error.to_string()))?;
        Self::of_json(&bytes, vocab)
    }

    /// As [`of_model_dir`](Self::of_model_dir), from the file's content.
    ///
    /// # Errors
    /// The same.
    pub fn of_json(json: &[u8], vocab: Arc<Vocab>) -> Result<Self, Unusable> {
        let load =
            |error: Box<dyn std::error::Error + Send + Sync>| Unusable::Load(error.to_string());
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(load)?;
        tokenizer.with_truncation(None).map_err(load)?;
        tokenizer.with_padding(None);
        let checker = Self { tokenizer, vocab };
        if checker.knows_pieces() {
            Ok(checker)
        } else {
            Err(Unusable::Pieces)
        }
    }

    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let encoding = self.tokenizer.encode_fast(text, false).ok()?;
        Some(encoding.get_ids().to_vec())
    }

    /// Whether what is known of a whole text is found in its pieces, cut as engine blocks cut it.
    fn knows_pieces(&self) -> bool {
        let Some(tokens) = self.encode(SAMPLE) else {
            return false;
        };
        [5, 16, 64].into_iter().all(|size| {
            let mut tail = Tail::default();
            tokens.chunks(size).all(|block| {
                let (tokens, context, until) = tail.extend(block, |id| self.vocab.bytes(id));
                self.is_canonical(&tokens, context, until)
            })
        })
    }

    /// Whether the tokenizer cuts the text of these tokens where they do, from the end of the first
    /// `context` ones to that of the first `until` ones.
    #[must_use]
    pub fn is_canonical(&self, tokens: &[u32], context: usize, until: usize) -> bool {
        if until <= context {
            return true;
        }
        let mut bytes = Vec::new();
        if self.vocab.append_bytes(tokens, &mut bytes).is_err() {
            return false;
        }
        // The first token may begin, and the last one end, within a character.
        let begin = if context > 0 {
            bytes
                .iter()
                .take(3)
                .take_while(|b| **b & 0xc0 == 0x80)
                .count()
        } else {
            0
        };
        let rest = bytes.get(begin..).unwrap_or_default();
        let text = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() => {
                let whole = rest.get(..error.valid_up_to()).unwrap_or_default();
                std::str::from_utf8(whole).unwrap_or_default()
            }
            Err(_) => return false,
        };
        let Some(wanted) = self.encode(text) else {
            return false;
        };
        let (theirs, ours) = (self.ends(tokens, 0), self.ends(&wanted, begin));
        if ours.last().copied().unwrap_or(begin) != begin + text.len() {
            // The tokenizer changes the text.
            return false;
        }
        let place = |count: usize| count.checked_sub(1).and_then(|at| theirs.get(at)).copied();
        let (from, to) = (place(context).unwrap_or(0), place(until).unwrap_or(0));
        if to > begin + text.len() {
            return false;
        }
        let within = |end: &&usize| **end > from && **end <= to;
        theirs.iter().filter(within).eq(ours.iter().filter(within))
    }

    /// Where tokens end, in bytes.
    fn ends(&self, tokens: &[u32], begin: usize) -> Vec<usize> {
        tokens
            .iter()
            .scan(begin, |end, id| {
                *end += self.vocab.bytes(*id).map_or(0, <[u8]>::len);
                Some(*end)
            })
            .collect()
    }
}

/// Judges blocks for ever, within the budget.
pub async fn run(engine: Arc<Engine>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !engine.has_grown() {
            continue;
        }
        let engine = engine.clone();
        let judged = tokio::task::spawn_blocking(move || {
            let start = Instant::now();
            while start.elapsed() < BUDGET && engine.judge_grown(BLOCKS) {}
        });
        if judged.await.is_err() {
            tracing::error!("the check of generated tokens failed once");
        }
    }
}

#[cfg(test)]
mod tests;
