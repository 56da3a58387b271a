//! An API server in memory: list and watch of pods and InferencePools over HTTP, and what can go wrong.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::sync::watch;

#[path = "api/answers.rs"] // where another test takes this file by its path
mod answers;

use answers::{pods, pool, pools, status};

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
    /// Who is refused, and how: the first that fits.
    refusals: Vec<Refusal>,
    /// What a watch is answered with, and ends.
    watch_body: Option<String>,
    /// Objects of a page at most, where the client would take more.
    page_max: Option<usize>,
    /// Every page of a list has the token of the first.
    repeats_pages: bool,
    delay: Duration,
    lists: u64,
    watches: u64,
    /// When somebody was refused.
    refused: Vec<Instant>,
    /// Kinds that are served.
    pools_of: Option<&'static str>,
}

/// An answer that is none of those asked for.
#[derive(Clone)]
pub(crate) struct Refusal {
    /// Of lists and watches, those whose path or query has this.
    pub(crate) of: String,
    /// Of watches alone, those from this version or an older one.
    pub(crate) until_version: Option<u64>,
    pub(crate) code: u16,
    pub(crate) status: Value,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Refusal {
    /// As API servers refuse.
    pub(crate) fn new(of: &str, code: u16) -> Self {
        let message = format!(
            "{of} is forbidden: User \"system:serviceaccount:ml:pp\" cannot list it in the namespace \"ml\""
        );
        Self {
            of: of.to_owned(),
            until_version: None,
            code,
            status: status(code, &message),
            headers: Vec::new(),
        }
    }
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

    /// An InferencePool in the one group that is served: of another one, all are gone.
    pub(crate) fn set_pool(&self, group: &'static str, name: &str, spec: Value) {
        let served = self.with(|inner| inner.pools_of);
        if served.is_some_and(|served| served != group) {
            self.delete_pool(name);
            self.with(|inner| inner.pools_of = None);
            self.disconnect();
        }
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
        let all = status.map(|code| Refusal::new("", code));
        self.refuse_some(all.into_iter().collect());
    }

    /// These are refused, and nothing else.
    pub(crate) fn refuse_some(&self, refusals: Vec<Refusal>) {
        self.with(|inner| inner.refusals = refusals);
    }

    /// Watches from a version that anybody was told up to now are refused like this. What is listed is newer.
    pub(crate) fn disown_versions(&self, code: u16, status: Value) {
        self.with(|inner| {
            let refusal = Refusal {
                until_version: Some(inner.version),
                status,
                ..Refusal::new("", code)
            };
            inner.version += 1;
            inner.refusals = vec![refusal];
        });
    }

    /// When requests were refused.
    pub(crate) fn refused(&self) -> Vec<Instant> {
        self.with(|inner| inner.refused.clone())
    }

    /// Every watch is answered with this, and ends at once.
    pub(crate) fn answer_watches(&self, body: Option<&str>) {
        self.with(|inner| inner.watch_body = body.map(str::to_owned));
    }

    /// Pages of lists are so short, and (a server gone wrong) have one token.
    pub(crate) fn page(&self, max: usize, repeats: bool) {
        self.with(|inner| {
            inner.page_max = Some(max);
            inner.repeats_pages = repeats;
        });
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
