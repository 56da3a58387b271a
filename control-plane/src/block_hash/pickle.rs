//! Pickle, protocol 5, byte for byte as CPython writes the values in block hashes.

use super::Value;

const PROTO: [u8; 2] = [0x80, 5];
const FRAME: u8 = 0x95;
const STOP: u8 = b'.';
const MEMOIZE: u8 = 0x94;
const NONE: u8 = b'N';
const MARK: u8 = b'(';
const TUPLE: u8 = b't';
const EMPTY_TUPLE: u8 = b')';
const TUPLE_UP_TO_3: [u8; 3] = [0x85, 0x86, 0x87];

/// A frame ends at the first value boundary from here on.
const FRAME_TARGET_BYTES: usize = 64 * 1024;
/// A last frame shorter than this has no header.
const FRAME_LEAST_BYTES: usize = 4;
const FRAME_HEADER_BYTES: usize = 9;

pub(super) fn write(value: &Value<'_>, out: &mut Vec<u8>) {
    out.extend(PROTO);
    let mut pickler = Pickler {
        frame: out.len(),
        out,
        memo: 0,
        literals: Vec::new(),
    };
    pickler.open_frame();
    pickler.save(value);
    pickler.out.push(STOP);
    pickler.close_frame();
}

struct Pickler<'o> {
    out: &'o mut Vec<u8>,
    /// Where the open frame's header starts.
    frame: usize,
    /// Objects remembered so far.
    memo: u32,
    /// Literals among them, with their numbers.
    literals: Vec<(&'static str, u32)>,
}

impl Pickler<'_> {
    fn open_frame(&mut self) {
        self.frame = self.out.len();
        self.out.push(FRAME);
        self.out.extend([0; FRAME_HEADER_BYTES - 1]);
    }

    fn close_frame(&mut self) {
        let body = self.frame + FRAME_HEADER_BYTES;
        let length = self.out.len() - body;
        if length < FRAME_LEAST_BYTES {
            self.out.drain(self.frame..body);
        } else if let Some(header) = self.out.get_mut(self.frame + 1..body) {
            header.copy_from_slice(&(length as u64).to_le_bytes());
        }
    }

    /// After each value.
    fn boundary(&mut self) {
        if self.out.len() - self.frame - FRAME_HEADER_BYTES >= FRAME_TARGET_BYTES {
            self.close_frame();
            self.open_frame();
        }
    }

    fn memoize(&mut self) {
        self.out.push(MEMOIZE);
        self.memo += 1;
    }

    fn save(&mut self, value: &Value<'_>) {
        match value {
            Value::None => self.out.push(NONE),
            Value::Int(int) => self.int(*int),
            Value::Text(text) => self.text(text),
            Value::Literal(text) => self.literal(text),
            Value::Bytes(bytes) => {
                self.sized(b'C', b'B', bytes);
                self.memoize();
            }
            Value::Tuple(values) => self.tuple(values.len(), |pickler| {
                for value in values {
                    pickler.save(value);
                }
            }),
            Value::Tokens(tokens) => self.tuple(tokens.len(), |pickler| {
                for token in *tokens {
                    pickler.int(i64::from(*token));
                    pickler.boundary();
                }
            }),
        }
        self.boundary();
    }

    fn tuple(&mut self, length: usize, items: impl FnOnce(&mut Self)) {
        match length.checked_sub(1) {
            None => return self.out.push(EMPTY_TUPLE),
            Some(index) => match TUPLE_UP_TO_3.get(index) {
                Some(opcode) => {
                    items(self);
                    self.out.push(*opcode);
                }
                None => {
                    self.out.push(MARK);
                    items(self);
                    self.out.push(TUPLE);
                }
            },
        }
        self.memoize();
    }

    fn int(&mut self, int: i64) {
        if let Ok(byte) = u8::try_from(int) {
            self.out.extend([b'K', byte]);
        } else if let Ok(short) = u16::try_from(int) {
            self.out.push(b'M');
            self.out.extend(short.to_le_bytes());
        } else if let Ok(word) = i32::try_from(int) {
            self.out.push(b'J');
            self.out.extend(word.to_le_bytes());
        } else {
            // LONG1: the fewest little-endian bytes that keep the sign, which Python counts so.
            let bits = 64 - int.unsigned_abs().leading_zeros();
            let mut length = bits as usize / 8 + 1;
            let bytes = i128::from(int).to_le_bytes();
            if int < 0
                && bytes.get(length - 1) == Some(&0xff)
                && bytes.get(length - 2).is_some_and(|byte| byte & 0x80 != 0)
            {
                length -= 1;
            }
            self.out.push(0x8a);
            self.out.push(u8::try_from(length).unwrap_or(u8::MAX));
            self.out.extend(bytes.get(..length).unwrap_or_default());
        }
    }

    fn text(&mut self, text: &str) {
        self.sized(0x8c, b'X', text.as_bytes());
        self.memoize();
    }

    fn literal(&mut self, text: &'static str) {
        match self.literals.iter().find(|(known, _)| *known == text) {
            Some((_, number)) => match u8::try_from(*number) {
                Ok(number) => self.out.extend([b'h', number]),
                Err(_) => {
                    let number = number.to_le_bytes();
                    self.out.push(b'j');
                    self.out.extend(number);
                }
            },
            None => {
                self.literals.push((text, self.memo));
                self.text(text);
            }
        }
    }

    fn sized(&mut self, short: u8, long: u8, bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(length) => self.out.extend([short, length]),
            Err(_) => {
                self.out.push(long);
                self.out
                    .extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
            }
        }
        self.out.extend_from_slice(bytes);
    }
}
