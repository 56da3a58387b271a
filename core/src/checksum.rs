//! The checksum of everything that crosses a process boundary or rests in shared memory.

const CHECK_START: u64 = 0x7070_7067_0000_0001;
const CHECK_MULTIPLIER: u64 = 0x324c_ad49_c629_665b;

/// A 64-bit checksum over the concatenation of `parts`, each padded to whole words.
///
/// Every step is a bijection of the sum and of the word, so damage within one aligned word is
/// always found, and other damage but for one case in 2^64. It guards against accidents, not
/// against forgery: who can write pages holds a token.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u64 {
    let mut sum = CHECK_START;
    let mut step = |word: u64| sum = (sum ^ word).rotate_left(29).wrapping_mul(CHECK_MULTIPLIER);
    for part in parts {
        let (words, tail) = part.as_chunks::<8>();
        for word in words {
            step(u64::from_le_bytes(*word));
        }
        step(
            tail.iter()
                .rev()
                .fold(0, |n, byte| (n << 8) | u64::from(*byte)),
        );
        step(part.len() as u64);
    }
    sum ^ (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn every_flipped_bit_changes_it() {
        let base: Vec<u8> = (0..133u8).collect();
        let sum = checksum(&[&base]);
        for bit in 0..base.len() * 8 {
            let mut other = base.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&[&other]), sum, "bit {bit}");
        }
    }

    #[test]
    fn length_and_division_count() {
        assert_ne!(checksum(&[&[0; 8]]), checksum(&[&[0; 9]]));
        assert_ne!(checksum(&[&[0; 8], &[0; 8]]), checksum(&[&[0; 16]]));
        assert_ne!(checksum(&[]), checksum(&[&[0]]));
    }
}
