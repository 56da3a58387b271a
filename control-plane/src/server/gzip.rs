//! Large answers, packed for who asks for it.

use std::io::Write as _;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Shorter ones are sent as they are.
const BYTES_MIN: usize = 1_024;

/// Bytes, packed or not.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    is_packed: bool,
}

/// Does who asks take gzip? (RFC 9110, 12.5.3)
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|v| v.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = parts
            .filter_map(|part| part.strip_prefix("q="))
            .any(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0));
        is_gzip && !refused
    })
}

/// Packs them, if they are to be and it is worth it. Takes about a millisecond for 100 KB.
///
/// # Errors
/// None in practice: it writes to memory.
pub(super) fn packed(bytes: Vec<u8>, packs: bool) -> std::io::Result<Packed> {
    let is_packed = packs && bytes.len() >= BYTES_MIN;
    let bytes = if is_packed {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&bytes)?;
        encoder.finish()?
    } else {
        bytes
    };
    Ok(Packed { bytes, is_packed })
}

/// What it says of itself in headers.
struct Coding(bool);

impl IntoResponseParts for Coding {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Self::Error> {
        let headers = parts.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if self.0 {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(parts)
    }
}

impl IntoResponse for Packed {
    fn into_response(self) -> Response {
        (Coding(self.is_packed), self.bytes).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_it() {
        for (value, expected) in [
            ("gzip", true),
            ("GZIP;q=0.5", true),
            ("br, deflate, gzip;q=1.0", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("br", false),
            ("identity, *", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(is_accepted(&headers), expected, "{value}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }
}
