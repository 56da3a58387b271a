//! A page of a control plane or of Envoy.

use std::fmt;
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

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoPage {
    /// A connection stood, and was not answered in time.
    pub(super) late: bool,
    /// There was no connection.
    pub(super) nobody: bool,
    /// For people.
    why: String,
}

impl fmt::Display for NoPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl NoPage {
    /// Something answers, and it is not the page.
    pub(super) fn other(why: String) -> Self {
        Self {
            late: false,
            nobody: false,
            why,
        }
    }
}

/// `GET url`.
pub(super) async fn fetch(
    client: &reqwest::Client,
    url: &str,
    timeout: Duration,
) -> Result<Page, NoPage> {
    let failed = |error: reqwest::Error| {
        let late = error.is_timeout() && !error.is_connect();
        let why = if late {
            format!(
                "{url}: connections are accepted, but not answered within {} s",
                timeout.as_secs()
            )
        } else {
            format!("{url}: nobody answers")
        };
        let nobody = error.is_connect();
        NoPage { late, nobody, why }
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
            let why = format!("{url}: more than {BYTES_MAX} bytes");
            return Err(NoPage::other(why));
        }
        page.body.extend_from_slice(&chunk);
    }
    Ok(page)
}
