//! Little-endian numbers, varints and the checksum of pages.

/// Two bytes at `at`, or 0 past the end (callers have checked the length).
pub(super) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    read(bytes, at).map_or(0, u16::from_le_bytes)
}

/// Four bytes at `at`, or 0 past the end.
pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    read(bytes, at).map_or(0, u32::from_le_bytes)
}

/// Eight bytes at `at`, or 0 past the end.
pub(super) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    read(bytes, at).map_or(0, u64::from_le_bytes)
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Appends `value`, 7 bits a byte, lowest first, high bit on all but the last.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads bytes from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    /// At most five bytes; a value over 32 bits is damage.
    #[inline]
    pub(super) fn varint(&mut self) -> Option<u32> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return u32::try_from(value).ok();
            }
        }
        None
    }
}

const CHECK_START: u64 = 0x7070_7067_0000_0001;
const CHECK_MULTIPLIER: u64 = 0x324c_ad49_c629_665b;

/// A 64-bit checksum over the concatenation of `parts`, each padded to whole words.
///
/// Every step is a bijection of the sum and of the word, so damage within one aligned word is
/// always found, and other damage but for one case in 2^64. It guards against accidents, not
/// against forgery: who can write pages holds a token.
pub(super) fn checksum(parts: &[&[u8]]) -> u64 {
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
