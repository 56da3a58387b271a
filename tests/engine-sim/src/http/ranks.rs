//! Data-parallel ranks behind one address, as behind vLLM's API server: each is an engine of its own, with
//! cache, events and metrics of its own. `X-data-parallel-rank` chooses one; else what is to be answered
//! goes to the one with the fewest requests, in turn among equals, and all other paths to rank 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};
use tower_service::Service as _;

use super::{ApiError, App, StatusCode, responses};

const HEADER: &str = "x-data-parallel-rank";

struct Ranks {
    apps: Vec<Arc<App>>,
    routers: Vec<Router>,
    turn: AtomicUsize,
}

/// The routes of all ranks.
pub(crate) fn router(apps: Vec<App>) -> Router {
    let stored = Arc::<responses::Stored>::default();
    let apps: Vec<Arc<App>> = apps.into_iter().map(Arc::new).collect();
    let one = |app: &Arc<App>| super::router(Arc::clone(app), Arc::clone(&stored));
    let ranks = Ranks {
        routers: apps.iter().map(one).collect(),
        apps,
        turn: AtomicUsize::new(0),
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/kv_event_sources", get(event_sources))
        .fallback(pass)
        .with_state(Arc::new(ranks))
}

impl Ranks {
    fn choose(&self, headers: &HeaderMap, path: &str) -> Result<usize, ApiError> {
        let count = self.apps.len();
        if let Some(asked) = headers.get(HEADER) {
            let rank = asked.to_str().ok().and_then(|text| text.parse().ok());
            let refused = || ApiError::bad_request(format!("{HEADER} {asked:?} out of range"));
            return rank.filter(|&rank| rank < count).ok_or_else(refused);
        }
        if !path.starts_with("/v1/") || path.ends_with("_lora_adapter") {
            return Ok(0);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let requests = |rank: usize| self.apps[rank].shared.requests.load(Ordering::Relaxed);
        let in_turn = (0..count).map(|n| (turn + n) % count);
        Ok(in_turn.min_by_key(|&rank| requests(rank)).unwrap_or(0))
    }
}

/// Hands a request to a rank, and tells which.
async fn pass(State(ranks): State<Arc<Ranks>>, request: Request) -> Result<Response, ApiError> {
    let rank = ranks.choose(request.headers(), request.uri().path())?;
    let Ok(mut response) = ranks.routers[rank].clone().call(request).await;
    let headers = response.headers_mut();
    headers.insert("x-engine-rank", HeaderValue::from(rank));
    Ok(response)
}

async fn metrics(State(ranks): State<Arc<Ranks>>) -> Response {
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    let pages = ranks
        .apps
        .iter()
        .map(|app| crate::metrics::render(&app.shared));
    (kind, pages.collect::<String>()).into_response()
}

async fn event_sources(State(ranks): State<Arc<Ranks>>) -> Response {
    let wire = ranks.apps.first().map(|app| app.shared.config.wire);
    if !wire.is_some_and(|wire| wire.has_event_sources()) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let source = |app: &Arc<App>| {
        let config = &app.shared.config;
        let source = json!({"enable_kv_cache_events": app.endpoints.events.is_some(), "publisher": "zmq",
            "endpoint": app.endpoints.events, "replay_endpoint": app.endpoints.replay, "buffer_steps": config.buffer_steps,
            "hwm": 100_000, "max_queue_size": 100_000, "topic": config.topic});
        (config.rank.to_string(), source)
    };
    let sources: Map<String, Value> = ranks.apps.iter().map(source).collect();
    axum::Json(Value::Object(sources)).into_response()
}
