//! Sums over the last minutes.

use std::collections::VecDeque;

/// Seconds that are summed at once.
pub const STEP_S: u64 = 20;
/// How many such sums are kept: ten minutes.
pub const STEPS: u64 = 30;
/// What is looked at, in seconds.
pub const WINDOW_S: u64 = STEP_S * STEPS;

/// What can be summed.
pub trait Sum: Clone + Default {
    /// Adds another sum.
    fn add(&mut self, other: &Self);
}

/// The last [`WINDOW_S`] seconds, by steps that have something, in order.
#[derive(Clone, Debug, Default)]
pub struct Window<T> {
    steps: VecDeque<(u64, T)>,
}

impl<T: Sum> Window<T> {
    /// Adds to the step that `now_ms` is in. Time goes forward only.
    pub fn add(&mut self, now_ms: u64, part: &T) {
        let step = step_of(now_ms);
        while let Some(&(first, _)) = self.steps.front()
            && first.saturating_add(STEPS) <= step
        {
            self.steps.pop_front();
        }
        match self.steps.back_mut() {
            Some((newest, sum)) if *newest >= step => sum.add(part),
            _ => self.steps.push_back((step, part.clone())),
        }
    }

    /// The sum over all of it.
    #[must_use]
    pub fn sum(&self, now_ms: u64) -> T {
        let mut sum = T::default();
        for (_, part) in self.live(now_ms) {
            sum.add(part);
        }
        sum
    }

    /// Each step's sum, the oldest first; steps without anything are there, too.
    #[must_use]
    pub fn steps(&self, now_ms: u64) -> Vec<T> {
        let newest = step_of(now_ms);
        let mut all = vec![T::default(); usize::try_from(STEPS).unwrap_or(0)];
        for (step, part) in self.live(now_ms) {
            let at = (STEPS - 1).saturating_sub(newest.saturating_sub(step));
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            if let Some(sum) = all.get_mut(at) {
                sum.add(part);
            }
        }
        all
    }

    /// Is there nothing in it?
    #[must_use]
    pub fn is_idle(&self, now_ms: u64) -> bool {
        self.live(now_ms).next().is_none()
    }

    fn live(&self, now_ms: u64) -> impl Iterator<Item = (u64, &T)> {
        let step = step_of(now_ms);
        let all = self.steps.iter().map(|(at, part)| (*at, part));
        all.filter(move |(at, _)| at.saturating_add(STEPS) > step)
    }
}

fn step_of(now_ms: u64) -> u64 {
    now_ms / 1_000 / STEP_S
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sum for u64 {
        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    #[test]
    fn what_is_older_goes() {
        let mut window = Window::<u64>::default();
        assert!(window.is_idle(0));
        for (now_s, expected) in [
            (0, 1),
            (19, 2),
            (20, 3),
            (599, 4),
            (600, 3),
            (639, 3),
            (1_239, 1),
        ] {
            window.add(now_s * 1_000, &1);
            assert_eq!(window.sum(now_s * 1_000), expected, "at {now_s} s");
        }
        assert!(window.steps.len() <= usize::try_from(STEPS).unwrap());
        assert_eq!(window.steps(1_239_000).last(), Some(&1));
        let steps = window.steps(1_259_000);
        assert_eq!((steps.len(), steps.iter().sum::<u64>()), (30, 1));
        assert_eq!(steps[28..], [1, 0]);
        assert_eq!(window.sum(2_000_000), 0);
        assert!(window.is_idle(2_000_000));
    }
}
