//! What was said in the log, so that it is not said with every poll.

use crate::metrics::PollResult;

/// The same complaint is repeated after this long at the earliest, in microseconds.
const REPEAT_US: u64 = 60_000_000;

/// By control plane and what is the matter: the second one's token may be wrong while the first is away.
/// At most one for each pair, so bounded by the configuration.
#[derive(Debug, Default)]
pub(super) struct Complaints(Vec<(usize, PollResult, u64)>);

impl Complaints {
    /// Is it to be said now? Then it counts as said.
    pub(super) fn due(&mut self, control_plane: usize, result: PollResult, now_us: u64) -> bool {
        let same = |of: &&mut (usize, PollResult, u64)| (of.0, of.1) == (control_plane, result);
        match self.0.iter_mut().find(same) {
            Some((.., at)) if now_us.saturating_sub(*at) < REPEAT_US => false,
            Some((.., at)) => {
                *at = now_us;
                true
            }
            None => {
                self.0.push((control_plane, result, now_us));
                true
            }
        }
    }

    /// All is well. True: there was something.
    pub(super) fn over(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_matter_of_each_control_plane_is_said_once_a_minute() {
        let mut complaints = Complaints::default();
        assert!(!complaints.over());
        assert!(complaints.due(0, PollResult::Reset, 0));
        assert!(!complaints.due(0, PollResult::Reset, REPEAT_US - 1));
        assert!(complaints.due(1, PollResult::Unauthorized, 1));
        assert!(!complaints.due(1, PollResult::Unauthorized, 2));
        assert!(complaints.due(0, PollResult::Unauthorized, 3));
        assert!(complaints.due(0, PollResult::Reset, REPEAT_US));
        assert!(complaints.over());
        assert!(complaints.due(0, PollResult::Reset, REPEAT_US + 1));
    }
}
