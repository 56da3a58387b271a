//! The reasons' codes: one byte stands for a reason's name in what gateways tell.
//!
//! The names are those of metrics, access log and docs. A control plane may meet a code of a gateway
//! newer than itself, and then has no name for it.

/// Names by code. Only ever appended to: a code keeps its meaning in all versions. 0: not told.
pub const NAMES: [&str; 39] = [
    "",
    "prefix",
    "recent",
    "predicted",
    "load_over_prefix",
    "hot_spot",
    "session",
    "ramp",
    "load",
    "no_replica",
    "pinned",
    "off",
    "method",
    "path",
    "content_type",
    "content_encoding",
    "no_body",
    "body_too_large",
    "chunked_too_large",
    "no_head",
    "unknown_model",
    "no_table",
    "stale_table",
    "profile_missing",
    "profile_broken",
    "aborted",
    "invalid_json",
    "invalid_request",
    "multimodal",
    "prompt_embeds",
    "stored_history",
    "truncated",
    "request_template",
    "no_template",
    "predicted_only",
    "template_error",
    "template_limit",
    "too_complex",
    "unsupported",
];

/// A reason's code; 0 for a name that has none.
#[must_use]
pub fn code(name: &str) -> u8 {
    let at = NAMES.iter().position(|known| *known == name);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
}

/// A code's name; `None` for 0 and for codes of later versions.
#[must_use]
pub fn name(code: u8) -> Option<&'static str> {
    let name = NAMES.get(usize::from(code)).copied()?;
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn codes_and_names_are_each_others() {
        for (at, known) in NAMES.iter().enumerate().skip(1) {
            let code = code(known);
            assert_eq!(usize::from(code), at, "{known}");
            assert_eq!(name(code), Some(*known));
        }
        assert_eq!((code(""), code("luck")), (0, 0));
        assert_eq!((name(0), name(u8::MAX)), (None, None));
    }

    /// What versions before said must be read the same: these never move.
    #[test]
    fn codes_stay() {
        for (code, reason) in [
            (1, "prefix"),
            (8, "load"),
            (25, "aborted"),
            (38, "unsupported"),
        ] {
            assert_eq!(name(code), Some(reason));
        }
    }
}
