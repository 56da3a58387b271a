//! Configuration files moved onto other ports.

/// `text` with every whole number that is a key of `moves` replaced by its value, all at once
/// (so that a chain 1 -> 2, 2 -> 3 moves nothing twice).
#[must_use]
pub fn substitute(text: &str, moves: &[(u16, u16)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        let part_of_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            || after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let moved = digits
            .parse::<u16>()
            .ok()
            .and_then(|n| moves.iter().find(|(k, _)| *k == n));
        out.push_str(before);
        match moved {
            Some((_, to)) if !part_of_word => out.push_str(&to.to_string()),
            _ => out.push_str(digits),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_move_at_once() {
        let text = "port_value: 8101, 18101, a8101, 127.0.0.1:8101@5557 8102\n";
        let got = substitute(text, &[(8101, 8102), (8102, 9), (5557, 40000)]);
        assert_eq!(
            got,
            "port_value: 8102, 18101, a8101, 127.0.0.1:8102@40000 9\n"
        );
    }
}
