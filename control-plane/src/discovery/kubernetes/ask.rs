//! What is asked of the API server, and what its answers mean.
//!
//! The client's own calls hide what matters here: when to come again, where a redirect leads, which object of many it
//! is that cannot be read; and they take answers of any size.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::api::{GetParams, ListParams, WatchParams};
use kube::client::Body;
use kube::core::{Request, Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::io::StreamReader;

use super::object::null;
use crate::chain::{causes, chain};
use crate::discovery::{Failure, Kind};

/// A page of a list: 500 pods of 10 kB each are 5 MB.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// An event: the API server's own objects end at 3 MB.
const LINE_BYTES_MAX: usize = 8 << 20;
/// What is read of an answer that is none.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
const REFUSAL_TIME: Duration = Duration::from_secs(5);
/// Of texts of others, in ours.
const TEXT_CHARS_MAX: usize = 500;
/// Who wants to be left alone for longer is asked all the same.
const AFTER_MAX: Duration = Duration::from_secs(60);

/// The API server and what is asked for there.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) client: kube::Client,
    pub(super) path: Request,
    /// Plural, as in texts.
    pub(super) resource: String,
    pub(super) namespace: String,
}

/// A request that failed, and what follows.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) failure: Failure,
    /// The version to watch from is of no use.
    pub(super) anew: bool,
    /// The server wants to be left alone for so long.
    pub(super) after: Option<Duration>,
}

/// One answer to a list.
#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(default, deserialize_with = "null")]
    pub(super) metadata: PageMeta,
    #[serde(deserialize_with = "null")]
    pub(super) items: Vec<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageMeta {
    pub(super) resource_version: Option<String>,
    pub(super) r#continue: Option<String>,
}

impl Asked {
    /// That it is there.
    pub(super) async fn get(&self, name: &str) -> Result<(), Refused> {
        let request = self.path.get(name, &GetParams::default());
        self.send(request, "get").await.map(|_| ())
    }

    /// A page of a list, whole until then.
    pub(super) async fn list(&self, params: &ListParams, until: Instant) -> Result<Page, Refused> {
        let page = async {
            let body = self.send(self.path.list(params), "list").await?;
            let body = Limited::new(body, PAGE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => {
                    let said = format!("a page of it is larger than {PAGE_BYTES_MAX} bytes");
                    self.failed(Kind::Server, "list", &said)
                }
                false => self.refused(Kind::Unreachable, "list", &*error),
            })?;
            serde_json::from_slice(&body.to_bytes()).map_err(|error| {
                let said = format!("the answer is no list ({error}; is it an API server?)");
                self.failed(Kind::Server, "list", &said)
            })
        };
        let page = tokio::time::timeout_at(until, page).await;
        page.unwrap_or_else(|_| {
            let said = "the answer did not end in time";
            Err(self.failed(Kind::Unreachable, "list", said))
        })
    }

    /// Lines of events.
    pub(super) async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<impl Stream<Item = Result<String, LinesCodecError>> + use<>, Refused> {
        let body = self.send(self.path.watch(params, version), "watch").await?;
        let bytes = body.into_data_stream().map_err(std::io::Error::other);
        Ok(lines(bytes))
    }

    async fn send<E: Error + 'static>(
        &self,
        request: Result<axum::http::Request<Vec<u8>>, E>,
        verb: &str,
    ) -> Result<Body, Refused> {
        let request = request.map_err(|error| self.refused(Kind::Client, verb, &error))?;
        let response = self.client.send(request.map(Body::from)).await;
        let response = response.map_err(|error| {
            let kind = match error {
                kube::Error::HyperError(_) | kube::Error::Service(_) => Kind::Unreachable,
                kube::Error::Auth(_) => Kind::Client,
                _ => Kind::Server,
            };
            self.refused(kind, verb, &error)
        })?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let header = |name: &str| head.headers.get(name)?.to_str().ok();
        if head.status.is_redirection() {
            let to = header("location").unwrap_or("nowhere");
            let said = format!(
                "{}, a redirect to {:?}; what answers is not the API server: check api_server and what stands before it",
                head.status.as_u16(),
                shortened(to),
            );
            return Err(self.failed(Kind::Server, verb, &said));
        }
        let body = Limited::new(body, REFUSAL_BYTES_MAX).collect();
        let body = tokio::time::timeout(REFUSAL_TIME, body).await;
        let body = body.ok().and_then(Result::ok);
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let mut refused = self.status(&status(head.status.as_u16(), &body), verb);
        let after = header("retry-after").and_then(|after| after.parse().ok());
        if let Some(after) = after.map(Duration::from_secs) {
            refused.after = Some(after.min(AFTER_MAX));
        }
        Err(refused)
    }

    /// What a status means: the answer itself, or one among events.
    pub(super) fn status(&self, status: &Status, verb: &str) -> Refused {
        let anew = verb == "watch" && is_about_version(status);
        let (kind, cure) = match status.code {
            401 => (
                Kind::Forbidden,
                "; the token is not taken: check token_file or the service account",
            ),
            403 => (
                Kind::Forbidden,
                "; give the control plane's service account a Role with the verbs get, list and watch on it",
            ),
            404 => (Kind::NotFound, ""),
            410 => (Kind::Gone, "; the list is read anew"),
            _ if anew => (Kind::Gone, "; the list is read anew"),
            _ => (Kind::Server, ""),
        };
        let (code, message) = (status.code, shortened(&status.message));
        let mut refused = self.failed(kind, verb, &format!("{code} {message}{cure}"));
        refused.anew = anew;
        let after = status
            .details
            .as_ref()
            .map(|details| details.retry_after_seconds);
        refused.after = after
            .filter(|after| *after > 0)
            .map(|after| Duration::from_secs(after.into()).min(AFTER_MAX));
        refused
    }

    fn refused(&self, kind: Kind, verb: &str, error: &(dyn Error + 'static)) -> Refused {
        self.failed(kind, verb, &shortened(&chain(error)))
    }

    fn failed(&self, kind: Kind, verb: &str, said: &str) -> Refused {
        let Self {
            resource,
            namespace,
            ..
        } = self;
        let text = format!("cannot {verb} {resource} in namespace {namespace:?}: {said}");
        Failure { kind, text }.into()
    }

    /// A list that does not end.
    pub(super) fn endless(&self, said: &str) -> Refused {
        self.failed(Kind::Server, "list", said)
    }

    /// What became of a watch, said after its name.
    pub(super) fn watched(&self, kind: Kind, said: &str) -> Refused {
        let Self {
            resource,
            namespace,
            ..
        } = self;
        let text = format!("the watch on {resource} in namespace {namespace:?} {said}");
        Failure { kind, text }.into()
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            anew: false,
            after: None,
        }
    }
}

/// The lines of a body, none of them without an end.
fn lines<S: Stream<Item = std::io::Result<Bytes>>>(
    bytes: S,
) -> impl Stream<Item = Result<String, LinesCodecError>> {
    let codec = LinesCodec::new_with_max_length(LINE_BYTES_MAX);
    FramedRead::new(StreamReader::new(bytes), codec)
}

/// What an answer that is none says; proxies have words of their own.
fn status(code: u16, body: &[u8]) -> Status {
    match serde_json::from_slice::<Status>(body) {
        Ok(mut status) => {
            if status.code == 0 {
                status.code = code;
            }
            status
        }
        Err(_) => Status::failure(String::from_utf8_lossy(body).trim(), "").with_code(code),
    }
}

/// The version is forgotten, not there yet, or none. As client-go has it.
fn is_about_version(status: &Status) -> bool {
    let has = |text: &str| status.message.contains(text);
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    match status.code {
        410 => true,
        504 => {
            causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
                || has("Too large resource version")
        }
        400 => has("resource version") || has("resourceVersion"),
        _ => matches!(status.reason.as_str(), "Expired" | "Gone"),
    }
}

/// The connection ended in the middle of a body.
pub(super) fn is_eof(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::UnexpectedEof)
    })
}

/// Not all of what somebody else says.
pub(super) fn shortened(text: &str) -> String {
    let mut chars = text.chars();
    let begin: String = chars.by_ref().take(TEXT_CHARS_MAX).collect();
    match chars.next() {
        None => begin,
        Some(_) => format!("{begin}…"),
    }
}

#[cfg(test)]
mod tests;
