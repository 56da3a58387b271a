//! An alarm for where Envoy does not go where it was told to.
//!
//! Then all that is known of replicas is for nothing: the Envoy cluster lacks the endpoint, or its
//! load-balancing policy is not `override_host`.

use crate::host::Host;
use crate::quiet::Quiet;

/// Overrides that were missed, in this VM.
#[derive(Debug, Default)]
pub struct Missed {
    count: u64,
    quiet: Quiet,
}

impl Missed {
    /// `served` answered a request for which `named` was named. The line for Envoy's log, where one is
    /// due.
    #[must_use]
    pub fn note(&mut self, host: &impl Host, named: &str, served: &str) -> Option<String> {
        self.count += 1;
        self.quiet.is_over(host).then(|| format!(
            "{named} was named, but {served} served: does the Envoy cluster have that endpoint, and \
             override_host as its policy? ({} such requests in this worker so far)",
            self.count
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeHost;

    #[test]
    fn one_line_a_minute() {
        let host = FakeHost::default();
        let mut missed = Missed::default();
        let line = missed.note(&host, "10.0.0.1:8000", "10.0.0.2:8000");
        let line = line.unwrap();
        assert!(
            line.contains("10.0.0.1:8000 was named, but 10.0.0.2:8000 served"),
            "{line}"
        );
        for _ in 0..5 {
            assert_eq!(missed.note(&host, "a", "b"), None);
        }
        host.advance_ms(60_000);
        let line = missed.note(&host, "a", "b").unwrap();
        assert!(line.contains("(7 such"), "{line}");
    }
}
