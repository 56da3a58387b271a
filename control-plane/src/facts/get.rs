//! A small answer of an engine.

use std::time::Duration;

/// Why there is none.
#[derive(Debug)]
pub(super) enum GetError {
    /// No whole answer came in time.
    Unreachable,
    /// Another status than success.
    Status(u16),
    /// Longer than allowed, or not what it should be.
    NotReadable,
}

/// `GET url`, with a bearer token if there is one.
pub(super) async fn get(
    client: &reqwest::Client,
    url: &str,
    key: Option<&str>,
    timeout: Duration,
    bytes_max: usize,
) -> Result<Vec<u8>, GetError> {
    let mut request = client.get(url).timeout(timeout);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let response = request.send().await;
    let mut response = response.map_err(|_| GetError::Unreachable)?;
    if !response.status().is_success() {
        return Err(GetError::Status(response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| GetError::Unreachable)? {
        if body.len() + chunk.len() > bytes_max {
            return Err(GetError::NotReadable);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
