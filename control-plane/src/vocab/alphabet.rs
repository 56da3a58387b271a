//! GPT-2's alphabet: a printable character for each of the 256 bytes.

/// Bytes that stand for themselves.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The byte behind a character: the printable ones are themselves, the others follow from U+0100
/// in order.
pub(super) fn byte_of(char: char) -> Option<u8> {
    let code = u32::from(char);
    match u8::try_from(code) {
        Ok(byte) => is_printable(byte).then_some(byte),
        Err(_) => {
            let nth = usize::try_from(code.checked_sub(256)?).ok()?;
            (0..=u8::MAX).filter(|byte| !is_printable(*byte)).nth(nth)
        }
    }
}

/// A token's bytes. Where it has characters of another alphabet it stands for its own text, as in
/// the tokenizer's own decoder.
pub(super) fn bytes_of(token: &str) -> Vec<u8> {
    token
        .chars()
        .map(byte_of)
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_gpt_2s() {
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('Ā'), Some(0));
        assert_eq!(byte_of('Ń'), Some(0xad));
        assert_eq!(byte_of('ń'), None);
        assert_eq!(byte_of(' '), None);
        let mut all: Vec<u8> = ('\0'..='\u{200}').filter_map(byte_of).collect();
        all.sort_unstable();
        assert_eq!(all, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn a_token_of_another_alphabet_is_its_own_text() {
        assert_eq!(bytes_of("ĠÃ©"), b" \xc3\xa9");
        assert_eq!(bytes_of("<｜x｜>"), "<｜x｜>".as_bytes());
    }
}
