//! What a response tells of the endpoints that were tried.
//!
//! Of the attempts of a request Envoy shows the number and the last one. With `n` attempts the first
//! `n - 1` of the endpoints named came to nothing: no connection, reset before an answer began, or a
//! status that the route retries, which of them is not told. An answer that Envoy gives itself says by
//! its response flags whether the last one did so too.
//!
//! A reset counts only where the endpoint had all of the request to answer. One that has refused a body,
//! or waited too long for it, need not read the rest before it closes: clients could have any endpoint
//! ejected by sending such bodies. So of a request that may have been refused while it was still sent
//! ([`Had`]) attempts count if another endpoint served it, or there was no connection at all.

use super::record::Signal;
use crate::host::Host;

/// The flag of Envoy's own answers (`response.flags`) that says that there was no connection.
pub const NO_CONNECTION_FLAG: u64 = 0x20;
/// Those that say that the endpoint failed after that: reset by it, connection ended, protocol error.
/// Not: overflow, timeouts, no healthy host, nor the client having gone.
pub const RESET_FLAGS: u64 = 0x10 | 0x40 | 0x80_0000;
/// The flag that says that the client has gone.
pub const CLIENT_GONE_FLAG: u64 = 0x4000;
/// What `response.code_details` says where an endpoint answered.
const ANSWERED: &str = "via_upstream";
/// How it begins where an answer had begun, and was cut off before anybody saw it.
const CUT_OFF: &str = "upstream_reset_after_response_started";

/// Bytes of a body that reach an endpoint at once: they fit into the buffers of its connection.
const AT_ONCE_BYTES: usize = 64 << 10;

/// How much of a request its endpoint surely had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Had {
    /// Not even Envoy had all of it when it was passed on.
    #[default]
    Part,
    /// Envoy had all of it; the endpoint need not have read it to its end.
    Sent,
    /// All of it.
    Whole,
}

impl Had {
    /// Of a request that was passed on without a look at its body. `ended`: Envoy had all of it.
    #[must_use]
    pub fn of_unread(ended: bool) -> Self {
        if ended { Self::Sent } else { Self::Part }
    }

    /// Of a request that was complete when it was passed on.
    #[must_use]
    pub fn of_body(bytes: usize) -> Self {
        if bytes <= AT_ONCE_BYTES {
            Self::Whole
        } else {
            Self::Sent
        }
    }
}

/// What was seen of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is known what became of it.
    Signal(Signal),
    /// Another attempt took its place.
    Replaced,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where it went.
    pub endpoint: String,
    /// What was seen.
    pub seen: Seen,
}

/// What Envoy says of a request's attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// How many there were; 0 or 1: one, or not told.
    pub count: u64,
    /// The answer's status; `None`: there is none.
    pub status: Option<u16>,
    /// Who gave it, by address.
    pub served: Option<String>,
    /// It is an endpoint's and not Envoy's own.
    pub answered: bool,
    /// An endpoint's answer had begun, and Envoy gave its own instead.
    pub cut_off: bool,
    /// `response.flags`.
    pub flags: u64,
}

impl Attempts {
    /// As Envoy tells. `status`: of the answer, if there is one.
    #[must_use]
    pub fn read(host: &impl Host, status: Option<u16>) -> Self {
        let number = |path: &[&str]| {
            let bytes = host.property(path)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let text = |path: &[&str]| String::from_utf8(host.property(path)?).ok();
        let served = text(&["upstream", "address"]).filter(|served| !served.is_empty());
        let details = text(&["response", "code_details"]).filter(|details| !details.is_empty());
        let cut_off = details.as_ref().is_some_and(|d| d.starts_with(CUT_OFF));
        let answered = details.map_or(served.is_some(), |details| details == ANSWERED);
        Self {
            count: number(&["upstream", "request_attempt_count"]).unwrap_or(1),
            status,
            served,
            answered: answered && status.is_some(),
            cut_off,
            flags: number(&["response", "flags"]).unwrap_or(0),
        }
    }

    /// The last attempt's place among all, from 0.
    #[must_use]
    pub fn last(&self) -> usize {
        usize::try_from(self.count.max(1) - 1).unwrap_or(usize::MAX)
    }

    /// The request was no endpoint's to refuse: one served it.
    fn served_well(&self) -> bool {
        self.answered && self.status.is_some_and(|status| status < 400)
    }

    /// The endpoint of the last attempt failed.
    fn failed(&self, had: Had) -> bool {
        let reset = had == Had::Whole && !self.cut_off && self.flags & RESET_FLAGS != 0;
        let failed = reset || self.flags & NO_CONNECTION_FLAG != 0;
        failed && self.flags & CLIENT_GONE_FLAG == 0
    }

    /// What this tells of the endpoints named, in the order of the attempts.
    #[must_use]
    pub fn outcomes(&self, named: &[String], had: Had) -> Vec<Outcome> {
        let last = self.last();
        let replaced = match had {
            Had::Whole => last,
            Had::Sent if self.served_well() => last,
            Had::Sent | Had::Part => 0,
        };
        let replaced = named.iter().take(replaced).map(|endpoint| Outcome {
            endpoint: endpoint.clone(),
            seen: Seen::Replaced,
        });
        let mut outcomes: Vec<Outcome> = replaced.collect();
        let (endpoint, signal) = if self.answered {
            let signal = match self.status.unwrap_or(0) {
                503 => Signal::Busy,
                // Not implemented: the request's fault.
                501 | 505 => Signal::Refused,
                500..=599 => Signal::Error,
                400..=499 => Signal::Refused,
                _ => Signal::Served,
            };
            (self.served.as_ref().or_else(|| named.get(last)), signal)
        } else if self.failed(had) {
            (named.get(last), Signal::Unreached)
        } else {
            return outcomes;
        };
        outcomes.extend(endpoint.map(|endpoint| Outcome {
            endpoint: endpoint.clone(),
            seen: Seen::Signal(signal),
        }));
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(n: usize) -> Vec<String> {
        (1..=n).map(|n| format!("10.0.0.{n}:8000")).collect()
    }

    fn seen(attempts: &Attempts, names: usize) -> Vec<(String, Seen)> {
        seen_of(attempts, names, Had::Whole)
    }

    fn seen_of(attempts: &Attempts, names: usize, had: Had) -> Vec<(String, Seen)> {
        let outcomes = attempts.outcomes(&named(names), had).into_iter();
        outcomes.map(|o| (o.endpoint, o.seen)).collect()
    }

    fn answer(count: u64, status: u16, served: &str) -> Attempts {
        Attempts {
            count,
            status: Some(status),
            served: Some(served.to_owned()),
            answered: true,
            ..Attempts::default()
        }
    }

    fn first(n: usize) -> String {
        format!("10.0.0.{n}:8000")
    }

    #[test]
    fn an_answer_speaks_of_whoever_gave_it() {
        let of = |status| seen(&answer(1, status, "10.0.0.1:8000"), 3);
        for (status, signal) in [
            (200, Signal::Served),
            (302, Signal::Served),
            (400, Signal::Refused),
            (429, Signal::Refused),
            (499, Signal::Refused),
            (500, Signal::Error),
            (501, Signal::Refused),
            (502, Signal::Error),
            (503, Signal::Busy),
            (504, Signal::Error),
        ] {
            assert_eq!(of(status), [(first(1), Seen::Signal(signal))], "{status}");
        }
        // Not one of those named.
        let other = seen(&answer(1, 200, "10.0.0.9:8000"), 2);
        assert_eq!(other, [(first(9), Seen::Signal(Signal::Served))]);
    }

    #[test]
    fn attempts_before_the_last_came_to_nothing() {
        let served = seen(&answer(3, 200, "10.0.0.3:8000"), 3);
        assert_eq!(
            served,
            [
                (first(1), Seen::Replaced),
                (first(2), Seen::Replaced),
                (first(3), Seen::Signal(Signal::Served))
            ]
        );
        // More attempts than names: the others went who knows where.
        let beyond = seen(&answer(9, 200, "10.0.0.7:8000"), 2);
        assert_eq!(
            beyond,
            [
                (first(1), Seen::Replaced),
                (first(2), Seen::Replaced),
                (first(7), Seen::Signal(Signal::Served))
            ]
        );
        assert_eq!(seen(&answer(u64::MAX, 200, "x"), 0).len(), 1);
    }

    #[test]
    fn envoys_own_answers_say_it_by_their_flags() {
        let own = |flags, status| Attempts {
            count: 2,
            status,
            flags,
            ..Attempts::default()
        };
        let failed = [
            (first(1), Seen::Replaced),
            (first(2), Seen::Signal(Signal::Unreached)),
        ];
        for flags in [0x10, 0x20, 0x40, 0x80_0000, 0x20 | 0x8000] {
            assert_eq!(seen(&own(flags, Some(503)), 3), failed, "{flags:x}");
            assert_eq!(seen(&own(flags, None), 3), failed, "{flags:x}");
        }
        // Overflow, timeout, no healthy host, nothing at all: nobody's fault.
        for flags in [0x80, 0x4, 0x2, 0] {
            assert_eq!(seen(&own(flags, Some(503)), 3), failed[..1], "{flags:x}");
        }
        // The client left.
        assert_eq!(seen(&own(0x4000 | 0x40, None), 3), failed[..1]);
        // An answer had begun.
        let cut_off = Attempts {
            cut_off: true,
            ..own(0x40, Some(503))
        };
        assert_eq!(seen(&cut_off, 3), failed[..1]);
    }

    #[test]
    fn of_a_request_passed_on_before_its_end_only_answers_and_connections_tell() {
        let own = |flags| Attempts {
            count: 2,
            status: Some(503),
            flags,
            ..Attempts::default()
        };
        for flags in [0x10, 0x40, 0x80_0000, 0] {
            assert_eq!(seen_of(&own(flags), 3, Had::Part), [], "{flags:x}");
        }
        let last = (first(2), Seen::Signal(Signal::Unreached));
        assert_eq!(seen_of(&own(0x20), 3, Had::Part), [last]);
        let served = (first(3), Seen::Signal(Signal::Served));
        let answer = answer(3, 200, "10.0.0.3:8000");
        assert_eq!(seen_of(&answer, 3, Had::Part), [served]);
    }

    #[test]
    fn a_large_body_that_all_endpoints_refuse_is_no_fault_of_theirs() {
        let own = |flags| Attempts {
            count: 3,
            status: Some(503),
            flags,
            ..Attempts::default()
        };
        for flags in [0x10, 0x40, 0x80_0000, 0] {
            assert_eq!(seen_of(&own(flags), 3, Had::Sent), [], "{flags:x}");
        }
        // One closed before its answer was seen, the next answered.
        let refused = (first(2), Seen::Signal(Signal::Refused));
        let refusal = answer(2, 404, "10.0.0.2:8000");
        assert_eq!(seen_of(&refusal, 3, Had::Sent), [refused]);
        // Served by another, or no connection: the endpoint's fault.
        let served = (first(2), Seen::Signal(Signal::Served));
        let answer = answer(2, 200, "10.0.0.2:8000");
        let replaced = (first(1), Seen::Replaced);
        assert_eq!(seen_of(&answer, 3, Had::Sent), [replaced, served]);
        let unreached = (first(3), Seen::Signal(Signal::Unreached));
        assert_eq!(seen_of(&own(0x20), 3, Had::Sent), [unreached]);
    }

    #[test]
    fn small_bodies_are_there_at_once() {
        assert_eq!(Had::of_body(0), Had::Whole);
        assert_eq!(Had::of_body(64 << 10), Had::Whole);
        assert_eq!(Had::of_body((64 << 10) + 1), Had::Sent);
    }
}
