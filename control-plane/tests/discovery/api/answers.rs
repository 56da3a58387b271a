//! What the API server answers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{OriginalUri, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{Api, Change, Inner, Refusal};

/// Time between bookmarks.
const BOOKMARKS: Duration = Duration::from_millis(200);

pub(super) fn status(code: u16, message: &str) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        410 => "Expired",
        _ => "InternalError",
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code})
}

fn refused(code: u16, message: &str) -> Response {
    let code_of = StatusCode::from_u16(code).unwrap();
    (code_of, axum::Json(status(code, message))).into_response()
}

/// `a=b,c!=d`, as label selectors and field selectors go.
fn selects(selector: &str, object: &Value) -> bool {
    selector
        .split(',')
        .filter(|part| !part.is_empty())
        .all(|part| {
            let (name, value) = part.split_once('=').unwrap();
            let (name, wanted) = match name.strip_suffix('!') {
                Some(name) => (name, false),
                None => (name, true),
            };
            let found = match name {
                "metadata.name" => &object["metadata"]["name"],
                label => &object["metadata"]["labels"][label],
            };
            (found.as_str() == Some(value)) == wanted
        })
}

type Asked = HashMap<String, String>;

pub(super) async fn pods(
    State(api): State<Api>,
    uri: OriginalUri,
    Query(query): Query<Asked>,
) -> Response {
    let selector = query.get("labelSelector").cloned().unwrap_or_default();
    answer(api, "pods", &uri, selector, query).await
}

pub(super) async fn pools(
    State(api): State<Api>,
    uri: OriginalUri,
    Path((group, _, _)): Path<(String, String, String)>,
    Query(query): Query<Asked>,
) -> Response {
    if api.with(|inner| inner.pools_of) != Some(group.as_str()) {
        return refused(404, "the server could not find the requested resource");
    }
    let selector = query.get("fieldSelector").cloned().unwrap_or_default();
    answer(api, "inferencepools", &uri, selector, query).await
}

pub(super) async fn pool(
    State(api): State<Api>,
    uri: OriginalUri,
    Path((group, _, _, name)): Path<(String, String, String, String)>,
) -> Response {
    if let Some(refusal) = api.refusal(&uri, None) {
        return refusal;
    }
    let found = api.with(|inner| {
        let served = inner.pools_of == Some(group.as_str());
        inner
            .objects
            .get(&("inferencepools", name))
            .filter(|_| served)
            .cloned()
    });
    match found {
        Some(found) => axum::Json(found).into_response(),
        None => refused(404, "not found"),
    }
}

async fn answer(
    api: Api,
    kind: &'static str,
    uri: &OriginalUri,
    selector: String,
    query: Asked,
) -> Response {
    let delay = api.with(|inner| inner.delay);
    tokio::time::sleep(delay).await;
    // Before it is known whether this one is refused: who is not is broken off by what comes then.
    let broken = api.broken.subscribe();
    let is = |name: &str| query.get(name).is_some_and(|is| is == "true" || is == "1");
    let number = |name: &str| query.get(name).and_then(|number| number.parse().ok());
    let from = number("resourceVersion").unwrap_or(0);
    if let Some(refusal) = api.refusal(uri, is("watch").then_some(from)) {
        return refusal;
    }
    if is("watch") {
        let gone = api.with(|inner| {
            inner.watches += 1;
            inner.gone_as_status && from < inner.compacted
        });
        if let Some(body) = api.with(|inner| inner.watch_body.clone()) {
            return body.into_response();
        }
        if gone {
            return refused(410, "too old resource version");
        }
        let marks = is("allowWatchBookmarks");
        return stream(api, kind, selector, from, marks, broken);
    }
    let limit = number("limit").and_then(|limit| usize::try_from(limit).ok());
    let begin = query.get("continue").and_then(|token| token.parse().ok());
    api.with(|inner| inner.page(kind, &selector, begin.unwrap_or(0), limit))
}

impl Api {
    /// The answer to one who is refused; `from`: the version to watch from.
    fn refusal(&self, uri: &OriginalUri, from: Option<u64>) -> Option<Response> {
        let asked = uri.to_string();
        let fits = |refusal: &&Refusal| {
            let version = refusal.until_version;
            asked.contains(&refusal.of)
                && version.is_none_or(|until| from.is_some_and(|from| from <= until))
        };
        let refusal = self.with(|inner| {
            let refusal = inner.refusals.iter().find(fits).cloned()?;
            inner.refused.push(Instant::now());
            Some(refusal)
        })?;
        let code = StatusCode::from_u16(refusal.code).unwrap();
        let mut response = (code, axum::Json(refusal.status)).into_response();
        for (name, value) in refusal.headers {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        Some(response)
    }
}

impl Inner {
    /// A page of a list. Its token is where the next one begins.
    fn page(&mut self, kind: &str, selector: &str, begin: usize, limit: Option<usize>) -> Response {
        self.lists += 1;
        let of_kind = self.objects.iter().filter(|((of, _), _)| *of == kind);
        let all = of_kind
            .map(|(_, object)| object)
            .filter(|object| selects(selector, object));
        let all: Vec<_> = all.skip(begin).cloned().collect();
        let limits = [limit, self.page_max].into_iter().flatten();
        let taken = limits.min().unwrap_or(usize::MAX).min(all.len());
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if self.repeats_pages {
            metadata["continue"] = json!("0");
        } else if taken < all.len() {
            metadata["continue"] = json!((begin + taken).to_string());
        }
        let list = match kind {
            "pods" => "PodList",
            _ => "InferencePoolList",
        };
        axum::Json(
            json!({"kind": list, "apiVersion": "v1", "metadata": metadata, "items": all[..taken]}),
        )
        .into_response()
    }
}

type Line = Result<Bytes, std::io::Error>;

fn line(kind: &str, object: &Value) -> Line {
    Ok(Bytes::from(format!(
        "{}\n",
        json!({"type": kind, "object": object})
    )))
}

fn stream(
    api: Api,
    kind: &'static str,
    selector: String,
    from: u64,
    bookmarks: bool,
    mut broken: watch::Receiver<u64>,
) -> Response {
    let (sender, receiver) = mpsc::channel::<Line>(64);
    let mut changed = api.changed.subscribe();
    tokio::spawn(async move {
        if api.with(|inner| from < inner.compacted) {
            let gone = status(410, "too old resource version");
            let _ = sender.send(line("ERROR", &gone)).await;
            return;
        }
        let mut seen = from;
        let mut ticks = tokio::time::interval(BOOKMARKS);
        loop {
            let changes: Vec<Change> = api.with(|inner| {
                let new = inner
                    .log
                    .iter()
                    .filter(|change| change.version > seen && change.kind == kind);
                new.cloned().collect()
            });
            for change in changes {
                seen = change.version;
                if let Some(line) = told(&selector, &change)
                    && sender.send(line).await.is_err()
                {
                    return;
                }
            }
            tokio::select! {
                _ = changed.changed() => {}
                _ = broken.changed() => {
                    let half = Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":{\"ki");
                    let _ = sender.send(Ok(half)).await;
                    let _ = sender.send(Err(std::io::Error::other("broken"))).await;
                    return;
                }
                _ = ticks.tick(), if bookmarks => {
                    let version = api.with(|inner| inner.version);
                    let mark = json!({"kind": if kind == "pods" { "Pod" } else { "InferencePool" }, "apiVersion": "v1",
                        "metadata": {"resourceVersion": version.to_string(), "creationTimestamp": null}, "spec": {}});
                    if seen == version && sender.send(line("BOOKMARK", &mark)).await.is_err() {
                        return;
                    }
                }
                () = sender.closed() => return,
            }
        }
    });
    let body = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    (
        [(header::CONTENT_TYPE, "application/json")],
        Body::from_stream(body),
    )
        .into_response()
}

/// What a watch with this selector is told: one that no longer matches is gone.
fn told(selector: &str, change: &Change) -> Option<Line> {
    let matches =
        |object: &Option<Value>| object.as_ref().filter(|o| selects(selector, o)).cloned();
    match (matches(&change.before), matches(&change.after)) {
        (None, Some(new)) => Some(line("ADDED", &new)),
        (Some(_), Some(new)) => Some(line("MODIFIED", &new)),
        (Some(old), None) => Some(line("DELETED", &old)),
        (None, None) => None,
    }
}
