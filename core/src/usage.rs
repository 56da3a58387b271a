//! The engine's own account of a request, read out of its response as the bytes go by.
//!
//! What is wanted is a few numbers deep in a body that may be large, come in pieces of any size, and
//! hold text that a model wrote. So neither a buffer nor a search for the words: a small state
//! machine follows the JSON's structure along the few paths below and skips all else. It never
//! allocates, and text inside a string can never be taken for a figure.
//!
//! | interface | prompt's tokens | tokens found cached | stands in |
//! |---|---|---|---|
//! | chat and text completions, embeddings | `usage.prompt_tokens` | `usage.prompt_tokens_details.cached_tokens` | the body; the last event before `[DONE]` |
//! | responses | `usage.input_tokens` | `usage.input_tokens_details.cached_tokens` | the body; `response.usage...` in `response.completed` |
//! | messages | `usage.input_tokens` and both `cache_*_input_tokens` | `usage.cache_read_input_tokens` | the body; `message_delta`, where `message_start` may have the first without the second |
//!
//! As vLLM 0.32 writes them (entrypoints/openai/{chat_completion,completion,responses}/protocol.py,
//! entrypoints/anthropic/{protocol,serving}.py). `usage` is not the last field there:
//! `prompt_logprobs`, `prompt_token_ids`, `kv_transfer_params` and `input_messages` follow it and can
//! be of any size, which is why a fixed tail of the body would not do.
//!
//! Beside the figures the answer's name is read (`id`), for requests that build on a stored answer.
//!
//! Absent on purpose: keys written with escapes, and events whose data spans several lines. vLLM and
//! SGLang write neither.

mod find;
mod machine;
mod name;

use machine::Machine;

/// How a response's body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON value.
    Json,
    /// Server-sent events with a JSON value each.
    Events,
}

/// What the engine says of the tokens that it found cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cached {
    /// No `usage` at all: a stream without `stream_options.include_usage`.
    #[default]
    NoUsage,
    /// `usage` without the figure: an engine without `--enable-prompt-tokens-details`.
    NoFigure,
    /// The figure is there, but `null` or not a count.
    Null,
    /// So many prompt tokens were found cached.
    Tokens(u64),
}

/// What a response said so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// Of those, found in the cache.
    pub cached: Cached,
}

/// Where a line of an event stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// So many bytes of `data:` have matched.
    Begin(usize),
    /// Behind `data:`.
    Data,
    /// A line of another kind.
    Other,
}

const DATA: &[u8] = b"data:";

/// Reads a response's body in pieces of any size.
#[derive(Clone, Debug)]
pub struct UsageScanner {
    framing: Framing,
    line: Line,
    machine: Machine,
}

impl UsageScanner {
    /// For a body that has not begun.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self {
            framing,
            line: Line::Begin(0),
            machine: Machine::default(),
        }
    }

    /// Takes the next piece. Anything goes: what is not JSON only says nothing.
    pub fn feed(&mut self, bytes: &[u8]) {
        match self.framing {
            Framing::Json => self.machine.feed(bytes),
            Framing::Events => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let end = find::line_end(rest).map_or(rest.len(), |at| at + 1);
                    let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
                    self.feed_line(line);
                    rest = after;
                }
            }
        }
    }

    /// A piece with a line's end at its own end at most.
    fn feed_line(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while let (Line::Begin(matched), Some((byte, after))) = (self.line, rest.split_first()) {
            rest = after;
            self.line = match DATA.get(matched) {
                Some(wanted) if wanted == byte && matched + 1 == DATA.len() => {
                    self.machine.begin();
                    Line::Data
                }
                Some(wanted) if wanted == byte => Line::Begin(matched + 1),
                _ => Line::Other,
            };
        }
        if self.line == Line::Data {
            self.machine.feed(rest);
        }
        if piece.last() == Some(&b'\n') {
            self.line = Line::Begin(0);
        }
    }

    /// The answer's name: the first `id` at the top, or in an event's `response` or `message`.
    #[must_use]
    pub fn id(&self) -> Option<&[u8]> {
        self.machine.id()
    }

    /// What the body said so far: of each figure, the last one given.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.machine.usage()
    }
}

#[cfg(test)]
mod tests;
