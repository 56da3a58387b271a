//! Free ports, and configuration files moved onto them.

use std::net::TcpListener;

use anyhow::{Result, bail};

/// `count` different TCP ports of the loopback that were free a moment ago.
///
/// # Errors
/// The system has none to give.
pub fn free(count: usize) -> Result<Vec<u16>> {
    let held = (0..count)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(held
        .iter()
        .map(|l| l.local_addr().map(|a| a.port()))
        .collect::<Result<Vec<_>, _>>()?)
}

/// The first of `count` TCP ports of the loopback in a row that were free a moment ago.
///
/// # Errors
/// None were found.
pub fn free_in_a_row(count: u16) -> Result<u16> {
    for _ in 0..100 {
        let held = TcpListener::bind(("127.0.0.1", 0))?;
        let first = held.local_addr()?.port();
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (1..count).all(|n| first.checked_add(n).is_some_and(is_free)) {
            return Ok(first);
        }
    }
    bail!("no {count} free ports in a row")
}

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

    #[test]
    fn free_ports_differ() {
        let mut ports = free(20).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
