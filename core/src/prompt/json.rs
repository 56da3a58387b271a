//! JSON text -> template values, as `serde_json` reads it, at several times its speed in V8.
//!
//! Most of a request is long strings, dense in escapes where they hold code. `serde_json` looks at
//! four bytes at a time on wasm32, where words are 32 bits wide, and moves what stands between two
//! escapes by a call of its own; here 64 bytes are looked at together, and 32 or 64 moved. Numbers,
//! but for integers, are left to `serde_json`. What is refused and what values come out is the same,
//! which tests compare, but for integers: Python keeps them whole however long they are.

mod scan;

use core::ops::Range;

use minijinja::Value;
use scan::BLOCK;
use simdutf8::basic::from_utf8;

use super::Skip;
use super::work::{CONTAINER, FRACTION, STRING, WORD};

/// Lists and maps in each other at most, as in `serde_json`.
const DEPTH_MAX: u32 = 127;
/// Bytes copied together.
const HALF: usize = BLOCK / 2;
/// Digits that fit a `u64` whatever they are.
const PLAIN_DIGITS_MAX: usize = 18;

/// Reads one JSON text. Takes what its values cost from `values`, see [`super::work`].
///
/// # Errors
/// [`Skip::InvalidJson`] if it is not one; [`Skip::TooComplex`] if its values cost more, or are nested
/// too deeply; [`Skip::Unsupported`] for numbers that Python reads and we cannot hold.
pub(super) fn read(json: &[u8], values: &mut u32) -> Result<Value, Skip> {
    let mut reader = Reader {
        json,
        at: 0,
        values: *values,
        why: Skip::InvalidJson,
        scratch: Vec::new(),
    };
    let value = reader.value(DEPTH_MAX);
    reader.skip_space();
    *values = reader.values;
    match value {
        Some(value) if reader.at == json.len() => Ok(value),
        _ => Err(reader.why),
    }
}

struct Reader<'j> {
    json: &'j [u8],
    at: usize,
    /// What further values may cost.
    values: u32,
    /// Why there is no value.
    why: Skip,
    /// Strings without their escapes, one after the other.
    scratch: Vec<u8>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// The next byte that is not white space, passed over.
    fn sign(&mut self) -> Option<u8> {
        self.skip_space();
        let sign = self.peek()?;
        self.at += 1;
        Some(sign)
    }

    fn spend(&mut self, cost: u32) -> Option<()> {
        let left = self.values.checked_sub(cost);
        self.values = left.unwrap_or(0);
        self.or_too_complex(left).map(drop)
    }

    fn or_too_complex<T>(&mut self, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.why = Skip::TooComplex;
        }
        value
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        self.skip_space();
        let first = self.peek()?;
        self.spend(match first {
            b'{' | b'[' => CONTAINER,
            b'"' => STRING,
            _ => WORD,
        })?;
        match first {
            b'"' => {
                self.at += 1;
                self.string()
            }
            b'{' => {
                self.at += 1;
                let depth = self.or_too_complex(depth.checked_sub(1))?;
                self.map(depth)
            }
            b'[' => {
                self.at += 1;
                let depth = self.or_too_complex(depth.checked_sub(1))?;
                self.list(depth)
            }
            b't' => self.word("true", Value::from(true)),
            b'f' => self.word("false", Value::from(false)),
            b'n' => self.word("null", Value::from(())),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let rest = self.json.get(self.at..)?;
        self.at += word.len();
        rest.starts_with(word.as_bytes()).then_some(value)
    }

    fn list(&mut self, depth: u32) -> Option<Value> {
        let mut values = Vec::new();
        self.skip_space();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(Value::from(values));
        }
        loop {
            values.push(self.value(depth)?);
            match self.sign()? {
                b',' => {}
                b']' => return Some(Value::from(values)),
                _ => return None,
            }
        }
    }

    fn map(&mut self, depth: u32) -> Option<Value> {
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        self.skip_space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(Value::from_pairs(pairs));
        }
        loop {
            self.spend(STRING)?;
            let (b'"', key) = (self.sign()?, self.string()?) else {
                return None;
            };
            let b':' = self.sign()? else { return None };
            pairs.push((key, self.value(depth)?));
            match self.sign()? {
                b',' => {}
                b'}' => return Some(Value::from_pairs(pairs)),
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<Value> {
        let rest = self.json.get(self.at..)?;
        let is_part = |b: &u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let len = rest.iter().position(|b| !is_part(b)).unwrap_or(rest.len());
        let digits = rest.get(..len)?;
        self.at += len;
        let plain = len <= PLAIN_DIGITS_MAX
            && digits.iter().all(u8::is_ascii_digit)
            && (len == 1 || digits.first() != Some(&b'0'));
        if plain && len > 0 {
            let number = digits
                .iter()
                .fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
            return Some(Value::from(number));
        }
        self.spend(FRACTION)?;
        if let Some(number) = integer(digits) {
            return Some(number);
        }
        let number: serde_json::Result<Value> = serde_json::from_slice(digits);
        let is_integer = digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'-'));
        match number {
            // As a float it would not be written as it was.
            Ok(_) if is_integer => {
                self.why = Skip::Unsupported;
                None
            }
            Err(error) if error.to_string().starts_with("number out of range") => {
                self.why = Skip::Unsupported;
                None
            }
            number => number.ok(),
        }
    }

    /// A string whose opening quote was passed.
    fn string(&mut self) -> Option<Value> {
        let rest = self.json.get(self.at..)?;
        let plain = scan::plain_run(rest);
        if rest.get(plain)? == &b'"' {
            self.at += plain + 1;
            return Some(Value::from(from_utf8(rest.get(..plain)?).ok()?));
        }
        let (read, written) = unescape(rest, &mut self.scratch)?;
        self.at += read;
        let text = self.scratch.get(..written)?;
        Some(Value::from(from_utf8(text).ok()?))
    }
}

/// Integers of any length are integers in Python, and `-0` is one too.
fn integer(digits: &[u8]) -> Option<Value> {
    let magnitude = digits.strip_prefix(b"-").unwrap_or(digits);
    let is_json = magnitude.first() != Some(&b'0') || magnitude.len() == 1;
    let digits = core::str::from_utf8(digits).ok()?;
    let plain = is_json && magnitude.iter().all(u8::is_ascii_digit);
    let number: i128 = plain.then(|| digits.parse().ok())??;
    Some(i64::try_from(number).map_or_else(|_| Value::from(number), Value::from))
}

/// Writes a string's bytes without escapes into `out`, from its beginning, up to the closing quote.
/// Gives how many bytes were read, with the quote, and how many written.
///
/// A function of its own: V8 optimises a function only when it is entered again, and large ones late.
#[inline(never)]
fn unescape(bytes: &[u8], out: &mut Vec<u8>) -> Option<(usize, usize)> {
    // Of the bytes before `base`, those from `from` on are not written yet.
    let (mut base, mut from, mut to) = (0_usize, 0_usize, 0_usize);
    while base < bytes.len() {
        // What one block can write, and what is written too much.
        if out.len() < to + 3 * BLOCK {
            out.resize((2 * to).max(1 << 12), 0);
        }
        let mut found = from_on(scan::block(bytes, base), from.saturating_sub(base));
        while found != 0 {
            let bit = found.trailing_zeros();
            // What follows a backslash is none of its own. Taken away without looking at it: a guess
            // which it is would often be wrong.
            found &= !(3 << bit);
            let at = base + bit as usize;
            to += copy(bytes, from..at, out, to)?;
            let escape = *bytes.get(at + 1).unwrap_or(&0);
            match bytes.get(at)? {
                b'"' => return Some((at + 1, to)),
                b'\\' => {}
                _ => return None,
            }
            if escape == b'u' {
                let (c, len) = unicode(bytes.get(at + 2..)?)?;
                to += c.encode_utf8(out.get_mut(to..)?).len();
                from = at + 2 + len;
                found = from_on(found, from - base);
            } else {
                *out.get_mut(to)? = unescaped(escape)?;
                to += 1;
                from = at + 2;
            }
        }
        base += BLOCK;
        if from < base {
            let end = base.min(bytes.len());
            to += copy(bytes, from..end, out, to)?;
            from = end;
        }
    }
    None
}

/// The bits from one on.
#[inline]
fn from_on(bits: u64, first: usize) -> u64 {
    let first = u32::try_from(first).unwrap_or(u32::MAX);
    bits & u64::MAX.checked_shl(first).unwrap_or(0)
}

/// Copies at most [`BLOCK`] bytes and tells how many. Moves [`HALF`]s of a block where there is room
/// for too many bytes, which are written over later.
#[inline]
fn copy(bytes: &[u8], range: Range<usize>, out: &mut [u8], to: usize) -> Option<usize> {
    let len = range.end - range.start;
    let (source, target) = (bytes.get(range.start..)?, out.get_mut(to..)?);
    let Some(source) = source.first_chunk::<BLOCK>() else {
        return copy_at_end(source.get(..len)?, target);
    };
    *target.first_chunk_mut::<HALF>()? = *source.first_chunk()?;
    if len > HALF {
        *target.get_mut(HALF..)?.first_chunk_mut::<HALF>()? = *source.last_chunk()?;
    }
    Some(len)
}

/// Apart, so that the compiler does not make one copy of variable length out of all: in wasm that is
/// a call into the engine.
#[cold]
#[inline(never)]
fn copy_at_end(source: &[u8], target: &mut [u8]) -> Option<usize> {
    target.get_mut(..source.len())?.copy_from_slice(source);
    Some(source.len())
}

/// What stands for a byte after a backslash, by table: which it is cannot be foreseen.
fn unescaped(byte: u8) -> Option<u8> {
    const TABLE: [u8; 256] = {
        let mut table = [0; 256];
        let known = *b"\"\\/nrtbf";
        let meant = *b"\"\\/\n\r\t\x08\x0c";
        let mut n = 0;
        while n < known.len() {
            table[known[n] as usize] = meant[n];
            n += 1;
        }
        table
    };
    TABLE
        .get(usize::from(byte))
        .copied()
        .filter(|byte| *byte != 0)
}

/// The character behind `\u`, and how many bytes tell it: four, or ten for two surrogates.
fn unicode(digits: &[u8]) -> Option<(char, usize)> {
    let high = hex(digits)?;
    if let Some(c) = char::from_u32(high) {
        return Some((c, 4));
    }
    let low = digits.get(4..)?.strip_prefix(b"\\u")?;
    let mut pair = char::decode_utf16([u16::try_from(high).ok()?, u16::try_from(hex(low)?).ok()?]);
    Some((pair.next()?.ok()?, 10))
}

fn hex(digits: &[u8]) -> Option<u32> {
    let digits = digits.first_chunk::<4>()?.iter();
    let mut digits = digits.map(|&digit| char::from(digit).to_digit(16));
    digits.try_fold(0, |number, digit| Some(number << 4 | digit?))
}

#[cfg(test)]
mod tests;
