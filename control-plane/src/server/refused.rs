//! Says that gateways come with wrong tokens: one line a minute, however many come.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(60);

/// Polls refused since the last line.
#[derive(Debug, Default)]
pub struct Refused(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    said: Option<Instant>,
    since: u64,
    /// The last one.
    last: Option<Instant>,
    ever: u64,
}

impl Refused {
    /// Notes one, at `now`. Returns how many a line would be about, if one is due.
    fn note(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.since += 1;
        state.ever += 1;
        state.last = Some(now);
        let is_due = state
            .said
            .is_none_or(|said| now.saturating_duration_since(said) >= EVERY);
        is_due.then(|| {
            state.said = Some(now);
            std::mem::take(&mut state.since)
        })
    }

    /// Polls refused since the start, and seconds since the last one; `None`: none was.
    pub(super) fn last(&self, now: Instant) -> Option<(u64, u64)> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = state.last?;
        Some((state.ever, now.saturating_duration_since(last).as_secs()))
    }

    /// Notes one from `peer`, and says so if a line is due. Tokens are secrets and not shown.
    pub(super) fn say(&self, peer: SocketAddr, has_token: bool) {
        if let Some(polls) = self.note(Instant::now()) {
            let what = if has_token {
                "a token that is not valid here"
            } else {
                "no bearer token"
            };
            tracing::warn!(
                %peer, polls,
                "a gateway came with {what} and gets nothing: the filter's `control_plane.token` must be one of `tokens` or `token_files`"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_tells_of_all() {
        let refused = Refused::default();
        let begin = Instant::now();
        let at = |seconds| refused.note(begin + Duration::from_secs(seconds));
        let lines = [0, 1, 59, 60, 61, 500].map(at);
        assert_eq!(refused.last(begin + Duration::from_secs(507)), Some((6, 7)));
        assert_eq!(lines, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
