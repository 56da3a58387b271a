//! Which gateways there are: those that poll, or did a moment ago. Pure.
//!
//! A gateway's name is its process's, so that one that starts anew has another name. What gives the old one
//! away is its last poll, which it did not wait for. One that goes without a word is forgotten later.

use std::collections::HashMap;

/// Gateways that are kept.
pub(super) const GATEWAYS_MAX: usize = 256;
/// Bytes of a gateway's name and version that are kept.
pub(super) const NAME_BYTES_MAX: usize = 64;
/// A gateway that has not polled for so long is gone, in milliseconds: a poll waits for ten seconds.
pub const GATEWAY_GONE_MS: u64 = 60_000;
/// One that did not wait for its answer and has not come again for so long is gone, in milliseconds.
pub const GATEWAY_LEFT_MS: u64 = 3_000;

/// A gateway that polls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// Its filter's version; empty: of a version that does not tell.
    pub version: String,
    /// When it was last heard of, in milliseconds since the start.
    pub polled_ms: u64,
    /// Polls that wait for an answer.
    waiting: u32,
    /// When it went away from its last poll.
    left_ms: Option<u64>,
}

impl Gateway {
    fn is_gone(&self, now_ms: u64) -> bool {
        let is_over = |since: u64, ms: u64| now_ms.saturating_sub(since) >= ms;
        self.waiting == 0
            && (is_over(self.polled_ms, GATEWAY_GONE_MS)
                || self.left_ms.is_some_and(|at| is_over(at, GATEWAY_LEFT_MS)))
    }

    /// How long nothing has been heard of it, in milliseconds; 0 while it waits for an answer.
    #[must_use]
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        match self.waiting {
            0 => now_ms.saturating_sub(self.polled_ms),
            _ => 0,
        }
    }
}

/// By name.
#[derive(Debug, Default)]
pub(super) struct Gateways(pub(super) HashMap<String, Gateway>);

impl Gateways {
    /// A poll has come.
    pub(super) fn polled(
        &mut self,
        name: &str,
        version: &str,
        now_ms: u64,
    ) -> Option<&mut Gateway> {
        let name = kept(name);
        if self.0.len() >= GATEWAYS_MAX && !self.0.contains_key(&name) {
            self.forget(now_ms);
            if self.0.len() >= GATEWAYS_MAX {
                return None;
            }
        }
        let known = self.0.entry(name).or_default();
        (known.polled_ms, known.left_ms) = (now_ms, None);
        if known.version != version {
            known.version = kept(version);
        }
        Some(known)
    }

    /// A poll has come, and waits until [`Self::ended`].
    pub(super) fn waits(&mut self, name: &str, version: &str, now_ms: u64) {
        if let Some(known) = self.polled(name, version, now_ms) {
            known.waiting = known.waiting.saturating_add(1);
        }
    }

    /// A poll has got its answer, or its gateway did not wait for it.
    pub(super) fn ended(&mut self, name: &str, answered: bool, now_ms: u64) {
        if let Some(known) = self.0.get_mut(&kept(name)) {
            known.waiting = known.waiting.saturating_sub(1);
            if answered {
                known.polled_ms = now_ms;
            } else if known.waiting == 0 {
                known.left_ms = Some(now_ms);
            }
        }
    }

    /// Those that are gone.
    pub(super) fn forget(&mut self, now_ms: u64) {
        self.0.retain(|_, gateway| !gateway.is_gone(now_ms));
    }
}

fn kept(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(gateways: &mut Gateways, now_ms: u64) -> Vec<String> {
        gateways.forget(now_ms);
        let mut names: Vec<String> = gateways.0.keys().cloned().collect();
        names.sort();
        names
    }

    #[test]
    fn one_that_starts_anew_is_counted_once() {
        let mut gateways = Gateways::default();
        gateways.waits("old", "1", 0);
        gateways.waits("other", "1", 0);
        // It is stopped; its successor has another name.
        gateways.ended("old", false, 4_000);
        gateways.waits("new", "1", 5_000);
        assert_eq!(names(&mut gateways, 6_999), ["new", "old", "other"]);
        assert_eq!(names(&mut gateways, 7_000), ["new", "other"]);
        // However long a poll waits, it is there.
        assert_eq!(names(&mut gateways, 900_000), ["new", "other"]);
    }

    #[test]
    fn one_that_comes_again_is_there() {
        let mut gateways = Gateways::default();
        gateways.waits("a", "1", 0);
        gateways.ended("a", false, 1_000);
        gateways.waits("a", "2", 2_000);
        gateways.ended("a", true, 12_000);
        assert_eq!(names(&mut gateways, 12_000 + GATEWAY_GONE_MS - 1), ["a"]);
        assert_eq!(gateways.0["a"].silent_ms(15_000), 3_000);
        assert_eq!(gateways.0["a"].version, "2");
        // An old poll that ends late says nothing about the one that waits.
        gateways.waits("a", "2", 20_000);
        gateways.waits("a", "2", 21_000);
        gateways.ended("a", false, 22_000);
        assert_eq!(names(&mut gateways, 80_000), ["a"]);
        assert_eq!(gateways.0["a"].silent_ms(80_000), 0);
        gateways.ended("a", true, 81_000);
        assert!(names(&mut gateways, 81_000 + GATEWAY_GONE_MS).is_empty());
    }
}
