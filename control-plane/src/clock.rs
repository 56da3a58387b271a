//! Time as the parts count it: milliseconds since they began.

use tokio::time::Instant;

/// Milliseconds since then.
pub(crate) fn ms_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
