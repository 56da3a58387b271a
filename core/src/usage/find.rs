//! Finding the next byte that matters, eight at a time.
//!
//! Almost all of a large body is text and numbers in which nothing can be of interest.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;
/// The bit that `[` and `{`, and `]` and `}`, differ by.
const CASE: u8 = 0x20;

/// High bits set where a byte of `word` is `byte`, and perhaps above the first such byte.
const fn equal(word: u64, byte: u8) -> u64 {
    let x = word ^ (ONES * byte as u64);
    x.wrapping_sub(ONES) & !x & HIGH
}

/// Position of the first quote or backslash.
pub(super) fn string_end(bytes: &[u8]) -> Option<usize> {
    position(
        bytes,
        |word| equal(word, b'"') | equal(word, b'\\'),
        |byte| matches!(byte, b'"' | b'\\'),
    )
}

/// Position of the first newline.
pub(super) fn line_end(bytes: &[u8]) -> Option<usize> {
    position(bytes, |word| equal(word, b'\n'), |byte| byte == b'\n')
}

/// Position of the first quote, bracket or brace.
pub(super) fn structure(bytes: &[u8]) -> Option<usize> {
    position(
        bytes,
        |word| {
            let folded = word | (ONES * CASE as u64);
            equal(word, b'"') | equal(folded, b'{') | equal(folded, b'}')
        },
        |byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'),
    )
}

/// `in_word` must be other than 0 for every word that has such a byte; it may be for others.
fn position(
    bytes: &[u8],
    in_word: impl Fn(u64) -> u64,
    is_it: impl Fn(u8) -> bool,
) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        if in_word(u64::from_le_bytes(*word)) != 0
            && let Some(at) = word.iter().position(|&byte| is_it(byte))
        {
            return Some(number * 8 + at);
        }
    }
    let at = tail.iter().position(|&byte| is_it(byte))?;
    Some(words.len() * 8 + at)
}
