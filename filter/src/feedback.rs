//! Whether our predictions are right: what the engine says it found cached, against what the table
//! said it would.
//!
//! A request that was looked up leaves an [`Expected`]; its response is read as it goes by
//! ([`Reading`], never held or changed) and the two are judged ([`Outcome`]) and counted by pool
//! ([`Figures`]). The totals go to the control plane with every poll, which raises the alarm.
//!
//! Not judged: responses other than 200, answers of another replica than the one named first, and
//! requests whose figure says nothing of one whole prompt (see
//! [`prefix_picker_core::prompt::ParsedRequest::has_one_figure`]).

mod figures;
mod settling;

use std::rc::Rc;

use prefix_picker_core::usage::{Cached, Framing, Usage, UsageScanner};

use crate::host::Host;

pub use figures::{Figures, POOLS_MAX};
pub use settling::{NOTES, Sibling};

/// Bytes of a response taken out of Envoy at once, so that no response makes a VM's memory grow.
const SLICE_BYTES: usize = 64 << 10;

/// What the table said of a request, for comparison with what its response says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The pool's name.
    pub pool: Rc<str>,
    /// Prompt tokens that the replica would find cached.
    pub tokens: u32,
    /// Our estimate of the prompt's tokens.
    pub prompt_tokens: u32,
    /// The prompt's length in bytes or, where it came as such, token ids.
    pub prompt_len: usize,
    /// The longest of our blocks, in the same unit.
    pub block_len: usize,
    /// The engine's block size in tokens, 0 while unknown.
    pub engine_block: u32,
    /// What tells a request that shares the first block that the table did not have.
    pub sibling: Option<Sibling>,
    /// Such a request was on its way when this one was decided, or had just been answered: events
    /// of what it left in the cache may not have come yet.
    pub early: bool,
    /// The figure will speak of this prompt, as a whole and alone.
    pub comparable: bool,
}

/// How a response compares with what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Within one block, ours or the engine's.
    Exact,
    /// More was expected than the engine found.
    Over,
    /// Less was expected than the engine found.
    Under,
    /// The same, but events of a sibling were under way.
    Early,
    /// No `usage` in the response.
    NoUsage,
    /// `usage` without the figure.
    NoFigure,
    /// The figure is `null`, or no count.
    Null,
    /// The response is compressed, or neither JSON nor events.
    Unreadable,
    /// The figure is there, but not of this prompt alone.
    Apart,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Exact,
        Self::Over,
        Self::Under,
        Self::Early,
        Self::NoUsage,
        Self::NoFigure,
        Self::Null,
        Self::Unreadable,
        Self::Apart,
    ];

    /// Its name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Over => "over",
            Self::Under => "under",
            Self::Early => "early",
            Self::NoUsage => "no_usage",
            Self::NoFigure => "no_figure",
            Self::Null => "null",
            Self::Unreadable => "unreadable",
            Self::Apart => "apart",
        }
    }
}

/// A response compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// How it went.
    pub outcome: Outcome,
    /// There was something to expect or to find: a block at least.
    pub telling: bool,
    /// The engine's figure.
    pub cached: Option<u64>,
    /// The engine's count of the prompt's tokens, or our estimate.
    pub prompt_tokens: u64,
}

impl Expected {
    /// Compares with what the response said; `None`: it could not be read.
    #[must_use]
    pub fn judge(&self, usage: Option<Usage>) -> Judged {
        let prompt = usage.and_then(|usage| usage.prompt_tokens);
        let without = |outcome| Judged {
            outcome,
            telling: false,
            cached: None,
            prompt_tokens: prompt.unwrap_or(u64::from(self.prompt_tokens)),
        };
        let Some(usage) = usage else {
            return without(Outcome::Unreadable);
        };
        let cached = match usage.cached {
            Cached::NoUsage => return without(Outcome::NoUsage),
            Cached::NoFigure => return without(Outcome::NoFigure),
            Cached::Null => return without(Outcome::Null),
            Cached::Tokens(_) if !self.comparable => return without(Outcome::Apart),
            Cached::Tokens(cached) => cached,
        };
        let expected = u64::from(self.tokens);
        let tolerance = self.tolerance(prompt);
        let outcome = if expected.abs_diff(cached) <= tolerance {
            Outcome::Exact
        } else if self.early {
            Outcome::Early
        } else if expected > cached {
            Outcome::Over
        } else {
            Outcome::Under
        };
        Judged {
            outcome,
            telling: expected.max(cached) > tolerance,
            cached: Some(cached),
            ..without(outcome)
        }
    }

    /// One block, ours or the engine's, whichever is larger, in tokens: our table knows nothing
    /// smaller than its blocks, the engine's cache nothing smaller than its own. In whole blocks of
    /// the engine, as prediction and figure are.
    fn tolerance(&self, prompt_tokens: Option<u64>) -> u64 {
        let tokens = prompt_tokens.unwrap_or(0).max(self.prompt_tokens.into());
        let len = u64::try_from(self.prompt_len).unwrap_or(u64::MAX).max(1);
        let block = u64::try_from(self.block_len).unwrap_or(u64::MAX);
        let ours = block.saturating_mul(tokens).div_ceil(len).min(block);
        let engine = u64::from(self.engine_block).max(1);
        ours.max(engine).next_multiple_of(engine)
    }
}

/// A response being read.
#[derive(Debug)]
pub enum Reading {
    /// Its figures are looked for.
    Scan(Box<UsageScanner>),
    /// It cannot be read.
    Unreadable,
}

impl Reading {
    /// By the response's headers.
    #[must_use]
    pub fn of(content_type: &str, content_encoding: Option<&str>) -> Self {
        let plain = content_encoding
            .is_none_or(|coding| coding.is_empty() || coding.eq_ignore_ascii_case("identity"));
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let framing = if essence.eq_ignore_ascii_case("text/event-stream") {
            Framing::Events
        } else if essence.eq_ignore_ascii_case("application/json") {
            Framing::Json
        } else {
            return Self::Unreadable;
        };
        if plain {
            Self::Scan(Box::new(UsageScanner::new(framing)))
        } else {
            Self::Unreadable
        }
    }

    /// The piece of the body that is passing now, `bytes` long.
    pub fn pass(&mut self, host: &impl Host, bytes: usize) {
        let Self::Scan(scanner) = self else { return };
        let mut start = 0;
        while start < bytes {
            let piece = host.response_body(start, SLICE_BYTES.min(bytes - start));
            if piece.is_empty() {
                return;
            }
            scanner.feed(&piece);
            start += piece.len();
        }
    }

    /// The answer's name, once it has passed.
    #[must_use]
    pub fn id(&self) -> Option<&[u8]> {
        match self {
            Self::Scan(scanner) => scanner.id(),
            Self::Unreadable => None,
        }
    }

    /// What the response said; `None`: it could not be read.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        match self {
            Self::Scan(scanner) => Some(scanner.usage()),
            Self::Unreadable => None,
        }
    }
}

#[cfg(test)]
mod tests;
