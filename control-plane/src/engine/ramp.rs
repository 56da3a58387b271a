//! How new replicas are: those that were added or were away for a while get a ramped share.
//!
//! Pure; time comes in. A replica is new only beside others that are not: where all came at once,
//! or came back at once, there is nobody to favour.

use prefix_picker_core::pick::RAMPED;
use prefix_picker_core::pick::guard::{AWAY_MS, ramp_permille};

/// Steps of the ramp that gateways are told of, in thousandths: a head each second or two.
const STEP_PERMILLE: u16 = 50;

/// One replica's ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ramp {
    /// Not new.
    Done,
    /// Not to be picked since then, in milliseconds; `None`: it never was.
    Away(Option<u64>),
    /// To be picked again since then, in milliseconds.
    Since(u64),
}

impl Ramp {
    /// What gateways are told at `now_ms`, in [`STEP_PERMILLE`] steps.
    pub(super) fn permille(self, now_ms: u64) -> u16 {
        match self {
            Self::Done => RAMPED,
            Self::Away(_) => 0,
            Self::Since(since) => {
                let permille = ramp_permille(now_ms.saturating_sub(since));
                permille - permille % STEP_PERMILLE
            }
        }
    }

    fn step(self, pickable: bool, now_ms: u64) -> Self {
        match self {
            Self::Done if !pickable => Self::Away(Some(now_ms)),
            Self::Away(Some(since)) if pickable && now_ms.saturating_sub(since) < AWAY_MS => {
                Self::Done
            }
            Self::Away(_) if pickable => Self::Since(now_ms),
            // It did not get far.
            Self::Since(_) if !pickable => Self::Away(None),
            Self::Since(_) if self.permille(now_ms) >= RAMPED => Self::Done,
            same => same,
        }
    }
}

/// Moves the ramps of one pool on; each with whether its replica may be picked.
pub(super) fn step<'a>(pool: impl Iterator<Item = (&'a mut Ramp, bool)>, now_ms: u64) {
    let mut pool: Vec<_> = pool.collect();
    for (ramp, pickable) in &mut pool {
        **ramp = ramp.step(*pickable, now_ms);
    }
    let settled = |(ramp, pickable): &(&mut Ramp, bool)| *pickable && **ramp == Ramp::Done;
    if !pool.iter().any(settled) {
        for (ramp, _) in pool.iter_mut().filter(|(_, pickable)| *pickable) {
            **ramp = Ramp::Done;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ramps: &mut [Ramp], pickable: &[bool], now_ms: u64) -> Vec<u16> {
        step(ramps.iter_mut().zip(pickable.iter().copied()), now_ms);
        ramps.iter().map(|ramp| ramp.permille(now_ms)).collect()
    }

    #[test]
    fn one_that_comes_beside_others_is_new_for_half_a_minute() {
        let mut ramps = [Ramp::Done, Ramp::Done, Ramp::Away(None)];
        assert_eq!(run(&mut ramps, &[true, true, false], 0)[2], 0);
        assert_eq!(run(&mut ramps, &[true; 3], 1_000), [1_000, 1_000, 0]);
        assert_eq!(run(&mut ramps, &[true; 3], 16_000), [1_000, 1_000, 500]);
        assert_eq!(run(&mut ramps, &[true; 3], 17_000)[2], 500);
        assert_eq!(run(&mut ramps, &[true; 3], 31_000), [1_000; 3]);
        assert_eq!(ramps, [Ramp::Done; 3]);
    }

    #[test]
    fn one_that_was_away_for_a_moment_is_as_before() {
        let mut ramps = [Ramp::Done; 2];
        run(&mut ramps, &[true, false], 10_000);
        assert_eq!(run(&mut ramps, &[true, true], 12_000), [1_000; 2]);
        run(&mut ramps, &[true, false], 20_000);
        assert_eq!(run(&mut ramps, &[true, true], 23_000), [1_000, 0]);
        // Away again while it is new.
        run(&mut ramps, &[true, false], 24_000);
        assert_eq!(run(&mut ramps, &[true, true], 25_000), [1_000, 0]);
    }

    #[test]
    fn where_all_are_new_none_is() {
        let mut ramps = [Ramp::Away(None); 3];
        assert_eq!(run(&mut ramps, &[true; 3], 5_000), [1_000; 3]);
        run(&mut ramps, &[false; 3], 6_000);
        assert_eq!(run(&mut ramps, &[false, true, false], 60_000)[1], 1_000);
        assert_eq!(run(&mut ramps, &[false, true, true], 61_000)[2], 0);
        // The only other one goes away.
        assert_eq!(run(&mut ramps, &[false, false, true], 62_000)[2], 1_000);
    }
}
