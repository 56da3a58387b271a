//! How fast replicas are, as far as estimates are to be believed.
//!
//! An idle replica that is thought a tenth faster than its peers would get every cold prompt, and one
//! that nothing is known of would get none and so never become known. So a replica counts as typical of
//! its pool unless it is known to be much faster or slower.

use super::Candidate;
use crate::sync::Pace;

/// A rate that differs from the typical one by less than this factor, in thousandths, is the same.
const SAME_PERMILLE: u64 = 1_500;

/// Sets the candidates' rates, given what is known of each.
pub fn set_rates(candidates: &mut [Candidate], paces: &[Pace]) {
    let prefill = typical(paces.iter().map(|pace| pace.prefill_tokens_per_s));
    let step = typical(paces.iter().map(|pace| pace.step_us));
    for (candidate, pace) in candidates.iter_mut().zip(paces) {
        let pace = Pace {
            prefill_tokens_per_s: believed(pace.prefill_tokens_per_s, prefill),
            step_us: believed(pace.step_us, step),
            ..*pace
        };
        candidate.rates = pace.rates();
    }
}

/// The median of what is known; 0 if nothing is.
fn typical(rates: impl Iterator<Item = u32>) -> u32 {
    let mut known: Vec<u32> = rates.filter(|&rate| rate != 0).collect();
    let middle = known.len().saturating_sub(1) / 2;
    if middle >= known.len() {
        return 0;
    }
    *known.select_nth_unstable(middle).1
}

fn believed(rate: u32, typical: u32) -> u32 {
    let (low, high) = (rate.min(typical), rate.max(typical));
    let apart = u64::from(high) * 1_000 >= u64::from(low) * SAME_PERMILLE;
    if rate != 0 && apart { rate } else { typical }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ReplicaIndex;
    use crate::pick::Rates;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn prefill(rates: &[u32]) -> Vec<u32> {
        let paces = rates.iter().map(|&prefill_tokens_per_s| Pace {
            prefill_tokens_per_s,
            ..Pace::default()
        });
        let paces: Vec<Pace> = paces.collect();
        let mut candidates = vec![Candidate::new(ReplicaIndex(0)); paces.len()];
        set_rates(&mut candidates, &paces);
        let rates = candidates.iter().map(|c| c.rates.prefill_tokens_per_s);
        rates.collect()
    }

    #[test]
    fn small_differences_and_gaps_are_evened_out_and_large_ones_are_not() {
        let start = Rates::START.prefill_tokens_per_s;
        assert!(prefill(&[]).is_empty());
        assert_eq!(prefill(&[0, 0]), [start, start]);
        assert_eq!(prefill(&[0, 80_000, 0]), [80_000; 3]);
        assert_eq!(prefill(&[9_000, 10_000, 11_000]), [10_000; 3]);
        assert_eq!(prefill(&[10_000, 30_000, 10_500]), [10_500, 30_000, 10_500]);
        assert_eq!(
            prefill(&[10_000, 3_000, 0, 11_000]),
            [10_000, 3_000, 10_000, 10_000]
        );
    }
}
