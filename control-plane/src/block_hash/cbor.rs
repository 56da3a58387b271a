//! Canonical CBOR of the values in block hashes: shortest heads, definite lengths.

use super::Value;

pub(super) fn write(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::None => out.push(0xf6),
        Value::Int(int) => match u64::try_from(*int) {
            Ok(int) => head(0, int, out),
            Err(_) => head(1, int.unsigned_abs() - 1, out),
        },
        Value::Text(text) => string(3, text.as_bytes(), out),
        Value::Literal(text) => string(3, text.as_bytes(), out),
        Value::Bytes(bytes) => string(2, bytes, out),
        Value::Tuple(values) => {
            head(4, values.len() as u64, out);
            for value in values {
                write(value, out);
            }
        }
        Value::Tokens(tokens) => {
            head(4, tokens.len() as u64, out);
            for token in *tokens {
                head(0, u64::from(*token), out);
            }
        }
    }
}

fn string(major: u8, bytes: &[u8], out: &mut Vec<u8>) {
    head(major, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[allow(clippy::cast_possible_truncation)] // each width is checked by its range
fn head(major: u8, value: u64, out: &mut Vec<u8>) {
    let major = major << 5;
    match value {
        0..24 => out.push(major | value as u8),
        24..0x100 => out.extend([major | 24, value as u8]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend((value as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend((value as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend(value.to_be_bytes());
        }
    }
}
