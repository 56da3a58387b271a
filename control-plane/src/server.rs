//! The HTTP side: gateways poll here, Prometheus and operators read here.
//!
//! | path | |
//! |---|---|
//! | `POST /v1/sync` | a poll (JSON) -> an answer (binary), see docs/wire-format.md; bearer token |
//! | `POST /v1/news` | what a gateway tells the others, and is told ([`news`]); bearer token |
//! | `POST /v1/decisions` | what became of a gateway's decisions ([`report`]); bearer token |
//! | `GET /v1/report?since_s=SECONDS` | what is made of them ([`crate::report`]); any token |
//! | `POST /v1/explain` | what a gateway would decide about a request ([`crate::explain`]); any token |
//! | `POST /v1/adapters/forget` | `{"pool", "adapter"}`: drops what is known of a LoRA adapter; bearer token |
//! | `POST /v1/replicas/{name}/drain`, `.../undrain` | takes a replica out of service or back in ([`admin`]); an operator's token |
//! | `GET /v1/status?decisions_after=NUMBER` | how the fleet is, and the last decisions ([`status`]) |
//! | `GET /` | a page that shows it |
//! | `GET /healthz` | 200 while the process works |
//! | `GET /readyz` | 200 once gateways get answers, else 503 and what is waited for |
//! | `GET /metrics` | Prometheus |

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use prefix_picker_core::sync::{ANSWER_BYTES_MAX, MAJOR, Poll, TableUpdate};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::config::Config;
use crate::drains::Drains;
use crate::engine::{Engine, has_news};
use crate::metrics::{Metrics, ResultLabels};

mod admin;
pub mod auth;
mod explain;
mod gzip;
mod news;
mod refused;
mod report;
mod status;

use auth::Tokens;
pub use refused::Refused;
pub use status::Kept;

/// Most bytes of a poll.
const POLL_BYTES_MAX: usize = 256 << 10;
/// The longest that a poll may wait, whatever it says.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// What Prometheus wants to see.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the handlers share.
pub struct Shared {
    /// The brain.
    pub engine: Arc<Engine>,
    /// The figures.
    pub metrics: Arc<Metrics>,
    /// Who may poll.
    pub tokens: Arc<Tokens>,
    /// Who may take replicas out of service.
    pub admin: Arc<Tokens>,
    /// Which replicas are.
    pub drains: Arc<Drains>,
    /// For metrics.
    pub config: Arc<Config>,
    /// Turns true when the process stops.
    pub stopping: watch::Receiver<bool>,
    /// Polls with a wrong token, or none.
    pub refused: Refused,
    /// The status as it was a moment ago.
    pub status: Kept,
}

/// The routes. They want to know who asks: serve them with [`SocketAddr`] as connect info.
pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/sync", post(sync))
        .route("/v1/news", post(news::news))
        .route("/v1/decisions", post(report::take))
        .route("/v1/report", get(report::answer))
        .route(
            "/v1/explain",
            post(explain::answer).layer(DefaultBodyLimit::max(explain::BYTES_MAX)),
        )
        .route("/v1/adapters/forget", post(forget_adapter))
        .route("/v1/replicas/{name}/drain", post(admin::drain))
        .route("/v1/replicas/{name}/undrain", post(admin::undrain))
        .merge(status::routes())
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(POLL_BYTES_MAX))
        .with_state(shared)
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    if *shared.stopping.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    if shared.engine.is_open() {
        return (StatusCode::OK, "ready\n").into_response();
    }
    let waiting = shared.engine.unsettled_replicas().join(", ");
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("waiting for the events of: {waiting}\n"),
    )
        .into_response()
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let text = shared.metrics.render(&shared.engine);
    match gzip::packed(text.into_bytes(), gzip::is_accepted(&headers)) {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// A LoRA adapter whose weights were replaced in place, from the same path: no engine tells of it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ForgetAdapter {
    pool: String,
    adapter: String,
}

async fn forget_adapter(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_allowed(&shared, &headers) {
        return unauthorized();
    }
    let asked: ForgetAdapter = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => {
            let text = format!("not {{\"pool\": ..., \"adapter\": ...}}: {error}\n");
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };
    match shared.engine.forget_adapter(&asked.pool, &asked.adapter) {
        Some(blocks) => {
            tracing::info!(pool = %asked.pool, adapter = %asked.adapter, blocks, "an adapter's blocks were dropped as asked");
            axum::Json(serde_json::json!({"dropped_blocks": blocks})).into_response()
        }
        None => (StatusCode::NOT_FOUND, "no such pool\n").into_response(),
    }
}

fn is_allowed(shared: &Shared, headers: &HeaderMap) -> bool {
    shared.tokens.allow(authorization(headers))
}

fn is_operator(shared: &Shared, headers: &HeaderMap) -> bool {
    shared.admin.allow(authorization(headers))
}

fn authorization(headers: &HeaderMap) -> Option<&[u8]> {
    headers
        .get(header::AUTHORIZATION)
        .map(|value| value.as_bytes())
}

fn unauthorized() -> Response {
    (
        StatusCode::UNAUTHORIZED,
        [(header::WWW_AUTHENTICATE, "Bearer")],
        "a bearer token is needed\n",
    )
        .into_response()
}

async fn sync(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let count = |result| {
        shared
            .metrics
            .polls
            .get_or_create(&ResultLabels { result })
            .inc()
    };
    if !is_allowed(&shared, &headers) {
        count("unauthorized");
        let has_token = headers.contains_key(header::AUTHORIZATION);
        shared.refused.say(peer, has_token);
        return unauthorized();
    }
    let poll: Poll = match serde_json::from_slice(&body) {
        Ok(poll) => poll,
        Err(error) => {
            count("malformed");
            return (StatusCode::BAD_REQUEST, format!("not a poll: {error}\n")).into_response();
        }
    };
    if poll.protocol != MAJOR {
        count("other_version");
        let text = format!(
            "wire format {} is not spoken here (this is {MAJOR})\n",
            poll.protocol
        );
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let engine = &shared.engine;
    let polling = engine.live().polling(&poll.gateway, &poll.version);
    engine.feedback().take(
        &poll,
        &shared.metrics,
        |pool| engine.has_blocks(pool),
        std::time::Instant::now(),
    );
    let answer = wait_for_answer(&shared, &poll, count).await;
    polling.answered();
    let Some(bytes) = answer else {
        count("starting");
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "1")],
            "starting\n",
        )
            .into_response();
    };
    shared.metrics.answer_bytes.inc_by(bytes.len() as u64);
    ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
}

/// The answer's bytes, as soon as there is news, the poll has waited long enough or the process
/// stops. `None` if gateways get no answers yet.
async fn wait_for_answer(
    shared: &Shared,
    poll: &Poll,
    count: impl Fn(&'static str) -> u64,
) -> Option<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_millis(poll.wait_ms.into()).min(WAIT_MAX);
    let mut news = shared.engine.news();
    let mut stopping = shared.stopping.clone();
    let _waiting = Waiting::new(&shared.metrics);
    loop {
        news.mark_unchanged();
        let over = *stopping.borrow() || Instant::now() >= deadline;
        let answer = shared.engine.is_open().then(|| shared.engine.answer(poll));
        match answer {
            Some(answer) if over || has_news(&answer) => {
                count(match answer.table {
                    TableUpdate::Delta { .. } => "delta",
                    TableUpdate::Load { .. } => "load",
                    TableUpdate::None if has_news(&answer) => "head",
                    TableUpdate::None => "nothing",
                });
                return match answer.encode() {
                    Ok(bytes) => {
                        debug_assert!(bytes.len() <= ANSWER_BYTES_MAX * 2, "{} bytes", bytes.len());
                        Some(bytes)
                    }
                    Err(error) => {
                        tracing::error!(%error, "answer cannot be encoded");
                        None
                    }
                };
            }
            None if over => return None,
            _ => {}
        }
        // Whatever ends the wait, the loop finds out.
        let _ = timeout_at(deadline, async {
            tokio::select! {
                _ = news.changed() => {}
                _ = stopping.changed() => {}
            }
        })
        .await;
    }
}

/// Counts one poll as waiting for as long as it lives, also when its client goes away.
struct Waiting<'a>(&'a Metrics);

impl<'a> Waiting<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.polls_waiting.inc();
        Self(metrics)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.polls_waiting.dec();
    }
}

#[cfg(test)]
mod tests;
