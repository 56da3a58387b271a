//! `/v1/responses`, as far as routing is concerned: answers are stored, and only whoever gave one knows
//! it. Nothing is computed or cached.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::{ApiError, App};

/// Answers kept at most; vLLM keeps all.
const STORED_MAX: usize = 10_000;

/// Names of the answers given.
#[derive(Debug, Default)]
pub(super) struct Stored(Mutex<VecDeque<String>>);

pub(super) async fn create(
    app: Arc<App>,
    stored: Arc<Stored>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body: Value =
        serde_json::from_slice(&body).map_err(|e| ApiError::bad_request(e.to_string()))?;
    let mut known = stored.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(previous) = body["previous_response_id"].as_str()
        && !known.iter().any(|id| id == previous)
    {
        let message = format!("Response with id '{previous}' not found.");
        return Err(ApiError(StatusCode::NOT_FOUND, "NotFoundError", message));
    }
    let number = app.shared.next_id.fetch_add(1, Ordering::Relaxed);
    let id = format!(
        "resp_{}_{}_{number}",
        app.shared.config.name, app.shared.incarnation
    );
    known.push_back(id.clone());
    if known.len() > STORED_MAX {
        known.pop_front();
    }
    drop(known);
    let output = json!([{"id": format!("msg_{number}"), "type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes."}]}]);
    let usage = json!({"input_tokens": 8, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2, "total_tokens": 10});
    let whole = json!({"id": id, "object": "response", "status": "completed",
        "model": app.shared.config.model, "output": output, "usage": usage});
    if body["stream"].as_bool() != Some(true) {
        return Ok(axum::Json(whole).into_response());
    }
    let mut begun = whole.clone();
    begun["status"] = json!("in_progress");
    let events = [("response.created", begun), ("response.completed", whole)];
    let events = events.map(|(kind, response)| {
        format!(
            "event: {kind}\ndata: {}\n\n",
            json!({"type": kind, "response": response})
        )
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    Ok((kind, events.concat()).into_response())
}
