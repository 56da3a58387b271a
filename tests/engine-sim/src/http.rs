//! The API server: OpenAI's endpoints as vLLM serves them, its operational ones, and `/sim/...` for tests.

mod answer;
mod embeddings;
mod lora;
mod messages;
mod openai;
mod ranks;
mod responses;
mod sim;

pub(crate) use lora::Adapters;
pub(crate) use ranks::router as router_of_ranks;
pub use sim::Fault;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::core::{Command, Shared};
use crate::hash::BlockDigest;
use crate::model::Model;
use crate::publisher::{Endpoints, published};
use crate::supervisor::Control;
use crate::template::Chat;

/// What every handler needs.
pub(crate) struct App {
    pub(crate) shared: Arc<Shared>,
    pub(crate) model: Arc<Model>,
    pub(crate) engine: mpsc::UnboundedSender<Command>,
    pub(crate) control: Sender<Control>,
    pub(crate) endpoints: Endpoints,
    pub(crate) none_hash: BlockDigest,
}

/// An error answer in vLLM's form.
#[derive(Debug)]
pub(crate) struct ApiError(StatusCode, &'static str, String);

impl ApiError {
    fn bad_request(message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, "BadRequestError", message.into())
    }
    fn busy(message: &str) -> Self {
        Self(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailableError",
            message.into(),
        )
    }
    fn internal(message: impl Into<String>) -> Self {
        Self(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            message.into(),
        )
    }
}

impl axum::response::IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"message": self.2, "type": self.1, "param": null, "code": self.0.as_u16()}});
        (self.0, axum::Json(body)).into_response()
    }
}

/// The routes of one rank.
fn router(app: Arc<App>, stored: Arc<responses::Stored>) -> Router {
    let responses = async move |State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes| {
        responses::create(app, stored, headers, body).await
    };
    let tasks = if app.shared.config.pooling {
        Router::new().route("/v1/embeddings", post(embeddings::create))
    } else {
        Router::new()
            .route("/v1/responses", post(responses))
            .route("/v1/messages", post(messages::create))
            .route("/v1/chat/completions", post(openai::chat))
            .route("/v1/completions", post(openai::completions))
            .route("/v1/chat/completions/render", post(openai::render_chat))
            .route("/v1/completions/render", post(openai::render_completions))
    };
    tasks
        .route("/server_info", get(server_info))
        .route("/v1/models", get(models))
        .route("/v1/load_lora_adapter", post(lora::load))
        .route("/v1/unload_lora_adapter", post(lora::unload))
        .route(
            "/version",
            get(async |State(app): State<Arc<App>>| {
                axum::Json(json!({"version": app.shared.config.wire.to_string()}))
            }),
        )
        .route("/health", get(health))
        .route("/ping", get(health))
        .route("/load", get(async || axum::Json(json!({"server_load": 0}))))
        .route("/tokenize", post(tokenize))
        .route("/reset_prefix_cache", post(reset_prefix_cache))
        .route("/sim/fault", post(sim::fault))
        .route("/sim/state", get(sim::state))
        .route("/sim/blocks", get(sim::blocks))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            name_answers,
        ))
        .layer(DefaultBodyLimit::disable()) // uvicorn has none
        .with_state(app)
}

/// Tells who answered, and the last event batch published before the answer began.
async fn name_answers(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Ok(name) = HeaderValue::from_str(&app.shared.config.name) {
        response.headers_mut().insert("x-engine", name);
    }
    let (next_seq, _) = published(&app.shared.ring, u64::MAX, 0);
    response
        .headers_mut()
        .insert("x-engine-next-seq", HeaderValue::from(next_seq));
    response
}

async fn health(State(app): State<Arc<App>>) -> StatusCode {
    if app.shared.faults().unhealthy {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    }
}

async fn models(State(app): State<Arc<App>>) -> axum::Json<Value> {
    let config = &app.shared.config;
    let created = app
        .shared
        .started
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let card = |id: &str, root: &str, parent: Option<&str>| {
        json!({"id": id, "object": "model", "created": created, "owned_by": "vllm", "root": root, "parent": parent,
            "max_model_len": if parent.is_none() { json!(config.max_model_len()) } else { Value::Null }, "permission": []})
    };
    let mut data = vec![card(&config.model, "engine-sim", None)];
    data.extend(
        app.shared
            .adapters()
            .all()
            .map(|l| card(&l.name, &l.path, Some(&config.model))),
    );
    axum::Json(json!({"object": "list", "data": data}))
}

/// What vLLM tells with `VLLM_SERVER_DEV_MODE=1`, as far as it is imitated.
async fn server_info(State(app): State<Arc<App>>) -> Result<axum::Json<Value>, StatusCode> {
    let role = app.shared.config.kv_role.as_ref();
    let role = role.ok_or(StatusCode::NOT_FOUND)?;
    let transfer = json!({"kv_connector": "NixlConnector", "kv_role": role});
    Ok(axum::Json(
        json!({"vllm_config": {"kv_transfer_config": transfer}}),
    ))
}

async fn tokenize(State(app): State<Arc<App>>, body: Bytes) -> Result<axum::Json<Value>, ApiError> {
    let body = parse(&body)?;
    let text = match body["prompt"].as_str() {
        Some(prompt) => prompt.to_owned(),
        None => Chat::of_body(&body)
            .map_err(ApiError::bad_request)?
            .render(),
    };
    let ids = app
        .model
        .encode(&text)
        .map_err(|e| ApiError::internal(e.to_string()))?;
    let max = app.shared.config.max_model_len();
    Ok(axum::Json(
        json!({"count": ids.len(), "max_model_len": max, "tokens": ids, "token_strs": null}),
    ))
}

async fn reset_prefix_cache(State(app): State<Arc<App>>) -> axum::Json<Value> {
    let (done, result) = oneshot::channel();
    let _ = app.engine.send(Command::ResetCache(done));
    axum::Json(json!({"success": result.await.unwrap_or(false)}))
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("body: JSON decode error: {e}")))
}

impl App {
    /// Answers for a request that this engine does not take, if so: dead, told to refuse, or full. Otherwise
    /// `requests` and `tokens` count as accepted.
    fn admit(&self, requests: u32, tokens: u64) -> Result<(), ApiError> {
        let (config, shared) = (&self.shared.config, &self.shared);
        let after = shared.requests.fetch_add(requests, Ordering::Relaxed) + requests;
        let backlog = shared.prefill_tokens.fetch_add(tokens, Ordering::Relaxed) + tokens;
        let refused = if config.max_num_queued_reqs.is_some_and(|most| after > most) {
            shared.stats().rejected_requests += 1;
            "The engine is currently busy: too many requests are queued. Please retry later."
        } else if config
            .max_num_queued_tokens
            .is_some_and(|most| backlog > most)
        {
            shared.stats().rejected_tokens += 1;
            "The engine is currently busy: prefill token backlog limit reached. Please retry later."
        } else {
            return Ok(());
        };
        shared.requests.fetch_sub(requests, Ordering::Relaxed);
        shared.prefill_tokens.fetch_sub(tokens, Ordering::Relaxed);
        Err(ApiError::busy(refused))
    }

    fn refuse_by_fault(&self) -> Result<(), ApiError> {
        let mut faults = self.shared.faults();
        if faults.unhealthy {
            return Err(ApiError::internal(
                "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            ));
        }
        if faults.refuse.0 > 0 {
            faults.refuse.0 -= 1;
            let status =
                StatusCode::from_u16(faults.refuse.1).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            return Err(ApiError(
                status,
                "ServiceUnavailableError",
                "The engine is currently busy (told to refuse).".into(),
            ));
        }
        Ok(())
    }
}

fn session_of(headers: &HeaderMap, body: &Value) -> Option<String> {
    let header = headers.get("x-session-id").and_then(|v| v.to_str().ok());
    body["session_id"]
        .as_str()
        .or(header)
        .or(body["vllm_xargs"]["session_id"].as_str())
        .map(String::from)
}
