//! `/v1/responses`: converted to a chat and back, as vLLM does. Text and functions. Answers are stored, with
//! what was said before them, and only whoever gave one knows it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::Value;

use super::answer::{self, Form, Kind};
use super::{ApiError, App, openai, parse};

mod events;
mod input;

use events::Responses;

/// Answers kept at most; vLLM keeps all.
const STORED_MAX: usize = 10_000;

/// Names of the answers given, with the messages of their conversations.
#[derive(Debug, Default)]
pub(super) struct Stored(Mutex<VecDeque<(String, Vec<Value>)>>);

impl Stored {
    fn get(&self, name: &str) -> Option<Vec<Value>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(id, _)| id == name);
        found.map(|(_, messages)| messages.clone())
    }

    fn put(&self, name: String, messages: Vec<Value>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.push_back((name, messages));
        if known.len() > STORED_MAX {
            known.pop_front();
        }
    }
}

pub(super) async fn create(
    app: Arc<App>,
    stored: Arc<Stored>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body = parse(&body)?;
    let before = match body["previous_response_id"].as_str() {
        None => Vec::new(),
        Some(previous) => stored.get(previous).ok_or_else(|| {
            let message = format!("Response with id '{previous}' not found.");
            ApiError(StatusCode::NOT_FOUND, "NotFoundError", message)
        })?,
    };
    let number = app.shared.next_id.fetch_add(1, Ordering::Relaxed);
    let (name, incarnation) = (&app.shared.config.name, app.shared.incarnation);
    let id = format!("resp_{name}_{incarnation}_{number}");
    let chat = input::to_chat(&body, before).map_err(ApiError::bad_request)?;
    let form = Responses::new(id, &body, &chat, stored);
    let (call, outputs) = openai::submit(&app, Kind::Chat, headers, || Ok(chat)).await?;
    answer::respond(app, call, outputs, Box::new(form)).await
}
