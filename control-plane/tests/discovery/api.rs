//! An API server in memory: list and watch of pods and InferencePools over HTTP, and what can go wrong.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

/// Time between bookmarks.
const BOOKMARKS: Duration = Duration::from_millis(200);

/// One change.
#[derive(Clone)]
struct Change {
    version: u64,
    kind: &'static str,
    before: Option<Value>,
    after: Option<Value>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    objects: BTreeMap<(&'static str, String), Value>,
    log: Vec<Change>,
    /// Changes up to this one are forgotten: 410.
    compacted: u64,
    /// 410 is the answer's status, and not an event in it.
    gone_as_status: bool,
    refuse: Option<u16>,
    /// What a watch is answered with, and ends.
    watch_body: Option<&'static str>,
    delay: Duration,
    lists: u64,
    watches: u64,
    /// Kinds that are served.
    pools_of: Option<&'static str>,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Api {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
    broken: Arc<watch::Sender<u64>>,
    pub(crate) address: SocketAddr,
}

/// A pod as the API server would have it.
pub(crate) fn pod(name: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{name}"), "labels": {"app": "vllm"},
            "managedFields": [{"manager": "kubelet"}]},
        "spec": {"containers": [{"name": "vllm", "image": "vllm", "ports": [{"name": "http", "containerPort": 8000}]}]},
        "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(crate) fn set_ready(pod: &mut Value, ready: bool) {
    let status = if ready { "True" } else { "False" };
    pod["status"]["conditions"][0]["status"] = json!(status);
}

impl Api {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = Self {
            inner: Arc::default(),
            changed: Arc::new(watch::Sender::new(0)),
            broken: Arc::new(watch::Sender::new(0)),
            address: listener.local_addr().unwrap(),
        };
        let router = Router::new()
            .route("/api/v1/namespaces/{namespace}/pods", get(pods))
            .route(
                "/apis/{group}/{version}/namespaces/{namespace}/inferencepools",
                get(pools),
            )
            .route(
                "/apis/{group}/{version}/namespaces/{namespace}/inferencepools/{name}",
                get(pool),
            )
            .with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        api
    }

    fn with<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        work(&mut self.inner.lock().unwrap())
    }

    fn put(&self, kind: &'static str, name: &str, object: Option<Value>) {
        let version = self.with(|inner| {
            inner.version += 1;
            let version = inner.version;
            let key = (kind, name.to_owned());
            let after = object.map(|mut object| {
                object["metadata"]["resourceVersion"] = json!(version.to_string());
                object
            });
            let before = match &after {
                Some(object) => inner.objects.insert(key, object.clone()),
                None => inner.objects.remove(&key),
            };
            inner.log.push(Change {
                version,
                kind,
                before,
                after,
            });
            version
        });
        self.changed.send_replace(version);
    }

    pub(crate) fn set_pod(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.put("pods", &name, Some(pod.clone()));
    }

    pub(crate) fn change_pod(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let key = ("pods", name.to_owned());
        let mut pod = self.with(|inner| inner.objects[&key].clone());
        change(&mut pod);
        self.set_pod(&pod);
    }

    pub(crate) fn delete_pod(&self, name: &str) {
        self.put("pods", name, None);
    }

    /// An InferencePool in the one group that is served.
    pub(crate) fn set_pool(&self, group: &'static str, name: &str, spec: Value) {
        self.with(|inner| inner.pools_of = Some(group));
        let pool = json!({"apiVersion": format!("{group}/v1"), "kind": "InferencePool",
            "metadata": {"name": name, "namespace": "ml"}, "spec": spec});
        self.put("inferencepools", name, Some(pool));
    }

    pub(crate) fn delete_pool(&self, name: &str) {
        self.put("inferencepools", name, None);
    }

    /// All watches break off, in the middle of a line.
    pub(crate) fn disconnect(&self) {
        self.broken.send_modify(|count| *count += 1);
    }

    /// Forgets all changes: whoever watches from an older version gets 410.
    pub(crate) fn compact(&self) {
        self.with(|inner| {
            inner.compacted = inner.version;
            inner.log.clear();
        });
    }

    /// From now on 410 is the status of the answer to a watch, and not an event in it.
    pub(crate) fn gone_as_status(&self) {
        self.with(|inner| inner.gone_as_status = true);
    }

    /// Every request is answered with this status.
    pub(crate) fn refuse(&self, status: Option<u16>) {
        self.with(|inner| inner.refuse = status);
    }

    /// Every watch is answered with this, and ends at once.
    pub(crate) fn answer_watches(&self, body: Option<&'static str>) {
        self.with(|inner| inner.watch_body = body);
    }

    /// Every request takes so long.
    pub(crate) fn delay(&self, delay: Duration) {
        self.with(|inner| inner.delay = delay);
    }

    /// Lists and watches so far.
    pub(crate) fn asked(&self) -> (u64, u64) {
        self.with(|inner| (inner.lists, inner.watches))
    }
}

fn status(code: u16, message: &str) -> Value {
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

async fn pods(State(api): State<Api>, Query(query): Query<Asked>) -> Response {
    let selector = query.get("labelSelector").cloned().unwrap_or_default();
    answer(api, "pods", "PodList", selector, query).await
}

async fn pools(
    State(api): State<Api>,
    Path((group, _, _)): Path<(String, String, String)>,
    Query(query): Query<Asked>,
) -> Response {
    if api.with(|inner| inner.pools_of) != Some(group.as_str()) {
        return refused(404, "the server could not find the requested resource");
    }
    let selector = query.get("fieldSelector").cloned().unwrap_or_default();
    answer(api, "inferencepools", "InferencePoolList", selector, query).await
}

async fn pool(
    State(api): State<Api>,
    Path((group, _, _, name)): Path<(String, String, String, String)>,
) -> Response {
    if let Some(code) = api.with(|inner| inner.refuse) {
        return refused(code, "inferencepools is refused");
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
    list: &str,
    selector: String,
    query: Asked,
) -> Response {
    let delay = api.with(|inner| inner.delay);
    tokio::time::sleep(delay).await;
    if let Some(code) = api.with(|inner| inner.refuse) {
        let message = format!(
            "{kind} is forbidden: User \"system:serviceaccount:ml:pp\" cannot list resource \"{kind}\" in API group \"\" in the namespace \"ml\""
        );
        return refused(code, &message);
    }
    if query
        .get("watch")
        .is_some_and(|watch| watch == "true" || watch == "1")
    {
        let from = query
            .get("resourceVersion")
            .and_then(|v| v.parse().ok())
            .unwrap_or(0);
        let bookmarks = query
            .get("allowWatchBookmarks")
            .is_some_and(|b| b == "true");
        let gone = api.with(|inner| {
            inner.watches += 1;
            inner.gone_as_status && from < inner.compacted
        });
        if let Some(body) = api.with(|inner| inner.watch_body) {
            return body.into_response();
        }
        if gone {
            return refused(410, "too old resource version");
        }
        return stream(api, kind, selector, from, bookmarks);
    }
    let (version, items) = api.with(|inner| {
        inner.lists += 1;
        let of_kind = inner.objects.iter().filter(|((of, _), _)| *of == kind);
        let items = of_kind
            .map(|(_, object)| object.clone())
            .filter(|object| selects(&selector, object));
        (inner.version, items.collect::<Vec<_>>())
    });
    axum::Json(json!({"kind": list, "apiVersion": "v1",
        "metadata": {"resourceVersion": version.to_string()}, "items": items}))
    .into_response()
}

type Line = Result<Bytes, std::io::Error>;

fn line(kind: &str, object: &Value) -> Line {
    Ok(Bytes::from(format!(
        "{}\n",
        json!({"type": kind, "object": object})
    )))
}

fn stream(api: Api, kind: &'static str, selector: String, from: u64, bookmarks: bool) -> Response {
    let (sender, receiver) = mpsc::channel::<Line>(64);
    tokio::spawn(async move {
        if api.with(|inner| from < inner.compacted) {
            let gone = status(410, "too old resource version");
            let _ = sender.send(line("ERROR", &gone)).await;
            return;
        }
        let (mut changed, mut broken) = (api.changed.subscribe(), api.broken.subscribe());
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
