//! `/v1/embeddings` of a pooling model (`--runner pooling`): a vector by the prompt, computed when the
//! prompt's blocks are, which are cached and announced as those of a chat.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use serde_json::{Value, json};

use super::answer::{self, Call, Kind};
use super::openai::{self, Prepared};
use super::{ApiError, App, parse, session_of};
use crate::generate::{Answer, Random};
use crate::hash::Hasher;
use crate::scheduler::NewRequest;
use crate::template::Chat;

/// Numbers in a vector.
const DIMENSIONS: usize = 16;

pub(super) async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body = parse(&body)?;
    let as_base64 = body["encoding_format"] == "base64";
    let prompts = prompts(&app, &body)?;
    let seed = app.shared.config.seed;
    let vectors: Vec<Vec<f32>> = prompts.iter().map(|prompt| vector(seed, prompt)).collect();
    let tokens: usize = prompts.iter().map(Vec::len).sum();
    let model = body["model"]
        .as_str()
        .unwrap_or(&app.shared.config.model)
        .to_owned();
    let from = Arc::clone(&app);
    let count = prompts.len();
    let prepared =
        move |headers: &HeaderMap| prepare(&from, &body, prompts, session_of(headers, &body));
    let (_, outputs) = openai::submit_prepared(&app, headers, prepared).await?;
    let (_, cached) = answer::finished(outputs, count).await?;
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let embedding = if as_base64 {
            json!(base64_of(vector))
        } else {
            json!(vector)
        };
        json!({"index": index, "object": "embedding", "embedding": embedding})
    });
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": null});
    let number = app.shared.next_id.fetch_add(1, Ordering::Relaxed);
    let body = json!({"id": format!("embd-{}-{number}", app.shared.config.name), "object": "list", "created": 0,
        "model": model, "data": data.collect::<Value>(), "usage": usage});
    Ok(answer::with_cached(&cached, body))
}

fn prompts(app: &App, body: &Value) -> Result<Vec<Vec<u32>>, ApiError> {
    let mut prompts = if body["messages"].is_null() {
        openai::completion_prompts(app, &body["input"])?
    } else {
        let mut chat = Chat::of_body(body).map_err(ApiError::bad_request)?;
        chat.add_generation_prompt = body["add_generation_prompt"] == true;
        vec![openai::tokens_of_text(app, &chat.render())?]
    };
    for prompt in &mut prompts {
        openai::truncate(body, prompt, app.shared.config.max_model_len())?;
    }
    Ok(prompts)
}

/// One token that is never told stands for the pooling.
fn prepare(
    app: &App,
    body: &Value,
    prompts: Vec<Vec<u32>>,
    session: Option<String>,
) -> Result<Prepared, ApiError> {
    let config = &app.shared.config;
    let lora = openai::adapter(app, &body["model"])?;
    let salt = body["cache_salt"].as_str().map(String::from);
    let named = lora
        .as_ref()
        .map(|(_, name, path)| (name.as_str(), path.as_str()));
    let hasher = Hasher::new(config.wire, app.none_hash, named, salt.as_deref());
    let answer = || Answer {
        tokens: vec![app.model.end_of_turn()],
        stopped: true,
        call: None,
    };
    let request = |prompt: &Vec<u32>| NewRequest {
        id: app.shared.next_id.fetch_add(1, Ordering::Relaxed),
        prompt: prompt.clone(),
        output: answer().tokens,
        hasher: hasher.clone(),
        lora: lora.as_ref().map(|(id, name, _)| (*id, name.clone())),
        salt: salt.clone(),
        session: session.clone(),
        skip_read: false,
        report_full: false,
    };
    let requests = prompts.iter().map(request).collect();
    let answers = prompts.iter().map(|_| answer()).collect();
    let call = Call::new(app, Kind::Completion, body, answers, prompts, 1);
    Ok(Prepared { call, requests })
}

/// Of length 1, and the same for the same prompt.
fn vector(seed: u64, prompt: &[u32]) -> Vec<f32> {
    let mut random = Random::of(seed, prompt);
    let numbers: Vec<f32> = (0..DIMENSIONS)
        .map(|_| (random.next() >> 40) as f32 / (1u32 << 24) as f32 - 0.5)
        .collect();
    let length = numbers.iter().map(|n| n * n).sum::<f32>().sqrt();
    numbers.iter().map(|n| n / length).collect()
}

fn base64_of(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|n| n.to_le_bytes()).collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
