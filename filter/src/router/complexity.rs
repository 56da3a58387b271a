//! Keeps odd bodies from filling the VM's memory and from holding up its worker.
//!
//! Parsed JSON takes memory and time by the value, not by the byte: 32 MiB of `{},{},...` become more
//! than the 1 GiB a VM may have, and running out of memory is a trap that fails the request. All
//! other requests of the worker wait meanwhile.

/// Bodies up to here cannot hold more than [`VALUES_MAX`] values, in bytes.
const SMALL_BYTES: usize = 2 * VALUES_MAX;
/// Values parsed at most: up to 0.7 us and 100 bytes of memory each. Room for a prompt of as many
/// token ids.
const VALUES_MAX: usize = 1 << 18;
/// Bytes looked at most: 2 M tokens, more than any engine takes, in about 70 ms.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Would parsing this JSON take too much memory or time?
#[must_use]
pub fn is_too_complex(body: &[u8]) -> bool {
    body.len() > BODY_BYTES_MAX || (body.len() > SMALL_BYTES && has_more_values(body, VALUES_MAX))
}

/// Counts what starts or separates values, outside strings. Where the JSON is broken, so may be the
/// count, but then the parser stops too.
#[inline(never)]
fn has_more_values(body: &[u8], most: usize) -> bool {
    let mut values = 0usize;
    let mut bytes = body.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => {
                while let Some(&byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => {
                            bytes.next();
                        }
                        _ => {}
                    }
                }
            }
            b',' | b'[' | b'{' => {
                values += 1;
                if values > most {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings() {
        let check = |json: &str, values: usize| {
            assert!(!has_more_values(json.as_bytes(), values), "{json}");
            assert!(
                values == 0 || has_more_values(json.as_bytes(), values - 1),
                "{json}"
            );
        };
        check("", 0);
        check(r#""a,b[{""#, 0);
        check(r#"{"a,\",{":[1,2,{}],"b":"\\"}"#, 6);
        check(r#"{"unfinished,,,,"#, 1);
        check(r#""\"#, 0);
    }

    #[test]
    fn long_text_is_fine_and_very_many_objects_are_not() {
        let text = format!(r#"{{"prompt":"{}"}}"#, "a, b [c] {d} ".repeat(1 << 19));
        assert!(text.len() > SMALL_BYTES);
        assert!(!is_too_complex(text.as_bytes()));
        let objects = format!("[{}{{}}]", "{},".repeat(1 << 18));
        assert!(is_too_complex(objects.as_bytes()));
        assert!(!is_too_complex("{},".repeat(1 << 17).as_bytes()));
        assert!(is_too_complex(&vec![b'a'; BODY_BYTES_MAX + 1]));
        assert!(!is_too_complex(&vec![b'a'; BODY_BYTES_MAX]));
    }
}
