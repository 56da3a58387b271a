//! Reads MessagePack from bytes: no allocation, no recursion, no trust in any length.

use super::EngineHash;

/// Why a value could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("the payload ends inside it")]
    End,
    #[error("wanted {wanted}, found {}", kind_of(*marker))]
    Kind { wanted: &'static str, marker: u8 },
    #[error("{value} is out of range for {wanted}")]
    Range { wanted: &'static str, value: i128 },
    #[error("not UTF-8")]
    Utf8,
    #[error("missing")]
    Missing,
}

/// What a marker byte announces, in words.
const fn kind_of(marker: u8) -> &'static str {
    match marker {
        0x00..=0x7f | 0xcc..=0xcf => "an unsigned integer",
        0xe0..=0xff | 0xd0..=0xd3 => "a signed integer",
        0x80..=0x8f | 0xde | 0xdf => "a map",
        0x90..=0x9f | 0xdc | 0xdd => "an array",
        0xa0..=0xbf | 0xd9..=0xdb => "a string",
        0xc0 => "nil",
        0xc1 => "a reserved marker",
        0xc2 | 0xc3 => "a boolean",
        0xc4..=0xc6 => "bytes",
        0xc7..=0xc9 | 0xd4..=0xd8 => "an extension",
        0xca | 0xcb => "a float",
    }
}

/// A position in a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet read.
    pub(super) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Goes forward to where `remaining` bytes are left. Never backwards.
    pub(super) fn advance_to(&mut self, remaining: usize) {
        let passed = self.rest.len().saturating_sub(remaining);
        self.rest = self.rest.get(passed..).unwrap_or_default();
    }

    /// The next value's marker.
    pub(super) fn peek(&self) -> Result<u8, WireError> {
        self.rest.first().copied().ok_or(WireError::End)
    }

    fn marker(&mut self) -> Result<u8, WireError> {
        let (first, rest) = self.rest.split_first().ok_or(WireError::End)?;
        self.rest = rest;
        Ok(*first)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(WireError::End)?;
        self.rest = rest;
        Ok(head)
    }

    fn take_n<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::End)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes a nil, if that is what comes next.
    pub(super) fn take_nil(&mut self) -> bool {
        match self.rest {
            [0xc0, rest @ ..] => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Whether an array comes next.
    pub(super) fn at_array(&self) -> bool {
        matches!(self.rest.first(), Some(0x90..=0x9f | 0xdc | 0xdd))
    }

    /// Whether a map comes next.
    pub(super) fn at_map(&self) -> bool {
        matches!(self.rest.first(), Some(0x80..=0x8f | 0xde | 0xdf))
    }

    /// Whether a string comes next.
    pub(super) fn at_string(&self) -> bool {
        matches!(self.rest.first(), Some(0xa0..=0xbf | 0xd9..=0xdb))
    }

    /// An array's length, as it says. It may be a lie: see [`Self::array_within`].
    pub(super) fn array(&mut self) -> Result<usize, WireError> {
        Ok(match self.marker()? {
            marker @ 0x90..=0x9f => usize::from(marker & 0x0f),
            0xdc => usize::from(u16::from_be_bytes(self.take_n()?)),
            0xdd => u32::from_be_bytes(self.take_n()?) as usize,
            marker => {
                return Err(WireError::Kind {
                    wanted: "an array",
                    marker,
                });
            }
        })
    }

    /// An array's length, refused where the payload is too short to hold that many values.
    pub(super) fn array_within(&mut self) -> Result<usize, WireError> {
        let length = self.array()?;
        if length > self.remaining() {
            Err(WireError::End)
        } else {
            Ok(length)
        }
    }

    /// A map's number of entries, refused where the payload is too short to hold them.
    pub(super) fn map_within(&mut self) -> Result<usize, WireError> {
        let length = match self.marker()? {
            marker @ 0x80..=0x8f => usize::from(marker & 0x0f),
            0xde => usize::from(u16::from_be_bytes(self.take_n()?)),
            0xdf => u32::from_be_bytes(self.take_n()?) as usize,
            marker => {
                return Err(WireError::Kind {
                    wanted: "a map",
                    marker,
                });
            }
        };
        if length > self.remaining() / 2 {
            Err(WireError::End)
        } else {
            Ok(length)
        }
    }

    /// A string's bytes.
    pub(super) fn string_bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = match self.marker()? {
            marker @ 0xa0..=0xbf => usize::from(marker & 0x1f),
            0xd9 => usize::from(self.marker()?),
            0xda => usize::from(u16::from_be_bytes(self.take_n()?)),
            0xdb => u32::from_be_bytes(self.take_n()?) as usize,
            marker => {
                return Err(WireError::Kind {
                    wanted: "a string",
                    marker,
                });
            }
        };
        self.take(length)
    }

    /// A string.
    pub(super) fn string(&mut self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.string_bytes()?).map_err(|_| WireError::Utf8)
    }

    /// A byte string.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = match self.marker()? {
            0xc4 => usize::from(self.marker()?),
            0xc5 => usize::from(u16::from_be_bytes(self.take_n()?)),
            0xc6 => u32::from_be_bytes(self.take_n()?) as usize,
            marker => {
                return Err(WireError::Kind {
                    wanted: "bytes",
                    marker,
                });
            }
        };
        self.take(length)
    }

    /// Any integer.
    pub(super) fn integer(&mut self, wanted: &'static str) -> Result<i128, WireError> {
        Ok(match self.marker()? {
            marker @ 0x00..=0x7f => i128::from(marker),
            marker @ 0xe0..=0xff => i128::from(i8::from_be_bytes([marker])),
            0xcc => i128::from(self.marker()?),
            0xcd => i128::from(u16::from_be_bytes(self.take_n()?)),
            0xce => i128::from(u32::from_be_bytes(self.take_n()?)),
            0xcf => i128::from(u64::from_be_bytes(self.take_n()?)),
            0xd0 => i128::from(i8::from_be_bytes(self.take_n()?)),
            0xd1 => i128::from(i16::from_be_bytes(self.take_n()?)),
            0xd2 => i128::from(i32::from_be_bytes(self.take_n()?)),
            0xd3 => i128::from(i64::from_be_bytes(self.take_n()?)),
            marker => return Err(WireError::Kind { wanted, marker }),
        })
    }

    /// An integer that fits `T`.
    pub(super) fn fit<T: TryFrom<i128>>(&mut self, wanted: &'static str) -> Result<T, WireError> {
        let value = self.integer(wanted)?;
        T::try_from(value).map_err(|_| WireError::Range { wanted, value })
    }

    /// A number of seconds: a float or an integer.
    pub(super) fn seconds(&mut self) -> Result<f64, WireError> {
        match self.peek()? {
            0xca => {
                self.marker()?;
                Ok(f64::from(f32::from_be_bytes(self.take_n()?)))
            }
            0xcb => {
                self.marker()?;
                Ok(f64::from_be_bytes(self.take_n()?))
            }
            #[allow(clippy::cast_precision_loss)] // a time in seconds
            _ => Ok(self.integer("a number of seconds")? as f64),
        }
    }

    /// A block hash: an integer of either sign, or bytes.
    pub(super) fn hash(&mut self) -> Result<EngineHash, WireError> {
        const WANTED: &str = "a block hash (integer or bytes)";
        // The form of nearly every hash, first.
        if let [0xcf, rest @ ..] = self.rest
            && let Some((low, rest)) = rest.split_first_chunk::<8>()
        {
            self.rest = rest;
            return Ok(EngineHash::from_u64(u64::from_be_bytes(*low)));
        }
        match self.peek()? {
            0xc4..=0xc6 => match self.bytes()? {
                [] => Err(WireError::Range {
                    wanted: "a block hash of at least one byte",
                    value: 0,
                }),
                bytes => Ok(EngineHash::from_bytes(bytes)),
            },
            // Signed and unsigned integers of 64 bits: the lower half of the wider one is the cast.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            _ => Ok(EngineHash::from_u64(self.integer(WANTED)? as u64)),
        }
    }

    /// Reads `count` token ids onto `tokens`; a pair counts as its first. Returns whether any was a
    /// pair. The common widths are tried first, since this is where most of a payload's bytes go.
    pub(super) fn tokens(
        &mut self,
        count: usize,
        tokens: &mut Vec<u32>,
    ) -> Result<bool, WireError> {
        let mut pairs = false;
        for _ in 0..count {
            let token = match self.rest {
                [0xcd, high, low, rest @ ..] => {
                    self.rest = rest;
                    u32::from(u16::from_be_bytes([*high, *low]))
                }
                [small @ 0x00..=0x7f, rest @ ..] => {
                    self.rest = rest;
                    u32::from(*small)
                }
                [0xce, a, b, c, d, rest @ ..] => {
                    self.rest = rest;
                    u32::from_be_bytes([*a, *b, *c, *d])
                }
                [0xcc, small, rest @ ..] => {
                    self.rest = rest;
                    u32::from(*small)
                }
                _ => {
                    pairs |= self.at_array();
                    self.odd_token()?
                }
            };
            tokens.push(token);
        }
        Ok(pairs)
    }

    /// A token id in a form that is rare: wide, signed, or a pair.
    #[cold]
    fn odd_token(&mut self) -> Result<u32, WireError> {
        const WANTED: &str = "a token id";
        if !self.at_array() {
            return self.fit(WANTED);
        }
        let length = self.array_within()?;
        if length == 0 {
            return Err(WireError::Missing);
        }
        let token = self.fit(WANTED)?;
        for _ in 1..length {
            self.skip()?;
        }
        Ok(token)
    }

    /// Passes over one value of any kind and depth.
    pub(super) fn skip(&mut self) -> Result<(), WireError> {
        let mut pending: usize = 1;
        while pending > 0 {
            // Each value takes a byte at least, so that a false length ends the walk at once.
            if pending > self.remaining() {
                return Err(WireError::End);
            }
            pending -= 1;
            let marker = self.marker()?;
            let (bytes, values) = match marker {
                0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (0, 0),
                0x80..=0x8f => (0, 2 * usize::from(marker & 0x0f)),
                0x90..=0x9f => (0, usize::from(marker & 0x0f)),
                0xa0..=0xbf => (usize::from(marker & 0x1f), 0),
                0xc1 => {
                    return Err(WireError::Kind {
                        wanted: "a value",
                        marker,
                    });
                }
                0xc4 | 0xd9 => (usize::from(self.marker()?), 0),
                0xc5 | 0xda => (usize::from(u16::from_be_bytes(self.take_n()?)), 0),
                0xc6 | 0xdb => (u32::from_be_bytes(self.take_n()?) as usize, 0),
                0xc7 => (usize::from(self.marker()?) + 1, 0),
                0xc8 => (usize::from(u16::from_be_bytes(self.take_n()?)) + 1, 0),
                0xc9 => (
                    (u32::from_be_bytes(self.take_n()?) as usize).saturating_add(1),
                    0,
                ),
                0xca | 0xce | 0xd2 => (4, 0),
                0xcb | 0xcf | 0xd3 => (8, 0),
                0xcc | 0xd0 => (1, 0),
                0xcd | 0xd1 | 0xd4 => (2, 0),
                0xd5 => (3, 0),
                0xd6 => (5, 0),
                0xd7 => (9, 0),
                0xd8 => (17, 0),
                0xdc => (0, usize::from(u16::from_be_bytes(self.take_n()?))),
                0xdd => (0, u32::from_be_bytes(self.take_n()?) as usize),
                0xde => (0, 2 * usize::from(u16::from_be_bytes(self.take_n()?))),
                0xdf => (
                    0,
                    (u32::from_be_bytes(self.take_n()?) as usize).saturating_mul(2),
                ),
            };
            self.take(bytes)?;
            pending = pending.saturating_add(values);
        }
        Ok(())
    }
}
