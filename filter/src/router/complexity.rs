//! Keeps odd bodies from filling the VM's memory.
//!
//! Parsed JSON takes memory by the value, not by the byte: 32 MiB of `{},{},...` become more than
//! the 1 GiB a VM may have, and running out of memory is a trap that fails the request. Text does
//! not do that, however long.

/// Bodies up to here cannot hold more than [`VALUES_MAX`] values, in bytes.
const SMALL_BYTES: usize = 4 << 20;
/// Values parsed at most: about 100 bytes of memory each, when they are empty objects.
const VALUES_MAX: usize = 2 << 20;

/// Would parsing this JSON take too much memory?
#[must_use]
pub fn is_too_complex(body: &[u8]) -> bool {
    body.len() > SMALL_BYTES && has_more_values(body, VALUES_MAX)
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
    fn long_text_is_fine_and_millions_of_objects_are_not() {
        let text = format!(r#"{{"prompt":"{}"}}"#, "a, b [c] {d} ".repeat(1 << 20));
        assert!(text.len() > SMALL_BYTES);
        assert!(!is_too_complex(text.as_bytes()));
        let objects = format!("[{}{{}}]", "{},".repeat(2 << 20));
        assert!(is_too_complex(objects.as_bytes()));
        assert!(!is_too_complex("{},".repeat(1 << 20).as_bytes()));
    }
}
