//! One poller per Envoy process: a lease in shared data.
//!
//! Root contexts tick in every worker's VM and in the main thread's, and a VM can trap at any time.
//! The holder keeps rewriting the lease; whoever sees it unchanged for long enough, by its own
//! monotonic clock, takes it over by compare-and-swap. No two clocks are ever compared.

use prefix_picker_core::sync::cursor::{Reader, Writer};

use crate::host::Host;

/// The lease's key.
pub const KEY: &str = "pp/lease";
/// The holder rewrites the lease this often, in milliseconds.
pub const RENEW_MS: u64 = 200;
/// A lease unchanged for this long is nobody's, in milliseconds.
pub const EXPIRE_MS: u64 = 1_000;

/// One VM's view of the lease.
#[derive(Debug, Default)]
pub struct Lease {
    id: u64,
    held: bool,
    renewed_ms: u64,
    seen: Vec<u8>,
    seen_since_ms: u64,
}

impl Lease {
    /// A contender; `id` must differ from every other VM's.
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// Is it ours, as of the last [`Lease::tick`]?
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Takes, renews or gives up on the lease; true while this VM holds it.
    pub fn tick(&mut self, host: &impl Host, now_ms: u64) -> bool {
        let mut lease = host.shared(KEY);
        if lease.cas == 0 {
            // CAS means nothing on a key that was never set: create it, then contend.
            let _ = host.set_shared(KEY, &[], 0);
            lease = host.shared(KEY);
        }
        let owner = owner_of(&lease.bytes);
        let write = match owner {
            Some(owner) if owner == self.id => {
                if self.held && now_ms.saturating_sub(self.renewed_ms) < RENEW_MS {
                    return true;
                }
                true
            }
            Some(_) => {
                self.held = false;
                if self.seen != lease.bytes {
                    self.seen.clone_from(&lease.bytes);
                    self.seen_since_ms = now_ms;
                }
                now_ms.saturating_sub(self.seen_since_ms) >= EXPIRE_MS
            }
            None => true,
        };
        if write {
            self.held = host.set_shared(KEY, &self.value(now_ms), lease.cas).is_ok();
            self.renewed_ms = now_ms;
        }
        self.held
    }

    /// The beat makes every rewrite differ; the clock's origin does not matter.
    fn value(&self, now_ms: u64) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.id);
        w.u64(now_ms);
        w.into_bytes()
    }
}

fn owner_of(bytes: &[u8]) -> Option<u64> {
    Reader::new(bytes).u64().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeHost;

    #[test]
    fn one_holder_at_a_time_and_a_silent_one_is_replaced() {
        let host = FakeHost::default();
        let (mut a, mut b) = (Lease::new(1), Lease::new(2));
        assert!(a.tick(&host, 0));
        for ms in (0..5_000).step_by(50) {
            assert!(a.tick(&host, ms));
            // The other VM's clock has another origin.
            assert!(!b.tick(&host, 1_000_000 + ms));
        }
        // a falls silent.
        let mut taken_at = None;
        for ms in (5_000..9_000).step_by(50) {
            if b.tick(&host, 1_000_000 + ms) {
                taken_at = Some(ms);
                break;
            }
        }
        let taken_at = taken_at.unwrap();
        assert!((5_700..=6_100).contains(&taken_at), "{taken_at}");
        assert!(
            !a.tick(&host, taken_at + 1),
            "the old holder sees that it lost"
        );
        assert!(b.tick(&host, 1_000_000 + taken_at + 50));
    }

    #[test]
    fn a_race_for_a_new_lease_has_one_winner() {
        let host = FakeHost::default();
        let (mut a, mut b) = (Lease::new(1), Lease::new(2));
        // b reads before a writes: CAS refuses b.
        host.set_shared(KEY, &[], 0).unwrap();
        let before = host.shared(KEY).cas;
        assert!(a.tick(&host, 0));
        assert!(host.set_shared(KEY, &b.value(0), before).is_err());
        assert!(!b.tick(&host, 0));
    }
}
