//! Answers in OpenAI's forms: whole, or as server-sent events.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{ApiError, App};
use crate::generate::Answer;
use crate::model::Detokenizer;
use crate::scheduler::Output;

/// Which endpoint was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Completion,
}

/// Chunks under way to a client that does not read.
const STREAM_BUFFER: usize = 64;
/// Prompt tokens found in the cache, one number per prompt and copy: more than `usage` tells.
const CACHED_HEADER: HeaderName = HeaderName::from_static("x-engine-cached-tokens");

pub(super) type Outputs = mpsc::UnboundedReceiver<(usize, Output)>;

/// How a client is told a chat: as it is, or in another interface's shapes. vLLM, too, answers those by
/// converting what it would answer to a chat.
pub(super) trait Form: Send {
    /// A whole answer.
    fn whole(&mut self, answer: Value) -> Value;
    /// The server-sent events of one chunk.
    fn chunk(&mut self, chunk: &Value) -> String;
    /// What ends the stream.
    fn end(&mut self) -> String;
}

/// OpenAI's chat and text completions.
pub(super) struct Plain;

impl Form for Plain {
    fn whole(&mut self, answer: Value) -> Value {
        answer
    }
    fn chunk(&mut self, chunk: &Value) -> String {
        format!("data: {chunk}\n\n")
    }
    fn end(&mut self) -> String {
        "data: [DONE]\n\n".into()
    }
}

/// A call as its answer needs it.
pub(super) struct Call {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
    fingerprint: String,
    stream: bool,
    include_usage: bool,
    /// Every chunk tells the usage so far.
    continuous_usage: bool,
    tell_cached: bool,
    return_token_ids: bool,
    echo: bool,
    block_size: usize,
    answers: Vec<Answer>,
    prompts: Vec<Vec<u32>>,
    copies: usize,
}

impl Call {
    pub(super) fn new(
        app: &App,
        kind: Kind,
        body: &Value,
        answers: Vec<Answer>,
        prompts: Vec<Vec<u32>>,
        copies: usize,
    ) -> Self {
        let config = &app.shared.config;
        let number = app
            .shared
            .next_id
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let prefix = if kind == Kind::Chat {
            "chatcmpl"
        } else {
            "cmpl"
        };
        let flag = |value: &Value| value.as_bool().unwrap_or(false);
        Self {
            kind,
            id: format!(
                "{prefix}-{}-{}-{number}",
                config.name, app.shared.incarnation
            ),
            created: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
            model: body["model"].as_str().unwrap_or(&config.model).to_owned(),
            fingerprint: config.name.clone(),
            stream: flag(&body["stream"]),
            include_usage: config.force_include_usage
                || flag(&body["stream_options"]["include_usage"]),
            tell_cached: config.prompt_tokens_details,
            continuous_usage: flag(&body["stream_options"]["continuous_usage_stats"]),
            return_token_ids: flag(&body["return_token_ids"]),
            echo: flag(&body["echo"]),
            block_size: config.block_size as usize,
            answers,
            prompts,
            copies,
        }
    }

    fn object(&self, streamed: bool) -> &'static str {
        match (self.kind, streamed) {
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
            (Kind::Completion, _) => "text_completion",
        }
    }

    fn envelope(&self, streamed: bool, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut body = json!({"id": self.id, "object": self.object(streamed), "created": self.created, "model": self.model,
            "system_fingerprint": self.fingerprint, "choices": choices});
        if let Some(usage) = usage {
            body["usage"] = usage;
        }
        body
    }

    /// vLLM counts a prompt once whatever `n` is, and reports the hit of the last request.
    fn usage(&self, completion: usize, cached: &[u32]) -> Value {
        let prompt: usize = self.prompts.iter().map(Vec::len).sum();
        let hit = cached.last().copied().unwrap_or(0);
        let created = match self.kind {
            Kind::Chat => {
                json!((prompt / self.block_size * self.block_size).saturating_sub(hit as usize))
            }
            Kind::Completion => Value::Null,
        };
        let details = self.tell_cached.then(
            || json!({"cached_tokens": hit, "created_cache_tokens": created, "multimodal_tokens": null}),
        );
        json!({"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion,
            "prompt_tokens_details": details, "completion_tokens_details": null})
    }

    fn finish_reason(&self, index: usize) -> &'static str {
        match self.answers.get(index) {
            Some(Answer { call: Some(_), .. }) => "tool_calls",
            Some(Answer { stopped: true, .. }) => "stop",
            _ => "length",
        }
    }

    fn tool_call(&self, index: usize) -> Option<Value> {
        let (name, arguments) = self.answers.get(index)?.call.as_ref()?;
        let id = format!("call-{}-{index}", self.id);
        Some(
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}),
        )
    }

    fn echoed(&self, app: &App, index: usize) -> String {
        match self.prompts.get(index / self.copies) {
            Some(prompt) if self.echo => app.model.decode(prompt),
            _ => String::new(),
        }
    }
}

/// Answers one call.
pub(super) async fn respond(
    app: Arc<App>,
    call: Call,
    outputs: Outputs,
    mut form: Box<dyn Form>,
) -> Result<Response, ApiError> {
    if call.stream {
        return Ok(streamed(app, call, outputs, form));
    }
    let (body, cached) = whole(&app, &call, outputs).await?;
    Ok(with_cached(&cached, form.whole(body)))
}

/// A body, with the hit of every prompt and copy beside it.
pub(super) fn with_cached(cached: &[u32], body: Value) -> Response {
    let cached: Vec<_> = cached.iter().map(u32::to_string).collect();
    ([(CACHED_HEADER, cached.join(","))], axum::Json(body)).into_response()
}

/// Tokens generated, and tokens found cached, of `count` requests.
pub(super) async fn finished(
    mut outputs: Outputs,
    count: usize,
) -> Result<(Vec<Vec<u32>>, Vec<u32>), ApiError> {
    let (mut tokens, mut cached, mut finished) = (vec![Vec::new(); count], vec![0; count], 0);
    while finished < count {
        let Some((index, output)) = outputs.recv().await else {
            return Err(ApiError::internal(
                "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            ));
        };
        tokens[index].push(output.token);
        cached[index] = output.cached_tokens;
        finished += usize::from(output.finished);
    }
    Ok((tokens, cached))
}

async fn whole(app: &App, call: &Call, outputs: Outputs) -> Result<(Value, Vec<u32>), ApiError> {
    let (tokens, cached) = finished(outputs, call.answers.len()).await?;
    let choices = tokens.iter().enumerate();
    let choices = choices
        .map(|(index, tokens)| choice(app, call, index, tokens))
        .collect();
    let usage = call.usage(tokens.iter().map(Vec::len).sum(), &cached);
    let mut body = call.envelope(false, choices, Some(usage));
    if call.kind == Kind::Chat {
        body["prompt_token_ids"] = if call.return_token_ids {
            json!(call.prompts.first())
        } else {
            Value::Null
        };
    }
    body["kv_transfer_params"] = Value::Null;
    Ok((body, cached))
}

fn choice(app: &App, call: &Call, index: usize, tokens: &[u32]) -> Value {
    let text = app.model.decode(tokens);
    let ids = if call.return_token_ids {
        json!(tokens)
    } else {
        Value::Null
    };
    let mut choice = json!({"index": index, "logprobs": null, "finish_reason": call.finish_reason(index), "stop_reason": null, "token_ids": ids});
    match call.kind {
        Kind::Chat => {
            let mut message = json!({"role": "assistant", "content": text, "refusal": null, "annotations": null, "audio": null, "function_call": null, "reasoning": null});
            if let Some(tool_call) = call.tool_call(index) {
                message["content"] = Value::Null;
                message["tool_calls"] = json!([tool_call]);
            }
            choice["message"] = message;
        }
        Kind::Completion => {
            choice["text"] = json!(call.echoed(app, index) + &text);
            let prompt = call.prompts.get(index / call.copies);
            choice["prompt_token_ids"] = if call.return_token_ids {
                json!(prompt)
            } else {
                Value::Null
            };
        }
    }
    choice
}

fn streamed(app: Arc<App>, call: Call, outputs: Outputs, form: Box<dyn Form>) -> Response {
    let (send, receive) = mpsc::channel(STREAM_BUFFER);
    tokio::spawn(write_stream(app, call, outputs, form, send));
    let body = stream::unfold(
        receive,
        async |mut receive: mpsc::Receiver<Result<Bytes, std::io::Error>>| {
            receive.recv().await.map(|chunk| (chunk, receive))
        },
    );
    let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (kind, Body::from_stream(body)).into_response()
}

/// Ends early when the client is gone: then the outputs' receiver is dropped, and the engine aborts.
async fn write_stream(
    app: Arc<App>,
    call: Call,
    mut outputs: Outputs,
    mut form: Box<dyn Form>,
    send: mpsc::Sender<Result<Bytes, std::io::Error>>,
) {
    let count = call.answers.len();
    let mut texts: Vec<Detokenizer> = (0..count).map(|_| Detokenizer::default()).collect();
    let (mut started, mut cached, mut finished, mut tokens) =
        (vec![false; count], vec![0; count], 0, 0);
    while finished < count {
        let output = tokio::select! {
            output = outputs.recv() => output,
            () = send.closed() => return,
        };
        let Some((index, output)) = output else {
            let broken = std::io::Error::other("the engine died");
            let _ = send.send(Err(broken)).await;
            return;
        };
        tokens += 1;
        cached[index] = output.cached_tokens;
        let mut chunks = Vec::new();
        if !std::mem::replace(&mut started[index], true) {
            chunks.extend(first_chunk(&app, &call, index));
        }
        let mut text = texts[index].push(&app.model, output.token);
        if output.finished {
            finished += 1;
            text += &texts[index].finish();
        }
        chunks.extend(chunk(&call, index, text, &output));
        for chunk in chunks {
            let usage = call.continuous_usage.then(|| call.usage(tokens, &cached));
            let events = form.chunk(&call.envelope(true, vec![chunk], usage));
            if send.send(Ok(events.into())).await.is_err() {
                return;
            }
        }
    }
    if call.include_usage {
        let usage = call.usage(tokens, &cached);
        let events = form.chunk(&call.envelope(true, Vec::new(), Some(usage)));
        let _ = send.send(Ok(events.into())).await;
    }
    let _ = send.send(Ok(form.end().into())).await;
}

fn first_chunk(app: &App, call: &Call, index: usize) -> Option<Value> {
    match call.kind {
        Kind::Chat => Some(
            json!({"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}),
        ),
        Kind::Completion if call.echo => Some(
            json!({"index": index, "text": call.echoed(app, index), "logprobs": null, "finish_reason": null, "stop_reason": null}),
        ),
        Kind::Completion => None,
    }
}

/// Nothing for a token that ends inside a character or inside a tool call.
fn chunk(call: &Call, index: usize, text: String, output: &Output) -> Option<Value> {
    let reason = output.finished.then(|| call.finish_reason(index));
    let calls = call.answers.get(index).is_some_and(|a| a.call.is_some());
    if reason.is_none() && (text.is_empty() || calls) {
        return None;
    }
    let mut chunk =
        json!({"index": index, "logprobs": null, "finish_reason": reason, "stop_reason": null});
    match call.kind {
        Kind::Completion => chunk["text"] = json!(text),
        Kind::Chat => {
            chunk["delta"] = match call.tool_call(index) {
                Some(mut tool_call) => {
                    tool_call["index"] = json!(0);
                    json!({"tool_calls": [tool_call]})
                }
                None => json!({"content": text}),
            };
        }
    }
    if call.return_token_ids {
        chunk["token_ids"] = json!([output.token]);
    }
    Some(chunk)
}
