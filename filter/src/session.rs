//! Which session a request belongs to, as the client says.
//!
//! A session decides among replicas that are equal otherwise, and where a prompt's holdings cannot be
//! told. What a client sends is only ever hashed: it names no replica, and a forged value is another
//! session.

use prefix_picker_core::prompt::ParsedRequest;
use prefix_picker_core::recent::digest;

use crate::config::Config;
use crate::host::Host;

/// Headers that name a session, the first that is there counts: ours, the usual one, and those of
/// LiteLLM, Claude Code, OpenCode and Codex.
pub const HEADERS: [&str; 6] = [
    "x-prefix-picker-session",
    "x-session-id",
    "x-litellm-session-id",
    "x-claude-code-session-id",
    "x-opencode-session",
    "session_id",
];
/// Of a longer name so many bytes count.
const NAME_MAX: usize = 256;

/// The session's hash by the request's headers, which are asked first: those of [`HEADERS`], then the
/// baggage's `session.id`. Only while they are held.
pub fn of_headers(host: &impl Host) -> Option<u64> {
    let header = |name: &&str| host.request_header(name).filter(|v| !v.is_empty());
    let named = HEADERS.iter().find_map(header);
    let named = named.or_else(|| in_baggage(&host.request_header("baggage")?))?;
    Some(hash(&named))
}

/// The session's hash by what was read of the body, where the headers name none: its `session_id`, or
/// its `user` where that is configured.
pub fn of_body(config: &Config, body: &ParsedRequest) -> Option<u64> {
    let user = || body.user.as_deref().filter(|_| config.session_from_user);
    body.session_id.as_deref().or_else(user).map(hash)
}

fn hash(named: &str) -> u64 {
    let bytes = named.as_bytes();
    digest("session", bytes.get(..NAME_MAX).unwrap_or(bytes))
}

/// `session.id` of a W3C baggage header: `key=value;property,key=value`.
fn in_baggage(baggage: &str) -> Option<String> {
    let member = |member: &str| {
        let (name, value) = member.split(';').next()?.split_once('=')?;
        let value = value.trim();
        let ours = name.trim() == "session.id" && !value.is_empty();
        ours.then(|| value.to_owned())
    };
    baggage.split(',').find_map(member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::testing::FakeHost;
    use prefix_picker_core::prompt::{Api, parse_request};

    fn config(user: bool) -> Config {
        let json = format!(
            r#"{{"control_plane": {{"cluster": "c", "token": "t"}}, "session_from_user": {user}}}"#
        );
        config::parse(json.as_bytes()).unwrap()
    }

    fn key_of(headers: &[(&str, &str)], body: &str, user: bool) -> Option<u64> {
        let host = FakeHost::default();
        let headers = headers.iter().map(|&(n, v)| (n.to_owned(), v.to_owned()));
        *host.request_headers.borrow_mut() = headers.collect();
        let body = parse_request(Api::ChatCompletions, body.as_bytes()).ok();
        of_headers(&host).or_else(|| of_body(&config(user), &body?))
    }

    #[test]
    fn the_first_name_in_order_counts() {
        let named = |name: &str| Some(digest("session", name.as_bytes()));
        let body = r#"{"session_id": "body", "user": "user"}"#;
        let mut headers: Vec<(&str, &str)> = HEADERS.iter().map(|&name| (name, name)).collect();
        headers.push(("baggage", "a=b, session.id = bag ;ttl=3, session.id=second"));
        for at in 0..HEADERS.len() {
            assert_eq!(key_of(&headers[at..], body, true), named(HEADERS[at]));
        }
        assert_eq!(key_of(&headers[HEADERS.len()..], body, true), named("bag"));
        assert_eq!(
            key_of(&[("baggage", "x=y,session.id=")], body, true),
            named("body")
        );
        assert_eq!(key_of(&[], r#"{"user": "user"}"#, true), named("user"));
        assert_eq!(key_of(&[], r#"{"user": "user"}"#, false), None);
        assert_eq!(key_of(&[("x-session-id", "")], "{}", true), None);
        assert_eq!(key_of(&[], "no JSON", true), None);
    }

    #[test]
    fn odd_values_are_only_hashed() {
        let long = "ü".repeat(10_000);
        for value in ["10.0.0.1:8000", "../..", "\u{0}", &long] {
            assert!(key_of(&[("x-session-id", value)], "{}", false).is_some());
        }
        let longer = format!("{long}x");
        let of = |value: &str| key_of(&[("x-session-id", value)], "{}", false);
        assert_eq!(of(&long), of(&longer), "so many bytes count");
    }
}
