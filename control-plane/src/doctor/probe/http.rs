//! HTTP with one replica.

use std::fmt;
use std::time::Duration;

use prefix_picker_core::prompt::Api;
use serde_json::Value;

use super::names::{Names, NoName};
use super::{ANSWER_TIMEOUT, REQUEST_TIMEOUT};
use crate::config::{PoolConfig, ReplicaConfig};
use crate::facts::models::Models;

/// Most bytes of an answer: metrics are the longest.
const BYTES_MAX: usize = 8 << 20;
/// Most characters of an error's text that are told.
const TOLD_CHARS: usize = 160;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// No connection.
    Unreachable,
    /// None in time.
    Late(Duration),
    /// Another status than success, and the text.
    Status(u16, String),
    /// A redirect, which is not followed: the status and where it leads.
    Moved(u16, String),
    /// The address has a name that does not resolve.
    NoName(NoName),
    /// A web page (HTML) in place of what it should be.
    Page,
    /// Not what it should be.
    Unreadable,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("nobody answers"),
            Self::Late(time) => write!(f, "no answer within {} s", time.as_secs()),
            Self::Status(status, text) if text.is_empty() => write!(f, "status {status}"),
            Self::Status(status, text) => write!(f, "status {status}: {text}"),
            Self::Moved(status, to) => write!(f, "status {status}, a redirect to {to}"),
            Self::NoName(name) => name.fmt(f),
            Self::Page => f.write_str("a web page (HTML) answers"),
            Self::Unreadable => f.write_str("not the answer that it should be"),
        }
    }
}

/// One replica.
pub(super) struct Http<'a> {
    client: &'a reqwest::Client,
    names: &'a Names,
    base: String,
    key: Option<String>,
    rank: Option<u16>,
}

impl<'a> Http<'a> {
    pub(super) async fn new(
        pool: &PoolConfig,
        replica: &ReplicaConfig,
        client: &'a reqwest::Client,
        names: &'a Names,
    ) -> Self {
        let key = match &pool.api_key_file {
            Some(file) => tokio::fs::read_to_string(file).await.ok(),
            None => None,
        };
        Self {
            client,
            names,
            base: replica.api.clone(),
            key: key.map(|key| key.trim().to_owned()),
            rank: replica.data_parallel_rank,
        }
    }

    async fn take(
        &self,
        url: &str,
        mut request: reqwest::RequestBuilder,
        time: Duration,
    ) -> Result<Vec<u8>, Failed> {
        if let Some(name) = self.names.lost(url) {
            return Err(Failed::NoName(name.clone()));
        }
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let failed = |error: reqwest::Error| {
            if error.is_timeout() && !error.is_connect() {
                Failed::Late(time)
            } else {
                Failed::Unreachable
            }
        };
        let mut response = request.timeout(time).send().await.map_err(failed)?;
        let status = response.status();
        if status.is_redirection() {
            let to = response.headers().get(reqwest::header::LOCATION);
            let to = to.map_or(&[][..], |to| to.as_bytes());
            return Err(Failed::Moved(status.as_u16(), destination(url, to)));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > BYTES_MAX {
                return Err(Failed::Unreadable);
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            Ok(body)
        } else {
            Err(Failed::Status(status.as_u16(), message(&body)))
        }
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, Failed> {
        self.take(url, self.client.get(url), ANSWER_TIMEOUT).await
    }

    pub(super) async fn status(&self, url: &str) -> Result<(), Failed> {
        self.get(url).await.map(drop)
    }

    pub(super) async fn text(&self, url: &str) -> Result<String, Failed> {
        String::from_utf8(self.get(url).await?).map_err(|_| Failed::Unreadable)
    }

    pub(super) async fn api(&self, path: &str) -> Result<Vec<u8>, Failed> {
        self.get(&format!("{}{path}", self.base)).await
    }

    pub(super) async fn version(&self) -> Option<String> {
        let bytes = self.api("/version").await.ok()?;
        let told: Value = serde_json::from_slice(&bytes).ok()?;
        Some(told.get("version")?.as_str()?.chars().take(100).collect())
    }

    pub(super) async fn models(&self) -> Result<Models, Failed> {
        let bytes = self.api("/v1/models").await?;
        let page = is_page(&String::from_utf8_lossy(&bytes));
        let otherwise = if page {
            Failed::Page
        } else {
            Failed::Unreadable
        };
        Models::parse(&bytes).ok_or(otherwise)
    }

    async fn post(&self, path: &str, body: &Value, time: Duration) -> Result<Vec<u8>, Failed> {
        let url = format!("{}{path}", self.base);
        let mut request = self.client.post(&url).json(body);
        if let Some(rank) = self.rank {
            request = request.header("x-data-parallel-rank", rank.to_string());
        }
        self.take(&url, request, time).await
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn ask(&self, api: Api, body: &Value) -> Result<Value, Failed> {
        let bytes = self.post(path(api), body, REQUEST_TIMEOUT).await?;
        serde_json::from_slice(&bytes).map_err(|_| Failed::Unreadable)
    }

    /// Sends a request for a stream; its `usage`, if it had one.
    pub(super) async fn ask_stream(&self, api: Api, body: &Value) -> Result<Option<Value>, Failed> {
        let bytes = self.post(path(api), body, REQUEST_TIMEOUT).await?;
        let text = String::from_utf8_lossy(&bytes);
        // What matters comes last.
        let chunks = text
            .lines()
            .rev()
            .filter_map(|line| line.strip_prefix("data:"));
        let chunks = chunks.filter_map(|data| serde_json::from_str::<Value>(data.trim()).ok());
        let mut usages = chunks.filter_map(|chunk| chunk.get("usage").cloned());
        Ok(usages.find(Value::is_object))
    }

    /// The engine's own tokens of a body: by `/render`, or else `/tokenize`.
    pub(super) async fn tokens_of(
        &self,
        api: Api,
        body: &Value,
    ) -> Option<(Vec<u32>, &'static str)> {
        if let Ok(ids) = self.render(api, body).await {
            return Some((ids, "/render"));
        }
        Some((self.tokenize(body).await.ok()?, "/tokenize"))
    }

    /// The same of a chat, and why not.
    pub(super) async fn rendered(&self, body: &Value) -> Result<Vec<u32>, Failed> {
        match self.render(Api::ChatCompletions, body).await {
            // There is none, or it is switched off.
            Err(Failed::Status(403 | 404 | 405 | 501, _)) => self.tokenize(body).await,
            answer => answer,
        }
    }

    async fn render(&self, api: Api, body: &Value) -> Result<Vec<u32>, Failed> {
        let path = format!("{}/render", path(api));
        let bytes = self.post(&path, body, ANSWER_TIMEOUT).await?;
        let told: Value = serde_json::from_slice(&bytes).map_err(|_| Failed::Unreadable)?;
        // Completions give a list, one for each prompt.
        let first = told.get(0).unwrap_or(&told);
        ids(first.get("token_ids"))
    }

    pub(super) async fn tokenize(&self, body: &Value) -> Result<Vec<u32>, Failed> {
        let bytes = self.post("/tokenize", body, ANSWER_TIMEOUT).await?;
        let told: Value = serde_json::from_slice(&bytes).map_err(|_| Failed::Unreadable)?;
        ids(told.get("tokens"))
    }
}

fn path(api: Api) -> &'static str {
    match api {
        Api::Completions => "/v1/completions",
        Api::Embeddings => "/v1/embeddings",
        _ => "/v1/chat/completions",
    }
}

fn ids(told: Option<&Value>) -> Result<Vec<u32>, Failed> {
    let told = told.ok_or(Failed::Unreadable)?;
    serde_json::from_value(told.clone()).map_err(|_| Failed::Unreadable)
}

/// Whether a text is HTML, and neither JSON nor metrics.
pub(in crate::doctor) fn is_page(text: &str) -> bool {
    text.trim_start_matches('\u{feff}')
        .trim_start()
        .starts_with('<')
}

/// Where a redirect leads, without what may be secret there (a login, a query), shortened.
fn destination(from: &str, location: &[u8]) -> String {
    let location = String::from_utf8_lossy(location);
    let to = reqwest::Url::parse(from).and_then(|from| from.join(&location));
    let told = match to {
        Ok(mut to) if !location.is_empty() => {
            // They only fail where there is no host.
            let _ = to.set_username("");
            let _ = to.set_password(None);
            to.set_query(None);
            to.set_fragment(None);
            to.to_string()
        }
        _ => "nowhere".to_owned(),
    };
    told.chars().take(TOLD_CHARS).collect()
}

/// What an error says, shortened.
fn message(body: &[u8]) -> String {
    let told: Option<Value> = serde_json::from_slice(body).ok();
    let found = told.as_ref().and_then(|told| {
        let named = ["/error/message", "/message", "/detail"];
        named.iter().find_map(|path| told.pointer(path)?.as_str())
    });
    let text = String::from_utf8_lossy(body);
    let text = found.unwrap_or(text.trim());
    text.chars().take(TOLD_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations() {
        let from = "http://[::1]:1/v1/models";
        for (location, to) in [
            ("http://b:2/v1/models", "http://b:2/v1/models"),
            ("/login?next=x#y", "http://[::1]:1/login"),
            ("https://a:secret@b/?token=x", "https://b/"),
            ("", "nowhere"),
            ("http://[", "nowhere"),
        ] {
            assert_eq!(destination(from, location.as_bytes()), to);
        }
        let long = format!("/{}", "x".repeat(9999));
        assert_eq!(destination(from, long.as_bytes()).len(), TOLD_CHARS);
    }
}
