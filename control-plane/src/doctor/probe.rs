//! Sees one replica: asks its HTTP endpoints, subscribes to its events, asks for a replay and sends a
//! few requests of one token.

use std::time::Duration;

use prefix_picker_core::prompt::Api;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::config::{PoolConfig, ReplicaConfig};
use crate::events::Stored;
use crate::facts::models::Models;
use crate::facts::sources;

mod bodies;
mod events;
mod http;

use events::Listener;
pub use events::{Heard, Replayed};
pub use http::Failed;
use http::Http;

/// How long a connection may take to stand.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a small answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a request of one token may take: engines may be busy.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A publisher heeds a subscription a moment after the connection stands.
const SUBSCRIBED_AFTER: Duration = Duration::from_millis(300);
/// How long the events of a request are waited for.
const EVENTS_WITHIN: Duration = Duration::from_secs(2);
/// Requests sent until their events are heard.
const TRIES: u32 = 2;

/// What was seen of a replica.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `GET` of its health check.
    pub health: Result<(), Failed>,
    /// `/version`.
    pub version: Option<String>,
    /// `/v1/models`.
    pub models: Result<Models, Failed>,
    /// Its metrics.
    pub metrics: Result<String, Failed>,
    /// `/kv_event_sources`, where there is such.
    pub sources: Option<Vec<u8>>,
    /// `/server_info`, where there is such.
    pub server_info: Option<Value>,
    /// The connection to its events.
    pub events: Result<(), String>,
    /// Its replay socket's answer; `None`: none is configured.
    pub replay: Option<Replayed>,
    /// What became of the requests; `None`: none were sent.
    pub requests: Option<Requests>,
}

/// What became of the requests.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// The interface.
    pub api: Option<Api>,
    /// The body of the first one that was taken.
    pub body: Option<Value>,
    /// The first one's answer.
    pub first: Option<Result<Value, Failed>>,
    /// Of the same prompt once more.
    pub again: Option<Result<Value, Failed>>,
    /// The `usage` of a stream that did not ask for one; `Some(Ok(None))`: it had none.
    pub stream: Option<Result<Option<Value>, Failed>>,
    /// The engine's own tokens of the first one's prompt, and who told them.
    pub prompt: Option<(Vec<u32>, &'static str)>,
    /// Bodies and the engine's own tokens of them, never computed.
    pub rendered: Vec<(Value, Result<Vec<u32>, Failed>)>,
    /// A plain text and the engine's own tokens of it.
    pub plain: Option<(&'static str, Vec<u32>)>,
    /// What was heard meanwhile.
    pub heard: Heard,
    /// The events of our prompt: its first blocks as stored.
    pub stored: Option<Stored>,
    /// When they were sent, seconds since 1970: templates print dates.
    pub at_unix_s: i64,
}

impl Requests {
    /// Whether the engine answered a request that generates.
    #[must_use]
    pub fn generates(&self) -> bool {
        matches!(self.api, Some(Api::ChatCompletions | Api::Completions))
    }
}

/// Where a discovered replica's events are, if the engine says so: it is believed.
pub async fn find_events(pool: &PoolConfig, replica: &mut ReplicaConfig, client: &reqwest::Client) {
    let answer = Http::new(pool, replica, client)
        .await
        .api("/kv_event_sources")
        .await;
    let (rank, ip) = (replica.data_parallel_rank, replica.endpoint.ip());
    if let Some(told) = answer
        .ok()
        .and_then(|bytes| sources::told(&bytes, rank, ip))
    {
        (replica.events, replica.replay) = (told.events, told.replay);
    }
}

/// Looks at one replica.
pub async fn look(
    pool: &PoolConfig,
    replica: &ReplicaConfig,
    client: &reqwest::Client,
    send_requests: bool,
) -> Seen {
    let http = Http::new(pool, replica, client).await;
    let (health, version, models, metrics, sources, server_info, listener) = tokio::join!(
        http.status(&replica.health),
        http.version(),
        http.models(),
        http.text(&replica.metrics),
        http.api("/kv_event_sources"),
        http.api("/server_info?config_format=json"),
        Listener::connect(&replica.events),
    );
    let (events, mut listener) = match listener {
        Ok(listener) => (Ok(()), Some(listener)),
        Err(why) => (Err(why), None),
    };
    let mut seen = Seen {
        health,
        version,
        models,
        metrics,
        sources: sources.ok(),
        server_info: server_info
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok()),
        events,
        replay: None,
        requests: None,
    };
    let seq = if send_requests && seen.health.is_ok() && seen.models.is_ok() {
        let requests = send(&http, &seen, pool, replica, listener.as_mut()).await;
        let seq = requests.heard.last_seq;
        seen.requests = Some(requests);
        seq
    } else {
        None
    };
    if let Some(endpoint) = &replica.replay {
        seen.replay = Some(events::replay(endpoint, seq).await);
    }
    seen
}

/// Sends the requests, the first of them until its events are heard.
async fn send(
    http: &Http<'_>,
    seen: &Seen,
    pool: &PoolConfig,
    replica: &ReplicaConfig,
    mut listener: Option<&mut Listener>,
) -> Requests {
    let model = model_name(seen, pool);
    let figures = seen.metrics.as_deref().unwrap_or_default();
    let block = crate::scrape::parse::figures(figures, replica.data_parallel_rank).block_size;
    let most = seen.models.as_ref().ok().and_then(Models::max_model_len);
    let words = bodies::words(block.unwrap_or(16), most);
    let mut requests = Requests {
        at_unix_s: unix_seconds(),
        ..Requests::default()
    };
    if listener.is_some() {
        tokio::time::sleep(SUBSCRIBED_AFTER).await;
    }
    for number in 0..TRIES {
        let text = bodies::unique_text(words);
        let Some((api, body)) = first(http, &model, &text, &mut requests).await else {
            break;
        };
        requests.api = Some(api);
        requests.prompt = http.tokens_of(api, &body).await.or_else(|| {
            let answer = requests.first.as_ref()?.as_ref().ok()?;
            Some((bodies::prompt_ids(answer)?, "the answer"))
        });
        if number == 0 {
            requests.again = Some(http.ask(api, &body).await);
            let mut streamed = body.clone();
            streamed["stream"] = json!(true);
            requests.stream = Some(http.ask_stream(api, &streamed).await);
        }
        requests.body = Some(body);
        let Some(listener) = listener.as_deref_mut() else {
            break;
        };
        let ids = requests.prompt.as_ref().map(|(ids, _)| ids.as_slice());
        let until = timeout(EVENTS_WITHIN, listener.hear(ids, &mut requests.heard));
        requests.stored = until.await.ok().flatten();
        if requests.stored.is_some() {
            break;
        }
    }
    if requests.api == Some(Api::ChatCompletions) {
        for body in bodies::chats(&model) {
            let ids = http.rendered(&body).await;
            requests.rendered.push((body, ids));
        }
    }
    let plain = json!({"model": model, "prompt": bodies::PLAIN, "add_special_tokens": false});
    let ids = http.tokenize(&plain).await;
    requests.plain = ids.ok().map(|ids| (bodies::PLAIN, ids));
    requests
}

/// Sends the first request, by the first interface that the engine takes it at.
async fn first(
    http: &Http<'_>,
    model: &str,
    text: &str,
    requests: &mut Requests,
) -> Option<(Api, Value)> {
    for api in [Api::ChatCompletions, Api::Completions, Api::Embeddings] {
        let body = bodies::of(api, model, text);
        let answer = http.ask(api, &body).await;
        let other = matches!(&answer, Err(Failed::Status(400 | 404 | 405 | 422 | 501, _)));
        let fine = answer.is_ok();
        // What the first interface says counts where none takes it.
        if fine || requests.first.is_none() || !other {
            requests.first = Some(answer);
        }
        if !other {
            return fine.then_some((api, body));
        }
    }
    None
}

/// A name that the engine serves, one of the pool's if it can be.
fn model_name(seen: &Seen, pool: &PoolConfig) -> String {
    let served = seen.models.as_ref().map(|models| models.bases.as_slice());
    let served = served.unwrap_or_default();
    let is_ours = |name: &&String| pool.models.contains(name);
    let names = || served.iter().map(|(name, _)| name);
    let name = names().find(is_ours).or_else(|| names().next());
    name.or(pool.models.first()).cloned().unwrap_or_default()
}

#[allow(clippy::cast_possible_truncation)] // seconds since 1970
fn unix_seconds() -> i64 {
    crate::metrics::unix_seconds() as i64
}
