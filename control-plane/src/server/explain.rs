//! What a gateway would decide about a request, for operators and other routers.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::{Shared, is_allowed, is_operator, unauthorized};
use crate::explain::{Ask, Refusal, explain};
use crate::metrics::unix_seconds;

/// Most bytes of a question: more than gateways take of a request.
pub(super) const BYTES_MAX: usize = 8 << 20;

pub(super) async fn answer(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_operator(&shared, &headers) && !is_allowed(&shared, &headers) {
        return unauthorized();
    }
    let ask: Ask = match serde_json::from_slice(&body) {
        Ok(ask) => ask,
        Err(error) => {
            let text = format!(
                "not {{\"path\": ..., \"request\": ...}} or {{\"token_ids\": ...}}: {error}\n"
            );
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };
    if !shared.engine.is_open() {
        return (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response();
    }
    // A large prompt takes a few milliseconds, which polls need not wait for.
    let work = move || {
        #[allow(clippy::cast_possible_truncation)] // in range for as long as there are clocks
        let now_s = unix_seconds() as i64;
        explain(&shared.engine, &ask, now_s)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(answer)) => axum::Json(answer).into_response(),
        Ok(Err(refusal)) => {
            let status = match refusal {
                Refusal::Bad(_) => StatusCode::BAD_REQUEST,
                Refusal::Unknown(_) => StatusCode::NOT_FOUND,
            };
            (status, format!("{refusal}\n")).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
