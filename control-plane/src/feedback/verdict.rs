//! The decision: do predictions and hits agree? Pure, by counts of requests, without a clock.
//!
//! Only telling responses count: those where a block at least was predicted or found. A cold pool,
//! or traffic that shares nothing, tells nothing either way. Early ones (siblings of a burst whose
//! events were under way) do not count either.
//!
//! Why a fixed share of few responses is enough: a wrong template is wrong for every request, while
//! in normal operation one in a hundred or so is off (events in flight, evictions, tokens of decoded
//! tails that come back in other pieces). If a share `p` of telling responses is off at random, the
//! chance that half of the last [`WINDOW`] are is below 10^-17 for p = 5 %; while the window fills,
//! from [`ENOUGH`] on, the chance that it happens once is 3·10^-9 for p = 1 %, 3·10^-5 for p = 5 %
//! (the tests compute both). From a full window of agreement it takes `WINDOW / 2` wrong ones to
//! raise the alarm, so a template that turns wrong is reported within 100 requests where one in four
//! finds something cached.

use std::collections::VecDeque;

use prefix_picker_core::sync::PoolFeedback;

/// Telling responses looked at: the last so many.
pub const WINDOW: usize = 48;
/// With fewer there is no verdict.
pub const ENOUGH: usize = 12;
/// Responses after which the engines' counters are compared, where responses have no figure.
pub const SLICE: u64 = 50;

/// What is to be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Too little is known.
    #[default]
    Unknown,
    /// They agree.
    Agree,
    /// Engines find more cached than was predicted.
    TooLittle,
    /// More was predicted than engines find.
    TooMuch,
}

impl Verdict {
    /// Do predictions and hits disagree?
    #[must_use]
    pub fn is_mismatch(self) -> bool {
        matches!(self, Self::TooLittle | Self::TooMuch)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Agreed,
    Over,
    Under,
}

/// Counts of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Within a block of each other.
    pub agreed: usize,
    /// Too much predicted.
    pub over: usize,
    /// Too little predicted.
    pub under: usize,
}

impl Seen {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> usize {
        self.agreed + self.over + self.under
    }
}

/// The last telling responses of a pool.
#[derive(Debug, Default)]
pub struct Recent {
    signs: VecDeque<Sign>,
    verdict: Verdict,
}

impl Recent {
    /// Takes what gateways have seen since. Of more than [`WINDOW`] at once, their shares count.
    pub fn take(&mut self, change: &PoolFeedback) {
        let wrong = change.over.saturating_add(change.under);
        let known = wrong.saturating_add(change.early);
        let agreed = change.telling.saturating_sub(known);
        let all = agreed.saturating_add(wrong);
        for (sign, n) in [
            (Sign::Agreed, agreed),
            (Sign::Over, change.over),
            (Sign::Under, change.under),
        ] {
            for _ in 0..share(n, all) {
                if self.signs.len() == WINDOW {
                    self.signs.pop_front();
                }
                self.signs.push_back(sign);
            }
        }
        self.verdict = self.judge();
    }

    /// What the window holds.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let mut seen = Seen::default();
        for sign in &self.signs {
            match sign {
                Sign::Agreed => seen.agreed += 1,
                Sign::Over => seen.over += 1,
                Sign::Under => seen.under += 1,
            }
        }
        seen
    }

    /// Half of the window wrong raises the alarm; it stays until less than a quarter is.
    fn judge(&self) -> Verdict {
        let seen = self.seen();
        let wrong = seen.over + seen.under;
        if seen.all() < ENOUGH {
            Verdict::Unknown
        } else if wrong * 2 >= seen.all() || (self.verdict.is_mismatch() && wrong * 4 >= seen.all())
        {
            if seen.under >= seen.over {
                Verdict::TooLittle
            } else {
                Verdict::TooMuch
            }
        } else {
            Verdict::Agree
        }
    }

    /// The verdict as of the last [`Recent::take`].
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

/// `n` of `all`, scaled to a window where they are more than fit into one.
fn share(n: u64, all: u64) -> u64 {
    let window = WINDOW as u64;
    if all <= window {
        n
    } else {
        let scaled = u128::from(n) * u128::from(window) + u128::from(all) / 2;
        u64::try_from(scaled / u128::from(all)).unwrap_or(window)
    }
}

/// The engines' own counters against predictions, for pools whose responses carry no figure.
///
/// Slices of [`SLICE`] responses at least. A slice counts only if the engines looked up about as many
/// tokens as the gateways' requests had: otherwise others send requests, too, and their hits are none
/// of ours. Two slices in a row must say the same.
#[derive(Debug, Default)]
pub struct Witness {
    slice: Slice,
    before: Verdict,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    answered: u64,
    missing: u64,
    predicted: u64,
    prompt: u64,
    queries: u64,
    hits: u64,
}

impl Witness {
    /// Engines looked up and found so many more prompt tokens.
    pub fn counted(&mut self, queries: u64, hits: u64) {
        self.slice.queries = self.slice.queries.saturating_add(queries);
        self.slice.hits = self.slice.hits.saturating_add(hits);
    }

    /// Gateways saw so many more responses.
    pub fn answered(&mut self, change: &PoolFeedback) {
        let slice = &mut self.slice;
        slice.answered = slice.answered.saturating_add(change.answered());
        slice.missing = slice.missing.saturating_add(change.missing);
        slice.predicted = slice.predicted.saturating_add(change.predicted_tokens);
        slice.prompt = slice.prompt.saturating_add(change.prompt_tokens);
        if slice.answered < SLICE {
            return;
        }
        let now = std::mem::take(slice).judge();
        if now == self.before || !now.is_mismatch() {
            self.verdict = now;
        }
        self.before = now;
    }

    /// The verdict as of the last slice.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

impl Slice {
    fn judge(&self) -> Verdict {
        let responses_speak = self.missing.saturating_mul(2) < self.answered;
        let ours = self.prompt.saturating_mul(10);
        let (least, most) = (
            self.queries.saturating_mul(7),
            self.queries.saturating_mul(14),
        );
        if responses_speak || ours < least || ours > most {
            return Verdict::Unknown;
        }
        let telling = |tokens: u64| tokens.saturating_mul(5) >= self.queries.max(1);
        if telling(self.hits) && self.predicted < self.hits / 2 {
            Verdict::TooLittle
        } else if telling(self.predicted) && self.hits < self.predicted / 2 {
            Verdict::TooMuch
        } else if telling(self.hits) || telling(self.predicted) {
            Verdict::Agree
        } else {
            Verdict::Unknown
        }
    }
}

#[cfg(test)]
mod tests;
