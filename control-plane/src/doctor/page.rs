//! A page of a control plane or of Envoy.

use std::time::Duration;

/// Most bytes of a page: configurations of large meshes, metrics of thousands of replicas.
const BYTES_MAX: usize = 64 << 20;

/// `GET url`: status and body, or for people why there is none.
pub(super) async fn fetch(
    client: &reqwest::Client,
    url: &str,
    timeout: Duration,
) -> Result<(u16, Vec<u8>), String> {
    let failed = |error: reqwest::Error| {
        let what = if error.is_timeout() {
            "no answer in time"
        } else {
            "nobody answers"
        };
        format!("{url}: {what}")
    };
    let request = client.get(url).timeout(timeout);
    let mut response = request.send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > BYTES_MAX {
            return Err(format!("{url}: more than {BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, body))
}
