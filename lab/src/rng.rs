//! Seeded chance: the same numbers on every machine.

/// SplitMix64.
#[derive(Clone, Copy, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator; different seeds give unrelated sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0xa076_1d64_78bd_642f) ^ 0xe703_7ed1_a0b4_28db);
        rng.next();
        rng
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)] // an iterator that never ends is no use here
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Uniform in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Exponential of that mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Lognormal of that mean (not median); `sigma` is that of the logarithm.
    pub fn lognormal(&mut self, mean: f64, sigma: f64) -> f64 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        mean * (sigma * normal - sigma * sigma / 2.0).exp()
    }
}

/// Draws 0..n with weights 1/(rank+1)^skew; skew 0 is uniform.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// Ready to draw from `n` values.
    #[must_use]
    pub fn new(n: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=n)
            .map(|rank| {
                sum += (rank as f64).powf(-skew);
                sum
            })
            .collect();
        Self { cumulative }
    }

    /// One value.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        let at = rng.unit() * total;
        let found = self.cumulative.partition_point(|&c| c <= at);
        found.min(self.cumulative.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_as_asked() {
        let mut rng = Rng::new(1);
        let n = 100_000;
        let mean = |f: &mut dyn FnMut() -> f64| (0..n).map(|_| f()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || rng.exponential(3.0)) - 3.0).abs() < 0.05);
        let mut rng = Rng::new(2);
        assert!((mean(&mut || rng.lognormal(100.0, 0.8)) - 100.0).abs() < 2.0);
        let mut rng = Rng::new(3);
        assert!((mean(&mut || rng.below(11) as f64) - 5.0).abs() < 0.05);
    }

    #[test]
    fn skew_favours_the_first() {
        let mut rng = Rng::new(4);
        let mut count = |skew| {
            let zipf = Zipf::new(10, skew);
            (0..10_000).filter(|_| zipf.draw(&mut rng) == 0).count()
        };
        assert!((900..1_100).contains(&count(0.0)));
        assert!(count(1.2) > 3_500);
    }
}
