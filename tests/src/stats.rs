//! Percentiles and histograms for the printed figures.

use std::collections::BTreeMap;
use std::fmt;

/// The nearest-rank percentile of `values` (0 for none); `p` in 0..=100.
#[must_use]
pub fn percentile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (p / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Counts by value.
#[derive(Debug, Default, Clone)]
pub struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// One more of `value`.
    pub fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        // Powers of two keep a long tail readable.
        let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
        for (value, count) in &self.0 {
            *buckets
                .entry(if *value <= 4 {
                    *value
                } else {
                    value.next_power_of_two()
                })
                .or_default() += count;
        }
        for (i, (upto, count)) in buckets.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let sign = if *upto <= 4 { "" } else { "<=" };
            write!(f, "{comma}{sign}{upto}: {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 50.0), 50.0);
        assert_eq!(percentile(&values, 99.0), 99.0);
        assert_eq!(percentile(&[], 50.0), 0.0);
    }

    #[test]
    fn histogram_reads_as_text() {
        let mut h = Histogram::default();
        assert_eq!(h.to_string(), "none");
        for v in [0, 0, 3, 17, 30, 100] {
            h.add(v);
        }
        assert_eq!(h.to_string(), "0: 2, 3: 1, <=32: 2, <=128: 1");
        assert_eq!(h.count(), 6);
    }
}
