//! A bounds-checked little-endian reader, and its writer. No length in the input is believed
//! before the bytes are there.

use super::{MAJOR, MINOR, SyncError};

/// Reads little-endian values from a slice and fails, never panics, at its end.
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The magic bytes and versions that every message begins with. Returns the minor version.
    pub fn preamble(&mut self, magic: [u8; 4]) -> Result<u16, SyncError> {
        if self.array::<4>()? != magic {
            return Err(SyncError::BadMagic);
        }
        let theirs = self.u16()?;
        if theirs != MAJOR {
            return Err(SyncError::Version { theirs });
        }
        self.u16()
    }

    /// What is not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], SyncError> {
        let (head, tail) = self.bytes.split_at_checked(n).ok_or(SyncError::Truncated)?;
        self.bytes = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], SyncError> {
        self.take(N)?.try_into().map_err(|_| SyncError::Truncated)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, SyncError> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, SyncError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, SyncError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, SyncError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string: u16 length in bytes, then UTF-8.
    pub fn string(&mut self) -> Result<String, SyncError> {
        let len = usize::from(self.u16()?);
        let text = core::str::from_utf8(self.take(len)?).map_err(|_| SyncError::NotUtf8)?;
        Ok(text.to_owned())
    }

    /// A list: u16 count, then that many values. The list's capacity is not taken from the count.
    pub fn list<T>(
        &mut self,
        mut value: impl FnMut(&mut Self) -> Result<T, SyncError>,
    ) -> Result<Vec<T>, SyncError> {
        let count = self.u16()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(value(self)?);
        }
        Ok(list)
    }
}

/// Appends little-endian values to a buffer. Twin of [`Reader`].
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// The bytes written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True where nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The magic bytes and this build's versions. Twin of [`Reader::preamble`].
    pub fn preamble(&mut self, magic: [u8; 4]) {
        self.raw(&magic);
        self.u16(MAJOR);
        self.u16(MINOR);
    }

    /// Raw bytes.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// One byte.
    pub fn u8(&mut self, v: u8) {
        self.bytes.push(v);
    }

    /// Two bytes.
    pub fn u16(&mut self, v: u16) {
        self.raw(&v.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, v: u32) {
        self.raw(&v.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, v: u64) {
        self.raw(&v.to_le_bytes());
    }

    /// A string of at most 65,535 bytes; longer ones are refused.
    pub fn string(&mut self, s: &str) -> Result<(), SyncError> {
        let len = u16::try_from(s.len()).map_err(|_| SyncError::TooLong("string"))?;
        self.u16(len);
        self.raw(s.as_bytes());
        Ok(())
    }

    /// A list of at most 65,535 values; longer ones are refused.
    pub fn list<T>(
        &mut self,
        values: &[T],
        mut value: impl FnMut(&mut Self, &T) -> Result<(), SyncError>,
    ) -> Result<(), SyncError> {
        self.u16(u16::try_from(values.len()).map_err(|_| SyncError::TooLong("list"))?);
        for v in values {
            value(self, v)?;
        }
        Ok(())
    }
}
