//! `/v1/chat/completions` and `/v1/completions`: from a body to requests in the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde_json::Value;
use tokio::sync::mpsc;

use super::answer::{self, Call, Kind, Outputs, Plain};
use super::{ApiError, App, parse, session_of};
use crate::core::{Command, Job};
use crate::generate::{Answer, Ask, Random, answer as plan};
use crate::hash::Hasher;
use crate::scheduler::NewRequest;
use crate::template::Chat;

/// A text above this many bytes a token is too long without tokenising it, which for tens of MB would
/// take minutes and gigabytes. Real text of this vocabulary has 3 to 6.
const MOST_BYTES_PER_TOKEN: usize = 16;
const MOST_SALT_CHARS: usize = 1024;
const DEFAULT_COMPLETION_TOKENS: usize = 16;

pub(super) async fn chat(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    serve(app, Kind::Chat, headers, body).await
}

pub(super) async fn completions(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    serve(app, Kind::Completion, headers, body).await
}

/// `POST /v1/chat/completions/render`: the tokens that a body becomes, without computing any.
pub(super) async fn render_chat(
    State(app): State<Arc<App>>,
    body: Bytes,
) -> Result<axum::Json<Value>, ApiError> {
    can_render(&app)?;
    let chat = Chat::of_body(&parse(&body)?).map_err(ApiError::bad_request)?;
    Ok(axum::Json(rendered(&tokens_of_text(&app, &chat.render())?)))
}

/// The same of a completion: a list, one entry for each prompt.
pub(super) async fn render_completions(
    State(app): State<Arc<App>>,
    body: Bytes,
) -> Result<axum::Json<Value>, ApiError> {
    can_render(&app)?;
    let prompts = completion_prompts(&app, &parse(&body)?["prompt"])?;
    Ok(axum::Json(
        prompts.iter().map(|ids| rendered(ids)).collect(),
    ))
}

fn can_render(app: &App) -> Result<(), ApiError> {
    let known = app.shared.config.wire.has_render();
    let unknown = || ApiError(StatusCode::NOT_FOUND, "NotFoundError", "Not Found".into());
    known.then_some(()).ok_or_else(unknown)
}

fn rendered(ids: &[u32]) -> Value {
    serde_json::json!({"token_ids": ids, "features": null})
}

async fn serve(
    app: Arc<App>,
    kind: Kind,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let (call, outputs) = submit(&app, kind, headers, move || parse(&body)).await?;
    answer::respond(app, call, outputs, Box::new(Plain)).await
}

/// Prompts and planned answers of one call.
pub(super) struct Prepared {
    pub(super) call: Call,
    pub(super) requests: Vec<NewRequest>,
}

/// Hands a call to the engine; `read` gives it in the shape of chat completions, or of text completions.
pub(super) async fn submit(
    app: &Arc<App>,
    kind: Kind,
    headers: HeaderMap,
    read: impl FnOnce() -> Result<Value, ApiError> + Send + 'static,
) -> Result<(Call, Outputs), ApiError> {
    let prepare_from = Arc::clone(app);
    let prepared = move |headers: &HeaderMap| prepare(&prepare_from, kind, headers, &read()?);
    submit_prepared(app, headers, prepared).await
}

/// As [`submit`], with requests of the caller's making.
pub(super) async fn submit_prepared(
    app: &Arc<App>,
    headers: HeaderMap,
    prepared: impl FnOnce(&HeaderMap) -> Result<Prepared, ApiError> + Send + 'static,
) -> Result<(Call, Outputs), ApiError> {
    let arrival = Instant::now();
    app.refuse_by_fault()?;
    let json = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("");
    if !json
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .eq_ignore_ascii_case("application/json")
    {
        return Err(ApiError::bad_request(
            "Unsupported Media Type: Only 'application/json' is allowed",
        ));
    }
    let Prepared { call, requests } = tokio::task::spawn_blocking(move || prepared(&headers))
        .await
        .map_err(|e| ApiError::internal(e.to_string()))??;
    let tokens = requests.iter().map(|r| r.prompt.len() as u64).sum();
    app.admit(u32::try_from(requests.len()).unwrap_or(u32::MAX), tokens)?;
    let (outputs, receiver) = mpsc::unbounded_channel();
    let job = |(index, new)| Job {
        new,
        index,
        outputs: outputs.clone(),
        arrival,
    };
    let jobs = requests.into_iter().enumerate().map(job).collect();
    app.engine
        .send(Command::Add(jobs))
        .map_err(|_| ApiError::internal("the engine is gone"))?;
    Ok((call, receiver))
}

fn prepare(app: &App, kind: Kind, headers: &HeaderMap, body: &Value) -> Result<Prepared, ApiError> {
    if !body.is_object() {
        return Err(ApiError::bad_request("body: an object is required"));
    }
    let config = &app.shared.config;
    let lora = adapter(app, &body["model"])?;
    let copies = usize::try_from(body["n"].as_u64().unwrap_or(1).clamp(1, 128)).unwrap_or(1);
    let salt = match &body["cache_salt"] {
        Value::Null => None,
        Value::String(s) if (1..=MOST_SALT_CHARS).contains(&s.chars().count()) => Some(s.clone()),
        _ => {
            return Err(ApiError::bad_request(
                "Parameter 'cache_salt' must be a non-empty string if provided.",
            ));
        }
    };
    let (prompts, chat) = match kind {
        Kind::Chat => {
            let chat = Chat::of_body(body).map_err(ApiError::bad_request)?;
            (vec![tokens_of_text(app, &chat.render())?], Some(chat))
        }
        Kind::Completion => (completion_prompts(app, &body["prompt"])?, None),
    };
    let named = lora
        .as_ref()
        .map(|(_, name, path)| (name.as_str(), path.as_str()));
    let hasher = Hasher::new(config.wire, app.none_hash, named, salt.as_deref());
    let (mut requests, mut answers, mut prompt_ids) = (Vec::new(), Vec::new(), Vec::new());
    for mut prompt in prompts {
        truncate(body, &mut prompt, config.max_model_len())?;
        let max_tokens = max_tokens(kind, body, prompt.len(), config.max_model_len() as usize)?;
        for copy in 0..copies {
            let mut random = Random::of(config.seed + copy as u64, &prompt);
            let tools = chat
                .as_ref()
                .map(|chat| callable(chat, body))
                .unwrap_or_default();
            let ask = Ask {
                max_tokens,
                ignore_eos: body["ignore_eos"].as_bool().unwrap_or(false),
                starts_turn: chat.as_ref().is_some_and(|c| c.add_generation_prompt),
                call_one_of: tools,
                noncanonical_rate: config.noncanonical_rate,
            };
            let answer: Answer = plan(&app.model, &mut random, &ask)
                .map_err(|e| ApiError::internal(e.to_string()))?;
            requests.push(NewRequest {
                id: app.shared.next_id.fetch_add(1, Ordering::Relaxed),
                prompt: prompt.clone(),
                output: answer.tokens.clone(),
                hasher: hasher.clone(),
                lora: lora.as_ref().map(|(id, name, _)| (*id, name.clone())),
                salt: salt.clone(),
                session: session_of(headers, body),
                skip_read: !config.prefix_caching
                    || !matches!(body["prompt_logprobs"], Value::Null),
                report_full: config.wire.has_report_mode()
                    && body["vllm_xargs"]["kv_cache_report_mode"] == "full",
            });
            answers.push(answer);
        }
        prompt_ids.push(prompt);
    }
    let call = Call::new(app, kind, body, answers, prompt_ids, copies);
    Ok(Prepared { call, requests })
}

/// 1-based id, name and path of the adapter that `model` names; none for the base model.
pub(super) fn adapter(app: &App, model: &Value) -> Result<Option<(u32, String, String)>, ApiError> {
    let config = &app.shared.config;
    let Some(name) = model.as_str().filter(|name| *name != config.model) else {
        return Ok(None);
    };
    if let Some((id, lora)) = app.shared.adapters().get(name) {
        return Ok(Some((id, lora.name, lora.path)));
    }
    let message = format!(
        "The model `{name}` does not exist. Valid aliases: {}.",
        config.model
    );
    Err(ApiError(StatusCode::NOT_FOUND, "NotFoundError", message))
}

/// With tools on offer a user's turn is answered by a call of one of them.
fn callable<'a>(chat: &'a Chat, body: &Value) -> &'a [Value] {
    let answers_user = chat.last_role() == "user" && chat.add_generation_prompt;
    if answers_user && body["tool_choice"] != "none" {
        chat.tools()
    } else {
        &[]
    }
}

fn too_long(max: u32, count: usize) -> ApiError {
    ApiError::bad_request(format!(
        "This model's maximum context length is {max} tokens. However, your prompt contains {count} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={count})"
    ))
}

pub(super) fn tokens_of_text(app: &App, text: &str) -> Result<Vec<u32>, ApiError> {
    let max = app.shared.config.max_model_len();
    let least = text.len() / MOST_BYTES_PER_TOKEN;
    if least > max as usize {
        return Err(too_long(max, least));
    }
    app.model
        .encode(text)
        .map_err(|e| ApiError::internal(e.to_string()))
}

/// A string, a list of token ids, or a list of either.
pub(super) fn completion_prompts(app: &App, prompt: &Value) -> Result<Vec<Vec<u32>>, ApiError> {
    let one = |prompt: &Value| match prompt {
        Value::String(text) => tokens_of_text(app, text),
        Value::Array(ids) => ids.iter().map(|id| token_id(app, id)).collect(),
        _ => Err(ApiError::bad_request(
            "prompt: a string, token ids, or a list of them is required",
        )),
    };
    let prompts = match prompt {
        Value::Array(items) if items.first().is_some_and(|item| !item.is_number()) => {
            items.iter().map(one).collect::<Result<Vec<_>, _>>()?
        }
        other => vec![one(other)?],
    };
    if prompts.iter().any(Vec::is_empty) {
        return Err(ApiError::bad_request("The decoder prompt cannot be empty"));
    }
    Ok(prompts)
}

fn token_id(app: &App, id: &Value) -> Result<u32, ApiError> {
    match id.as_u64() {
        Some(n) if n < app.model.vocab_size() as u64 => Ok(u32::try_from(n).unwrap_or(u32::MAX)),
        _ => Err(ApiError::bad_request(format!(
            "Token id {id} is out of vocabulary"
        ))),
    }
}

/// `truncate_prompt_tokens` keeps the prompt's end; -1 keeps what the model can take.
pub(super) fn truncate(body: &Value, prompt: &mut Vec<u32>, max: u32) -> Result<(), ApiError> {
    let keep = match body["truncate_prompt_tokens"].as_i64() {
        None => prompt.len(),
        Some(-1) => max as usize - 1,
        Some(n) => usize::try_from(n)
            .ok()
            .filter(|n| (1..=max as usize).contains(n))
            .ok_or_else(|| {
                ApiError::bad_request(format!(
                    "truncate_prompt_tokens value ({n}) is greater than max_model_len ({max})"
                ))
            })?,
    };
    let excess = prompt.len().saturating_sub(keep);
    prompt.drain(..excess);
    if prompt.len() >= max as usize {
        Err(too_long(max, prompt.len()))
    } else {
        Ok(())
    }
}

fn max_tokens(kind: Kind, body: &Value, prompt: usize, max: usize) -> Result<usize, ApiError> {
    let room = max - prompt;
    let given = match &body["max_completion_tokens"] {
        Value::Null => &body["max_tokens"],
        given => given,
    };
    let wanted = match (given, kind) {
        (Value::Null, Kind::Chat) => room,
        (Value::Null, Kind::Completion) => DEFAULT_COMPLETION_TOKENS.min(room),
        (n, _) => match n.as_u64() {
            Some(n) if n > 0 => usize::try_from(n).unwrap_or(usize::MAX),
            _ => {
                return Err(ApiError::bad_request(format!(
                    "max_tokens must be at least 1, got {n}."
                )));
            }
        },
    };
    if wanted > room {
        return Err(ApiError::bad_request(format!(
            "This model's maximum context length is {max} tokens. However, you requested {wanted} output tokens and your prompt contains at least {prompt} input tokens. Please reduce the length of the input prompt or the number of requested output tokens."
        )));
    }
    Ok(wanted)
}
