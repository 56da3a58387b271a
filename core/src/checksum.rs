//! The checksum of everything that crosses a process boundary or rests in shared memory.
//!
//! Not cryptographic: it finds damage, not forgery (the exchange carries a bearer token for that).
//! Each step is a bijection of the accumulator for a given word and of the word for a given
//! accumulator, so a change confined to one 8-byte word, any flipped bit among them, always changes
//! the result.

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// 64-bit checksum of `bytes`, continued from `start` (0, or the checksum of what came before).
#[must_use]
pub fn checksum(start: u64, bytes: &[u8]) -> u64 {
    let mut acc = start ^ 0x5050_4353_554d_3031; // "PPCSUM01"
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut w = [0u8; 8];
        w.copy_from_slice(word);
        acc = step(acc, u64::from_le_bytes(w));
    }
    let tail = words.remainder();
    let mut w = [0u8; 8];
    for (to, from) in w.iter_mut().zip(tail) {
        *to = *from;
    }
    acc = step(acc, u64::from_le_bytes(w));
    step(acc, bytes.len() as u64)
}

fn step(acc: u64, word: u64) -> u64 {
    let x = (acc.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_changes_it() {
        let base: Vec<u8> = (0..133u8).collect();
        let sum = checksum(7, &base);
        for bit in 0..base.len() * 8 {
            let mut other = base.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(7, &other), sum, "bit {bit}");
        }
    }

    #[test]
    fn length_counts() {
        assert_ne!(checksum(0, &[0; 8]), checksum(0, &[0; 9]));
        assert_ne!(checksum(0, &[]), checksum(0, &[0]));
    }
}
