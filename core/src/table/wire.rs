//! Little-endian numbers and varints.

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
