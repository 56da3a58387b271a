//! The file's text -> what it says, or where it is not YAML, what is wrong there and what to do.
//!
//! The parser's own words are for programs that use it; here they are said for whoever wrote the file.

use std::net::Ipv6Addr;

use serde_json::Value;
use serde_saphyr::{Error, MessageFormatter as _, UserMessageFormatter};

/// What the parser says of mistakes that are often made, and what to do about them.
const HINTS: [(&str, &str); 8] = [
    ("\\u{", "remove it"),
    ("tab", "indent with spaces, not tabs"),
    (
        "mapping values",
        "indent by the same number of spaces as the line above, and quote a text that has a colon and a space in it",
    ),
    (
        "unclosed quote",
        "close it, or quote a text that has a quote in it with the other kind",
    ),
    ("illegal placement of ':'", "close each [ and { above"),
    ("bracket", "close each [ and {, and no more of them"),
    (
        "indent",
        "indent what belongs together by the same number of spaces",
    ),
    ("unexpected character", "quote a text that begins with it"),
];

const EMPTY: &str = "the file is empty: expected the fields of the configuration";

/// Reads one document.
///
/// # Errors
/// Where it is not YAML: the place, what is wrong, and what to do.
pub(super) fn read(text: &str) -> Result<Value, String> {
    // As YAML 1.2 has it: `y`, `on` and their like are words.
    let options = serde_saphyr::options! { strict_booleans: true };
    let read = serde_saphyr::from_str_with_options(text, options);
    if matches!(read, Ok(Value::Null)) {
        return Err(EMPTY.to_owned());
    }
    read.map_err(|error| {
        let what = what(error.without_snippet());
        let Some(at) = error.location().filter(|at| at.line() > 0) else {
            return what;
        };
        // It is noticed where the list goes on or ends, if not on the next line.
        let line = usize::try_from(at.line()).unwrap_or(usize::MAX);
        let near = text.lines().take(line).skip(line.saturating_sub(2));
        let quote = match near.filter_map(bare_ipv6).next() {
            Some(address) => format!("; quote an IPv6 address: \"{address}\""),
            None => String::new(),
        };
        format!("line {}, column {}: {what}{quote}", at.line(), at.column())
    })
}

/// An `[::1]:9400` that no quote is before: to YAML it begins a list.
fn bare_ipv6(line: &str) -> Option<&str> {
    line.match_indices('[').find_map(|(at, _)| {
        let (before, rest) = line.split_at_checked(at)?;
        let (ip, port) = rest.strip_prefix('[')?.split_once("]:")?;
        let digits = port.bytes().take_while(u8::is_ascii_digit).count();
        let is_bare = before.ends_with([' ', '[', '{', ',', ':']) || before.is_empty();
        (is_bare && digits > 0 && ip.parse::<Ipv6Addr>().is_ok())
            .then(|| rest.get(..ip.len() + 3 + digits))?
    })
}

fn what(error: &Error) -> String {
    match error {
        Error::Eof { .. } => "it ends too early: close what is open".to_owned(),
        Error::MultipleDocuments { .. } => {
            "a second document begins here: expected one, so remove the --- and what is behind it".to_owned()
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_ref().map(|key| format!("{key:?}"));
            let key = key.as_deref().unwrap_or("a field");
            format!("{key} is there twice: remove one of them")
        }
        Error::UnknownAnchor { .. } => {
            "not YAML: an alias (*name) without an anchor (&name) before it: quote a text that begins with *".to_owned()
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "more, deeper or oftener repeated than a configuration may be: write it with fewer aliases and levels".to_owned()
        }
        other => {
            let said = UserMessageFormatter.format_message(other);
            let said = said.trim().replace(char::is_control, "?");
            let hint = HINTS.iter().find(|(part, _)| said.to_lowercase().contains(part));
            match hint {
                Some((_, hint)) => format!("not YAML: {said}: {hint}"),
                None => format!("not YAML: {said}"),
            }
        }
    }
}
