//! Which requests are held, from their headers alone.
//!
//! Invariant: what is held never outgrows Envoy's buffer limit, for then Envoy answers 413 in our
//! name. A body's length is known from `content-length`, which Envoy enforces. Without it, a piece
//! is put into the buffer before we see it, so the room for one piece must be left: over HTTP/2 a
//! frame, over HTTP/1.1 as much as one read of the connection can bring (its buffer limit). Where
//! there is no such room, only a body that comes in one piece is looked at: that one is never put
//! into the buffer.

use prefix_picker_core::prompt::Api;

use crate::config::Config;
use crate::host::Host;
use crate::reason::Reason;

/// Room left for one piece of an HTTP/2 body of unknown length, in bytes: several frames.
const FRAMES_BYTES: u64 = 128 << 10;

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Hold it until its body is complete, but wait on no more than `cap` bytes.
    Hold {
        /// Its interface.
        api: Api,
        /// Bytes of an incomplete body at most.
        cap: u64,
        /// The body's length was not announced.
        unknown_length: bool,
    },
    /// Let it go at once.
    Pass {
        /// Why.
        reason: Reason,
        /// It is for a model all the same, and about this long: pick by load. `None`: not ours.
        body_bytes: Option<u64>,
    },
}

/// Looks at the request's headers.
pub fn check(host: &impl Host, config: &Config, end_of_stream: bool) -> Gate {
    let not_ours = |reason| Gate::Pass {
        reason,
        body_bytes: None,
    };
    if host.request_header(":method").as_deref() != Some("POST") {
        return not_ours(Reason::Method);
    }
    let path = host.request_header(":path").unwrap_or_default();
    let Some(api) = api_of(&path, &config.path_prefixes) else {
        return not_ours(Reason::Path);
    };
    if !host
        .request_header("content-type")
        .is_some_and(|v| is_json(&v))
    {
        return not_ours(Reason::ContentType);
    }
    let length = host
        .request_header("content-length")
        .and_then(|v| v.parse::<u64>().ok());
    if end_of_stream || length == Some(0) {
        return not_ours(Reason::NoBody);
    }
    let by_load = |reason| Gate::Pass {
        reason,
        body_bytes: Some(length.unwrap_or(0)),
    };
    let encoding = host.request_header("content-encoding");
    if encoding.is_some_and(|v| !v.is_empty() && !v.eq_ignore_ascii_case("identity")) {
        return by_load(Reason::ContentEncoding);
    }
    match length {
        Some(length) if length > config.max_body_bytes => by_load(Reason::BodyTooLarge),
        Some(_) => Gate::Hold {
            api,
            cap: config.max_body_bytes,
            unknown_length: false,
        },
        None => Gate::Hold {
            api,
            cap: cap_of_unknown_length(host, config),
            unknown_length: true,
        },
    }
}

fn cap_of_unknown_length(host: &impl Host, config: &Config) -> u64 {
    let protocol = host.property(&["request", "protocol"]).unwrap_or_default();
    if protocol.starts_with(b"HTTP/1") || protocol.is_empty() {
        config.max_chunked_body_bytes
    } else {
        config.max_body_bytes.saturating_sub(FRAMES_BYTES)
    }
}

fn api_of(path: &str, prefixes: &[String]) -> Option<Api> {
    prefixes
        .iter()
        .find_map(|prefix| Api::of_path(path.strip_prefix(prefix.as_str())?))
}

/// `application/json` or `application/<something>+json`, with or without parameters.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    let subtype = essence.strip_prefix("application/");
    subtype.is_some_and(|s| s == "json" || s.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_by_its_content_type() {
        for yes in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/x+json",
        ] {
            assert!(is_json(yes), "{yes}");
        }
        for no in [
            "",
            "text/json",
            "multipart/form-data; boundary=x",
            "application/jsonl",
        ] {
            assert!(!is_json(no), "{no}");
        }
    }

    #[test]
    fn prefixes_are_stripped() {
        let prefixes = ["/openai".to_owned(), String::new()];
        assert_eq!(
            api_of("/openai/v1/completions", &prefixes),
            Some(Api::Completions)
        );
        assert_eq!(
            api_of("/v1/chat/completions?a=b", &prefixes),
            Some(Api::ChatCompletions)
        );
        assert_eq!(api_of("/openai/tokenize", &prefixes), Some(Api::Tokenize));
        assert_eq!(api_of("/v1/messages/count_tokens", &prefixes), None);
        assert_eq!(api_of("/other/v1/completions", &prefixes), None);
        assert_eq!(api_of("/v1/completions", &prefixes[..1]), None);
    }
}
