//! Forms of names that others define: the DNS's, Kubernetes' and URLs'. What has not the form can never
//! work, and is told at once, not by a look-up that fails for ever.
//!
//! Each check says what is wrong, for people, and what to write instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest name in the DNS, without a dot at its end.
const NAME_MAX: usize = 253;
/// Longest label of such a name; also longest name of a Kubernetes label, and of its value.
const LABEL_MAX: usize = 63;
/// Longest name of a container's port.
const PORT_NAME_MAX: usize = 15;

/// What a check says.
pub(super) type Checked = Result<(), String>;

fn holds(fine: bool, why: impl FnOnce() -> String) -> Checked {
    if fine { Ok(()) } else { Err(why()) }
}

/// A name to be looked up, also one of services (`_http._tcp.vllm.models.svc`).
pub(super) fn dns_name(text: &str) -> Checked {
    holds(text.parse::<IpAddr>().is_err(), || {
        "is an address, not a name: list it under `replicas`".to_owned()
    })?;
    host_name(text)
}

/// A host's name: labels of letters, digits, `-` and `_` (which the DNS itself allows).
fn host_name(text: &str) -> Checked {
    let name = text.strip_suffix('.').unwrap_or(text);
    holds(name.len() <= NAME_MAX, || {
        format!("is longer than {NAME_MAX} characters")
    })?;
    name.split('.').try_for_each(|label| {
        holds(!label.is_empty(), || {
            "has an empty part: expected one dot between parts, and none before the first"
                .to_owned()
        })?;
        holds(label.len() <= LABEL_MAX, || {
            format!("has a part longer than {LABEL_MAX} characters: {label:?}")
        })?;
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if let Some(odd) = label.chars().find(|&c| !known(c)) {
            let hint = match odd {
                ':' | '/' => ": expected the name alone, without a scheme, port or path",
                odd if !odd.is_ascii() => ": expected its ASCII form, which begins with xn--",
                _ => ": expected letters, digits, - and _, with dots between parts",
            };
            return Err(format!("has {odd:?} in it{hint}"));
        }
        holds(!label.starts_with('-') && !label.ends_with('-'), || {
            format!("has a part that begins or ends with -: {label:?}")
        })
    })
}

/// The host of a URL-like address: a name, an IPv4 address, or an IPv6 address in brackets.
pub(super) fn is_host(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(is_ipv6),
        // Nothing but digits and dots is an address, or nothing at all.
        None if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
            text.parse::<Ipv4Addr>().is_ok()
        }
        None => host_name(text).is_ok(),
    }
}

/// Also with a zone, as link-local ones have.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
    let is_zone = !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_graphic() && b != b']');
    is_zone && address.parse::<Ipv6Addr>().is_ok()
}

/// A namespace of Kubernetes: one label of the DNS.
pub(super) fn namespace(text: &str) -> Checked {
    let hint = "expected lower-case letters, digits and -, like llm-serving";
    holds(text.len() <= LABEL_MAX, || {
        format!("is longer than {LABEL_MAX} characters: {hint}")
    })?;
    holds(is_lower_label(text), || format!("is no namespace: {hint}"))
}

/// An object of Kubernetes whose name is one of the DNS.
pub(super) fn object_name(text: &str) -> Checked {
    let hint = "expected lower-case letters, digits, - and dots, like vllm-llama";
    holds(text.len() <= NAME_MAX, || {
        format!("is longer than {NAME_MAX} characters: {hint}")
    })?;
    holds(text.split('.').all(is_lower_label), || {
        format!("is no object's name: {hint}")
    })
}

fn is_lower_label(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(|b| lower(b) || b == b'-')
        && text.bytes().next().is_some_and(lower)
        && text.bytes().last().is_some_and(lower)
}

/// The name of a container's port.
pub(super) fn port_name(text: &str) -> Checked {
    let fine = text.len() <= PORT_NAME_MAX
        && is_lower_label(text)
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.contains("--");
    holds(fine, || {
        format!(
            "is no port's name: expected a number, or at most {PORT_NAME_MAX} lower-case letters, digits and single -, like http"
        )
    })
}

/// A path on a server, without a query.
pub(super) fn url_path(text: &str) -> Checked {
    let hint = "expected a path like /metrics";
    holds(text.starts_with('/'), || {
        format!("does not begin with /: {hint}")
    })?;
    let odd = |c: &char| !c.is_ascii_graphic() || r#"?#"<>\^`{|}"#.contains(*c);
    match text.chars().find(odd) {
        Some(odd @ ('?' | '#')) => Err(format!("has {odd:?} in it: {hint}, without a query")),
        Some(odd) => Err(format!("has {odd:?} in it: {hint}")),
        None => Ok(()),
    }
}

/// The name of a label in Kubernetes: `app`, or with a prefix `app.kubernetes.io/name`.
pub(super) fn label_key(text: &str) -> Checked {
    let (prefix, name) = text
        .rsplit_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let fine = !name.is_empty() && is_label_part(name);
    let prefix_fine = prefix.is_none_or(|prefix| object_name(prefix).is_ok());
    holds(fine && prefix_fine, || {
        format!("{text:?} is no label's name: expected one like app or app.kubernetes.io/name")
    })
}

/// The value of a label in Kubernetes.
pub(super) fn label_value(text: &str) -> Checked {
    holds(is_label_part(text), || {
        format!(
            "{text:?} is no label's value: expected at most {LABEL_MAX} letters, digits, -, _ and dots, with a letter \
             or digit at both ends"
        )
    })
}

/// Empty, or with a letter or digit at both ends.
fn is_label_part(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_none_or(|b| b.is_ascii_alphanumeric());
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    text.len() <= LABEL_MAX
        && text.bytes().all(known)
        && edge(text.bytes().next())
        && edge(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(of: fn(&str) -> Checked, fine: &[&str], wrong: &[(&str, &str)]) {
        for text in fine {
            assert_eq!(of(text), Ok(()), "{text:?}");
        }
        for (text, part) in wrong {
            let said = of(text).expect_err(text);
            assert!(said.contains(part), "{text:?}: {said}");
        }
    }

    #[test]
    fn names_of_the_dns() {
        let longest = format!(
            "{}.{}.{}.{}",
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63),
            "d".repeat(61)
        );
        let longer = format!("{longest}d");
        let label = format!("{}.svc", "a".repeat(64));
        check(
            dns_name,
            &[
                "vllm",
                "vllm.models.svc",
                "vllm.models.svc.",
                "_http._tcp.vllm.models.svc",
                "xn--bcher-kva.example",
                "1a",
                &longest,
            ],
            &[
                (".", "an empty part"),
                ("a..b", "an empty part"),
                (".a", "an empty part"),
                ("a b", "' ' in it"),
                ("vllm:8000", "without a scheme, port or path"),
                ("http://vllm", "without a scheme"),
                ("bücher", "xn--"),
                ("-a", "begins or ends with -"),
                ("a-.b", "begins or ends with -"),
                ("10.0.0.1", "an address"),
                ("::1", "an address"),
                (&label, "longer than 63"),
                (&longer, "longer than 253"),
            ],
        );
    }

    #[test]
    fn hosts() {
        for text in [
            "a",
            "10.0.0.7",
            "[::1]",
            "[fe80::1%eth0]",
            "vllm-0.vllm.models.svc",
        ] {
            assert!(is_host(text), "{text}");
        }
        for text in [
            "",
            "a b",
            "10.0.0",
            "256.0.0.1",
            "[::1",
            "[::g]",
            "[fe80::1%]",
            "::1",
            "a..b",
        ] {
            assert!(!is_host(text), "{text}");
        }
    }

    #[test]
    fn names_of_kubernetes() {
        let long = "a".repeat(64);
        check(
            namespace,
            &["default", "llm-1", "0", &long[1..]],
            &[
                ("Models", "is no namespace"),
                ("a.b", "no namespace"),
                ("-a", "no namespace"),
                ("a_b", "like llm-serving"),
                (&long, "longer than 63"),
            ],
        );
        check(
            object_name,
            &["vllm", "a.b-c.0"],
            &[
                ("a..b", "no object's name"),
                ("A", "no object's name"),
                ("a b", "no object's name"),
                ("a.", "no object's"),
            ],
        );
        check(
            port_name,
            &["http", "http-8000", "a"],
            &[
                ("HTTP", "like http"),
                ("a--b", "single -"),
                ("8000", "a number"),
                ("sixteen-letters-", "15"),
                ("abcdefghijklmnop", "15"),
            ],
        );
    }

    #[test]
    fn paths() {
        check(
            url_path,
            &["/", "/metrics", "/a/b-c_d.e~f%20g", "/a:b@c;d=e,f"],
            &[
                ("metrics", "begin with /"),
                ("/a b", "' ' in it"),
                ("/a?b", "without a query"),
                ("/a#b", "without a query"),
                ("/ä", "'ä'"),
                ("/a\n", "'\\n'"),
                ("http://a/b", "begin with /"),
            ],
        );
    }
}
