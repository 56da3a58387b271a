//! Where in a JSON string something other than plain text stands: a quote, a backslash or a control
//! character. As a bit for each of 64 bytes.

/// Bytes looked at together.
pub(super) const BLOCK: usize = 64;

/// How many bytes come before the first that is special.
#[inline(never)]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let mut base = 0;
    while base < bytes.len() {
        let found = block(bytes, base);
        if found != 0 {
            return base + found.trailing_zeros() as usize;
        }
        base += BLOCK;
    }
    bytes.len()
}

/// The special bytes among the [`BLOCK`] from `base` on, the lowest bit for the first. None is past
/// the end.
#[inline]
pub(super) fn block(bytes: &[u8], base: usize) -> u64 {
    let rest = bytes.get(base..).unwrap_or_default();
    match rest.first_chunk::<BLOCK>() {
        Some(block) => special(block),
        None => special_at_end(rest),
    }
}

#[inline(never)]
fn special_at_end(rest: &[u8]) -> u64 {
    let mut block = [b' '; BLOCK];
    for (to, from) in block.iter_mut().zip(rest) {
        *to = *from;
    }
    special(&block)
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[inline]
fn special(block: &[u8; BLOCK]) -> u64 {
    use core::arch::wasm32::{i8x16_bitmask, u8x16_eq, u8x16_lt, u8x16_splat, u64x2, v128_or};
    let (words, _) = block.as_chunks::<16>();
    let mut all = 0;
    for (n, word) in words.iter().enumerate() {
        let [low, high] = halves(word);
        let word = u64x2(low, high);
        let quotes = u8x16_eq(word, u8x16_splat(b'"'));
        let backslashes = u8x16_eq(word, u8x16_splat(b'\\'));
        let control = u8x16_lt(word, u8x16_splat(b' '));
        let special = i8x16_bitmask(v128_or(v128_or(quotes, backslashes), control));
        all |= u64::from(special) << (16 * n);
    }
    all
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[inline]
fn halves(word: &[u8; 16]) -> [u64; 2] {
    let (halves, _) = word.as_chunks::<8>();
    core::array::from_fn(|n| halves.get(n).map_or(0, |half| u64::from_le_bytes(*half)))
}

/// Without vector instructions: eight bytes at a time.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
#[inline]
fn special(block: &[u8; BLOCK]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW_SEVEN: u64 = ONES * 0x7f;
    // The high bit of every byte that is zero.
    let zero = |word: u64| !(((word & LOW_SEVEN) + LOW_SEVEN) | word | LOW_SEVEN);
    let is = |word: u64, byte: u8| zero(word ^ (ONES * u64::from(byte)));
    let (words, _) = block.as_chunks::<8>();
    let mut all = 0;
    for (n, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let control = zero(word & (ONES * 0xe0));
        let found = is(word, b'"') | is(word, b'\\') | control;
        // The high bits, gathered in one byte.
        all |= ((found >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * n);
    }
    all
}

#[cfg(test)]
mod tests {
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    use super::*;

    #[test]
    fn every_special_byte_has_its_bit_and_no_other() {
        for byte in 0..=u8::MAX {
            for at in 0..BLOCK {
                let mut block = [0xe9; BLOCK];
                block[at] = byte;
                block[(at + 7) % BLOCK] = b'!';
                let special = byte < b' ' || byte == b'"' || byte == b'\\';
                assert_eq!(
                    super::special(&block),
                    u64::from(special) << at,
                    "{byte} at {at}"
                );
            }
        }
        assert_eq!(super::special(&[b'"'; BLOCK]), u64::MAX);
        assert_eq!(super::special(&[0; BLOCK]), u64::MAX);
    }

    #[test]
    fn nothing_is_special_past_the_end() {
        for len in 0..200 {
            let bytes = vec![b'a'; len];
            assert_eq!(plain_run(&bytes), len);
            assert_eq!(block(&bytes, len / 2), 0);
            let mut bytes = bytes;
            bytes.push(b'"');
            assert_eq!(plain_run(&bytes), len);
        }
    }
}
