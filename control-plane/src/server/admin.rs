//! What operators may ask: replicas out of service and back in.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::{Shared, is_allowed, is_operator, unauthorized};
use crate::drains::DrainError;
use crate::engine::state_word;
use crate::status::others_pickable;

pub(super) async fn drain(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Response {
    set(&shared, &headers, &name, true).await
}

pub(super) async fn undrain(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Response {
    set(&shared, &headers, &name, false).await
}

async fn set(shared: &Arc<Shared>, headers: &HeaderMap, name: &str, draining: bool) -> Response {
    if let Some(refusal) = refusal(shared, headers) {
        return refusal;
    }
    let (with, of) = (shared.clone(), name.to_owned());
    // The disk may take its time.
    let set = move || with.drains.set(&with.engine, &of, draining);
    match tokio::task::spawn_blocking(set).await {
        Ok(Ok((replica, changed))) => {
            if changed {
                tracing::info!(replica = %name, draining, "an operator changed a replica");
            }
            let members = shared.engine.members();
            let found = members.iter().find(|found| found.slot == replica);
            let pool = found.and_then(|found| shared.engine.pools().get(found.pool));
            let found = found.map(|found| &found.head);
            axum::Json(serde_json::json!({
                "schema": "prefix-picker.drain/1",
                "version": 1,
                "replica": name,
                "pool": pool.map(|pool| &pool.name),
                "state": found.map(|found| state_word(found.state)),
                "running": found.map(|found| found.running),
                "waiting": found.map(|found| found.waiting),
                "changed": changed,
                "others_pickable": others_pickable(&shared.engine, replica),
            }))
            .into_response()
        }
        Ok(Err(error @ DrainError::Unknown { .. })) => {
            (StatusCode::NOT_FOUND, format!("{error}\n")).into_response()
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "a replica was not drained");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Why an operator's request is not done, if it is not one.
fn refusal(shared: &Shared, headers: &HeaderMap) -> Option<Response> {
    if is_operator(shared, headers) {
        return None;
    }
    let none = shared.admin.is_empty();
    if !none && !is_allowed(shared, headers) {
        return Some(unauthorized());
    }
    let text = if none {
        "nobody may do this: the control plane's configuration has neither admin_tokens nor admin_token_files\n"
    } else {
        "gateways may not do this: a token of admin_tokens or admin_token_files is needed\n"
    };
    Some((StatusCode::FORBIDDEN, text).into_response())
}
