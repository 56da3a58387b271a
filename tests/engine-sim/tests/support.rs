//! What the tests of a running engine share.
// Each test program uses its part; panics are how tests fail.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic
)]

use engine_sim::{Config, Engine};
use serde_json::{Value, json};

pub struct Answer {
    pub status: u16,
    pub engine: String,
    pub cached: String,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }
    pub fn cached_tokens(&self) -> u64 {
        self.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    }
}

pub fn start(config: Config) -> Engine {
    engine_sim::spawn(config).unwrap()
}

pub async fn post(engine: &Engine, path: &str, body: &Value) -> Answer {
    post_bytes(engine, path, body.to_string().into_bytes()).await
}

pub async fn post_bytes(engine: &Engine, path: &str, body: Vec<u8>) -> Answer {
    let request = reqwest::Client::new()
        .post(engine.url() + path)
        .header("content-type", "application/json");
    answer(request.body(body).send().await.unwrap()).await
}

pub async fn get(engine: &Engine, path: &str) -> Answer {
    answer(reqwest::get(engine.url() + path).await.unwrap()).await
}

async fn answer(response: reqwest::Response) -> Answer {
    let header = |name| {
        response
            .headers()
            .get(name)
            .map_or(String::new(), |v| v.to_str().unwrap().to_owned())
    };
    let (engine, cached) = (header("x-engine"), header("x-engine-cached-tokens"));
    Answer {
        status: response.status().as_u16(),
        engine,
        cached,
        text: response.text().await.unwrap(),
    }
}

pub async fn fault(engine: &Engine, fault: Value) {
    assert_eq!(
        post(engine, "/sim/fault", &fault).await.status,
        200,
        "{fault}"
    );
}

pub async fn state(engine: &Engine) -> Value {
    get(engine, "/sim/state?since=0").await.json()
}

/// A user's words that fill some blocks of 16 tokens.
pub fn chat(words: &str) -> Value {
    let rules =
        "You are a careful assistant. Answer briefly, name your source, say when you do not know. "
            .repeat(4);
    json!({"model": "sim", "messages": [{"role": "system", "content": rules}, {"role": "user", "content": words}], "max_tokens": 40})
}
