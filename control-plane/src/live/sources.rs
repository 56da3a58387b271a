//! What those say who list replicas: pools whose discovery fails, or says nothing. Pure.

use std::collections::BTreeMap;

/// A discovery that has said nothing for so long is silent, in milliseconds: it asks again within ten seconds,
/// if not less often on purpose.
const SILENT_MS: u64 = 60_000;
/// Characters of a failure that are kept.
const TEXT_CHARS_MAX: usize = 400;

/// A pool's discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// When it last told a list, in milliseconds since the start.
    pub listed_ms: Option<u64>,
    /// Why it does not, or not all of it.
    failing: Option<Failing>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failing {
    since_ms: u64,
    last_ms: u64,
    text: String,
}

impl Source {
    /// Why it fails, and for how many milliseconds already: until it says that it works, also where it tells a
    /// failure only once, as of a pool that was deleted.
    #[must_use]
    pub fn failing(&self, now_ms: u64) -> Option<(&str, u64)> {
        let failing = self.failing.as_ref()?;
        Some((&failing.text, now_ms.saturating_sub(failing.since_ms)))
    }

    /// For how many milliseconds it has said nothing, if that is too long for one that asks that often (`every_ms`).
    #[must_use]
    pub fn silent(&self, every_ms: u64, now_ms: u64) -> Option<u64> {
        let failed_ms = self.failing.as_ref().map(|failing| failing.last_ms);
        let last_ms = self.listed_ms.max(failed_ms).unwrap_or(0);
        let silent_ms = now_ms.saturating_sub(last_ms);
        (silent_ms >= limit_ms(every_ms)).then_some(silent_ms)
    }

    fn take(&mut self, is_list: bool, failure: Option<&str>, now_ms: u64) {
        if is_list {
            self.listed_ms = Some(now_ms);
        }
        let Some(text) = failure else {
            self.failing = None;
            return;
        };
        let before = self.failing.take();
        self.failing = Some(Failing {
            since_ms: before.map_or(now_ms, |failing| failing.since_ms),
            last_ms: now_ms,
            text: text.chars().take(TEXT_CHARS_MAX).collect(),
        });
    }
}

/// Three questions, and time to wait for answers.
fn limit_ms(every_ms: u64) -> u64 {
    SILENT_MS.max(every_ms.saturating_mul(3))
}

/// By the pool's position.
#[derive(Debug, Default)]
pub(super) struct Sources(pub(super) BTreeMap<usize, Source>);

impl Sources {
    /// A list has come, or a failure, or a list that lacks something.
    pub(super) fn take(&mut self, pool: usize, is_list: bool, failure: Option<&str>, now_ms: u64) {
        self.0
            .entry(pool)
            .or_default()
            .take(is_list, failure, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_lasts_until_it_works() {
        let mut source = Source::default();
        source.take(true, None, 1_000);
        source.take(false, Some("no such name"), 6_000);
        source.take(false, Some("no answer"), 11_000);
        assert_eq!(source.failing(12_000), Some(("no answer", 6_000)));
        assert_eq!(source.listed_ms, Some(1_000));
        // A list that lacks something.
        source.take(true, Some("one is unknown"), 16_000);
        assert_eq!(source.failing(16_000), Some(("one is unknown", 10_000)));
        source.take(true, None, 21_000);
        assert_eq!(source.failing(21_000), None);
        // One that is told once only, and another, long after.
        source.take(false, Some("x"), 30_000);
        assert_eq!(source.failing(90_000), Some(("x", 60_000)));
        source.take(false, Some("y"), 500_000);
        assert_eq!(source.failing(500_000), Some(("y", 470_000)));
    }

    #[test]
    fn silence_is_longer_than_it_pauses() {
        let mut source = Source::default();
        assert_eq!(source.silent(5_000, 59_999), None);
        assert_eq!(source.silent(5_000, 60_000), Some(60_000));
        source.take(false, Some("x"), 30_000);
        assert_eq!(source.silent(5_000, 89_999), None);
        assert_eq!(source.silent(5_000, 90_000), Some(60_000));
        assert_eq!(source.silent(60_000, 90_000), None);
    }
}
