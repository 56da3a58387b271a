//! Sends OpenAI requests and reads what the engine says it had cached.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

/// What came back for one request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// `usage.prompt_tokens`.
    pub prompt_tokens: u64,
    /// `usage.prompt_tokens_details.cached_tokens`, if the answer has it.
    pub cached_tokens: Option<u64>,
    /// `x-engine-rank`: which of its ranks a simulated engine gave the answer by.
    pub engine_rank: Option<u16>,
    /// The text of the first choice.
    pub text: String,
    /// From the first byte sent to the last received.
    pub took: Duration,
    /// The whole answer, for messages.
    pub body: String,
}

/// An HTTP client of one gateway.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    /// A client of `http://127.0.0.1:<port>`.
    ///
    /// # Errors
    /// The HTTP library cannot be set up.
    pub fn new(port: u16) -> Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(120))
            .no_proxy()
            .build()?;
        Ok(Self {
            http,
            base: format!("http://127.0.0.1:{port}"),
        })
    }

    /// Posts `body` to `path` under a request id.
    ///
    /// # Errors
    /// No HTTP answer came (refused, reset, timed out).
    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        request_id: &str,
        headers: &[(&str, &str)],
    ) -> Result<Reply> {
        let start = Instant::now();
        let mut request = self
            .http
            .post(format!("{}{path}", self.base))
            .header("x-request-id", request_id)
            .json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request
            .send()
            .await
            .with_context(|| format!("request {request_id}"))?;
        let status = answer.status().as_u16();
        let rank = answer.headers().get("x-engine-rank");
        let engine_rank = rank.and_then(|rank| rank.to_str().ok()?.parse().ok());
        let body = answer
            .text()
            .await
            .with_context(|| format!("the answer to {request_id}"))?;
        let took = start.elapsed();
        let mut reply = Reply {
            status,
            prompt_tokens: 0,
            cached_tokens: None,
            engine_rank,
            text: String::new(),
            took,
            body,
        };
        reply.read_body();
        Ok(reply)
    }

    /// `GET path`: status and body.
    ///
    /// # Errors
    /// No HTTP answer came.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        self.get_with(path, &[]).await
    }

    /// As [`Client::get`], with headers.
    ///
    /// # Errors
    /// No HTTP answer came.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Result<(u16, String)> {
        let mut request = self.http.get(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}

impl Reply {
    /// Reads usage and text from a JSON answer or from a stream of server-sent events.
    fn read_body(&mut self) {
        let body = std::mem::take(&mut self.body);
        if body.starts_with("data:") || body.starts_with("event:") {
            for line in body.lines().filter_map(|l| l.strip_prefix("data:")) {
                if let Ok(chunk) = serde_json::from_str::<Value>(line) {
                    self.read_chunk(&chunk);
                }
            }
        } else if let Ok(value) = serde_json::from_str::<Value>(&body) {
            self.read_chunk(&value);
        }
        self.body = body;
    }

    fn read_chunk(&mut self, value: &Value) {
        let text = [
            "/choices/0/message/content",
            "/choices/0/delta/content",
            "/choices/0/text",
        ];
        if let Some(part) = text
            .iter()
            .find_map(|p| value.pointer(p))
            .and_then(Value::as_str)
        {
            self.text.push_str(part);
        }
        // Chat and completions, responses (alone and in a stream), messages (alone and in a stream).
        let prompt = [
            "/usage/prompt_tokens",
            "/usage/input_tokens",
            "/response/usage/input_tokens",
            "/message/usage/input_tokens",
        ];
        if let Some(n) = number(value, &prompt) {
            self.prompt_tokens = n;
        }
        let cached = [
            "/usage/prompt_tokens_details/cached_tokens",
            "/usage/input_tokens_details/cached_tokens",
            "/response/usage/input_tokens_details/cached_tokens",
            "/usage/cache_read_input_tokens",
            "/message/usage/cache_read_input_tokens",
        ];
        if let Some(n) = number(value, &cached) {
            self.cached_tokens = Some(n);
        }
    }
}

/// Prompt tokens and cached tokens that an answer tells, whole or as a stream; 0 where it does not.
#[must_use]
pub fn usage(body: &str) -> (u64, u64) {
    // Of a stream the last event but the end has it.
    let events = body.lines().rev().filter_map(|l| l.strip_prefix("data: "));
    let last = events.into_iter().find(|event| event.contains("\"usage\""));
    let value = serde_json::from_str(last.unwrap_or(body)).unwrap_or(Value::Null);
    let prompt = number(&value, &["/usage/prompt_tokens"]);
    let cached = number(&value, &["/usage/prompt_tokens_details/cached_tokens"]);
    (prompt.unwrap_or(0), cached.unwrap_or(0))
}

/// The first number at one of the places.
fn number(value: &Value, places: &[&str]) -> Option<u64> {
    let at = |place: &&str| value.pointer(place).and_then(Value::as_u64);
    places.iter().find_map(at)
}
