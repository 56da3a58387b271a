//! Requests that allow the engine to cut their prompt.
//!
//! Kept at the start, a prompt is a prefix of what it was, and that is all we need. Kept at the end,
//! it is another prompt, unless it is short enough to be kept whole: a token has a byte at least, so
//! a text has at most as many tokens as bytes.

use minijinja::value::Value;

use super::request::field;
use super::{Api, ParsedRequest, Skip};

/// Tokens that a tokenizer may add to a text without adding bytes to ours.
const UNSEEN_TOKENS: usize = 8;

/// How a prompt is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Truncation {
    /// Tokens that are kept; `None`: all.
    keep: Option<Keep>,
    /// The end is kept, not the start.
    keeps_end: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keep {
    Tokens(usize),
    /// As many as the model takes, less one where it is to write some.
    ModelLen,
}

/// What the body of a request says.
///
/// # Errors
/// [`Skip::InvalidRequest`] for what the engine refuses.
pub(super) fn of(body: &Value, api: Api) -> Result<Truncation, Skip> {
    let pooling = matches!(api, Api::Embeddings | Api::Pooling);
    let keeps_end = match field(body, "truncation_side") {
        None => !pooling,
        Some(side) => match side.as_str() {
            Some("left") => true,
            Some("right") => false,
            _ => return Err(Skip::InvalidRequest),
        },
    };
    // Not a field of the other interfaces. In responses we put it there ourselves.
    let applies = pooling
        || matches!(
            api,
            Api::ChatCompletions | Api::Completions | Api::Responses
        );
    let given = field(body, "truncate_prompt_tokens").filter(|_| applies);
    let keep = match given.map(i64::try_from) {
        None => None,
        Some(Ok(-1)) => Some(Keep::ModelLen),
        Some(Ok(tokens)) => Some(Keep::Tokens(
            usize::try_from(tokens).map_err(|_| Skip::InvalidRequest)?,
        )),
        Some(Err(_)) => return Err(Skip::InvalidRequest),
    };
    Ok(Truncation { keep, keeps_end })
}

impl ParsedRequest {
    /// Tokens that the engine keeps of the prompt's start, where the request says so.
    #[must_use]
    pub fn kept_tokens(&self) -> Option<u32> {
        // Hardly any request says so, and rendering has looked at all of it.
        field(&self.body, "truncate_prompt_tokens")?;
        let truncation = of(&self.body, self.api).ok()?;
        match truncation.keep.filter(|_| !truncation.keeps_end)? {
            Keep::Tokens(tokens) => u32::try_from(tokens).ok(),
            Keep::ModelLen => None,
        }
    }
}

impl Truncation {
    /// Tokens of a prompt that are kept for certain, whatever its length.
    fn kept(self, max_model_len: u32) -> usize {
        match self.keep {
            None => usize::MAX,
            Some(Keep::Tokens(tokens)) => tokens,
            Some(Keep::ModelLen) => {
                usize::try_from(max_model_len).map_or(0, |n| n.saturating_sub(1))
            }
        }
    }

    /// Is a canonical text still what the engine's prompt begins with?
    ///
    /// # Errors
    /// [`Skip::Truncated`] if not, or if we cannot tell.
    pub(super) fn text(self, text: &str, max_model_len: u32) -> Result<(), Skip> {
        let most_tokens = text.len().saturating_add(UNSEEN_TOKENS);
        if self.keep.is_none() || !self.keeps_end || most_tokens <= self.kept(max_model_len) {
            Ok(())
        } else {
            Err(Skip::Truncated)
        }
    }

    /// The ids that are left.
    ///
    /// # Errors
    /// [`Skip::Truncated`] if we cannot tell.
    pub(super) fn ids(self, mut ids: Vec<u32>, max_model_len: u32) -> Result<Vec<u32>, Skip> {
        let kept = self.kept(max_model_len);
        if ids.len() <= kept {
            return Ok(ids);
        }
        match (self.keep, self.keeps_end) {
            (Some(Keep::ModelLen), true) => return Err(Skip::Truncated),
            (Some(Keep::ModelLen), false) | (None, _) => {}
            (Some(Keep::Tokens(_)), true) => drop(ids.drain(..ids.len() - kept)),
            (Some(Keep::Tokens(_)), false) => ids.truncate(kept),
        }
        Ok(ids)
    }
}
