//! Asks a running control plane.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::config::is_token;

/// How long an answer may take: it takes milliseconds, but where its machine is busy.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where it is.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Place {
    /// The control plane's address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9400")]
    pub(super) url: String,
}

/// Where it is and who asks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Where {
    #[command(flatten)]
    pub(super) place: Place,
    /// A file with the bearer token
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: PathBuf,
}

/// What it answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Answer {
    /// The answer's JSON, if all went well, else what went wrong.
    pub(super) fn json(&self, url: &str) -> anyhow::Result<Value> {
        let said = match self.body.trim() {
            "" if self.status == 404 => "nothing (is the control plane there?)",
            "" => "nothing",
            said => said,
        };
        anyhow::ensure!(self.status == 200, "{url} answers {}: {said}", self.status);
        serde_json::from_str(&self.body).with_context(|| format!("{url} does not answer in JSON"))
    }

    /// Prints that JSON, or a table made of it.
    pub(super) fn show(
        &self,
        url: &str,
        json: bool,
        table: impl FnOnce(&Value) -> String,
    ) -> anyhow::Result<ExitCode> {
        let told = self.json(url)?;
        super::print(if json {
            format!("{told}\n")
        } else {
            table(&told)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// One control plane.
pub(super) struct Remote {
    url: reqwest::Url,
    token: Option<String>,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

impl Remote {
    /// With a token.
    pub(super) fn new(args: &Where) -> anyhow::Result<Self> {
        let token = super::usable(token(&args.token_file))?;
        Ok(Self {
            token: Some(token),
            ..Self::without_token(&args.place)?
        })
    }

    /// For what anybody may ask.
    pub(super) fn without_token(place: &Place) -> anyhow::Result<Self> {
        Ok(Self {
            url: super::usable(url(&place.url))?,
            token: None,
            client: reqwest::Client::builder().no_proxy().build()?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
        })
    }

    /// `POST`s a body to a path, given in segments.
    pub(super) fn post(&self, segments: &[&str], body: Vec<u8>) -> anyhow::Result<Answer> {
        let request = self.client.post(self.url(segments));
        self.send(
            request
                .header("content-type", "application/json")
                .body(body),
        )
    }

    /// `GET`s a path, given in segments, with a query.
    pub(super) fn get(&self, segments: &[&str], query: &str) -> anyhow::Result<Answer> {
        let mut url = self.url(segments);
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        self.send(self.client.get(url))
    }

    fn url(&self, segments: &[&str]) -> reqwest::Url {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Answer> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let request = request.timeout(TIMEOUT);
        self.runtime.block_on(async {
            let unreachable = |error| {
                let error = anyhow::anyhow!(why(&error));
                error.context(format!("the control plane at {} does not answer", self.url))
            };
            let response = request.send().await.map_err(unreachable)?;
            Ok(Answer {
                status: response.status().as_u16(),
                body: response.text().await.map_err(unreachable)?,
            })
        })
    }
}

/// What is behind it all: the client's layers only say that something was.
fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("nothing came within {} s", TIMEOUT.as_secs());
    }
    let mut root: &dyn std::error::Error = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    root.to_string()
}

fn url(text: &str) -> anyhow::Result<reqwest::Url> {
    reqwest::Url::parse(text)
        .ok()
        .filter(|url| url.scheme() == "http" && url.has_host())
        .with_context(|| format!("--url {text}: expected one like http://host:9400"))
}

fn token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("token file {} cannot be read", path.display()))?;
    let token = text.trim();
    anyhow::ensure!(
        is_token(token),
        "token file {}: expected one line of printable ASCII without spaces",
        path.display()
    );
    Ok(token.to_owned())
}
