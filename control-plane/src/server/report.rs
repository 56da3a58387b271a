//! What gateways tell of their decisions, and the report that is made of it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use prefix_picker_core::sync::decisions::Decisions;

use super::{Shared, is_allowed, is_operator, unauthorized};

pub(super) async fn take(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_allowed(&shared, &headers) {
        return unauthorized();
    }
    match Decisions::decode(&body) {
        Ok(decisions) => {
            shared.engine.report().take(&decisions);
            shared.engine.live().take(&decisions);
            StatusCode::OK.into_response()
        }
        Err(error) => {
            (StatusCode::BAD_REQUEST, format!("not decisions: {error}\n")).into_response()
        }
    }
}

/// What is asked for.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    since_s: u64,
}

pub(super) async fn answer(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    if !is_operator(&shared, &headers) && !is_allowed(&shared, &headers) {
        return unauthorized();
    }
    match asked {
        Ok(Query(asked)) => {
            axum::Json(shared.engine.report().answer(asked.since_s)).into_response()
        }
        Err(error) => {
            let text = format!("expected ?since_s=SECONDS: {}\n", error.body_text());
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}
