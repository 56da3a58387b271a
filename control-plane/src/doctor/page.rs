//! A page of a control plane or of Envoy.

use std::time::Duration;

/// Most bytes of a page: configurations of large meshes, metrics of thousands of replicas.
const BYTES_MAX: usize = 64 << 20;

/// A page.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) status: u16,
    /// The `server` header.
    pub(super) server: String,
    pub(super) body: Vec<u8>,
}

impl Page {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Its JSON; null where it is no such.
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// `GET url`, or for people why there is no answer.
pub(super) async fn fetch(
    client: &reqwest::Client,
    url: &str,
    timeout: Duration,
) -> Result<Page, String> {
    let failed = |error: reqwest::Error| {
        if error.is_timeout() && !error.is_connect() {
            format!(
                "{url}: connections are accepted, but not answered within {} s",
                timeout.as_secs()
            )
        } else {
            format!("{url}: nobody answers")
        }
    };
    let request = client.get(url).timeout(timeout);
    let mut response = request.send().await.map_err(failed)?;
    let server = response.headers().get(reqwest::header::SERVER);
    let server = server.and_then(|value| value.to_str().ok());
    let mut page = Page {
        status: response.status().as_u16(),
        server: server.unwrap_or_default().to_owned(),
        body: Vec::new(),
    };
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if page.body.len() + chunk.len() > BYTES_MAX {
            return Err(format!("{url}: more than {BYTES_MAX} bytes"));
        }
        page.body.extend_from_slice(&chunk);
    }
    Ok(page)
}
