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

use super::text::PoolText;

mod bodies;
mod events;
mod http;
mod names;
mod peer;

use events::Listener;
pub use events::{Heard, Replayed};
pub use http::Failed;
use http::Http;
pub(super) use http::is_page;
use names::Names;
pub use names::NoName;
pub use peer::Peer;

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
    /// The connection to its events, or what is there instead.
    pub events: Result<(), Peer>,
    /// Its replay socket's answer; `None`: none is configured.
    pub replay: Option<Replayed>,
    /// What became of the requests; `None`: none were sent.
    pub requests: Option<Requests>,
}

impl Seen {
    /// Whether nobody is where events and their replay should be.
    #[must_use]
    pub fn nobody_publishes(&self) -> bool {
        let nobody = Peer::Nobody;
        let replays = match &self.replay {
            None => false,
            Some(replayed) => *replayed != Replayed::Silent(nobody.clone()),
        };
        self.events.as_ref().err() == Some(&nobody) && !replays
    }
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
    /// A plain text and the engine's own tokens of it, or why it does not tell them.
    pub plain: Option<(&'static str, Result<Vec<u32>, Failed>)>,
    /// What was heard meanwhile.
    pub heard: Heard,
    /// The events of our prompt: its first blocks as stored.
    pub stored: Option<Stored>,
    /// The prompts that were sent.
    pub sent: Vec<Sent>,
    /// When they were sent, seconds since 1970: templates print dates.
    pub at_unix_s: i64,
}

/// A prompt that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// How its text begins, as no other does.
    pub mark: String,
    /// The engine's tokens of it, if it told.
    pub ids: Option<Vec<u32>>,
}

impl Sent {
    /// Whether these are its first blocks.
    fn is_in(&self, stored: &Stored, text: Option<&PoolText>) -> bool {
        if let Some(ids) = &self.ids {
            return events::is_of(stored, ids);
        }
        let bytes = text.and_then(|text| text.bytes(&stored.tokens).ok());
        bytes.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(&self.mark))
    }
}

impl Requests {
    /// Finds the events of our prompt where the engine did not tell its tokens: by its text, or where that
    /// cannot be had either, any prompt's will do.
    pub fn recognise(&mut self, text: Option<&PoolText>) {
        if self.stored.is_some() || self.sent.iter().any(|sent| sent.ids.is_some()) {
            return;
        }
        let is_ours = |stored: &&Stored| {
            let mut sent = self.sent.iter();
            text.is_none_or(|text| text.bytes(&stored.tokens).is_err())
                || sent.any(|sent| sent.is_in(stored, text))
        };
        self.stored = self.heard.firsts.iter().find(is_ours).cloned();
    }

    /// Whether events of another replica's prompts were heard.
    #[must_use]
    pub fn heard_of(&self, other: &Self, text: Option<&PoolText>) -> bool {
        let mut sent = other.sent.iter();
        let firsts = &self.heard.firsts;
        sent.any(|sent| firsts.iter().any(|stored| sent.is_in(stored, text)))
    }

    /// Whether the engine answered a request that generates.
    #[must_use]
    pub fn generates(&self) -> bool {
        matches!(self.api, Some(Api::ChatCompletions | Api::Completions))
    }
}

/// Where a discovered replica's events are, if the engine says so: it is believed.
pub async fn find_events(pool: &PoolConfig, replica: &mut ReplicaConfig, client: &reqwest::Client) {
    // It was found by its address.
    let names = Names::default();
    let answer = Http::new(pool, replica, client, &names)
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
    let names = Names::look_up(replica).await;
    let http = Http::new(pool, replica, client, &names).await;
    let (health, version, models, metrics, sources, server_info, listener) = tokio::join!(
        http.status(&replica.health),
        http.version(),
        http.models(),
        http.text(&replica.metrics),
        http.api("/kv_event_sources"),
        http.api("/server_info?config_format=json"),
        async {
            match names.lost(&replica.events) {
                Some(name) => Err(Peer::NoName(name.clone())),
                None => Listener::connect(&replica.events).await,
            }
        },
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
        seen.replay = Some(match names.lost(endpoint) {
            Some(name) => Replayed::Silent(Peer::NoName(name.clone())),
            None => events::replay(endpoint, seq).await,
        });
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
        let ids = requests.prompt.as_ref().map(|(ids, _)| ids.clone());
        requests.sent.push(Sent {
            mark: bodies::mark(&text).to_owned(),
            ids: ids.clone(),
        });
        let Some(listener) = listener.as_deref_mut() else {
            break;
        };
        let until = listener.hear(ids.as_deref(), &mut requests.heard);
        let until = timeout(EVENTS_WITHIN, until);
        requests.stored = until.await.ok().flatten();
        let unknown = ids.is_none() && !requests.heard.firsts.is_empty();
        if requests.stored.is_some() || unknown {
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
    requests.plain = Some((bodies::PLAIN, ids));
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

#[cfg(test)]
mod tests {
    use tokenizers::Tokenizer;

    use super::*;
    use crate::config::Config;

    /// Where an engine does not tell a prompt's tokens, its text tells whose events they are.
    #[test]
    fn prompts_are_known_by_their_text() {
        let dir = engine_sim::model_dir();
        let yaml = format!(
            "listen: 127.0.0.1:1\ntokens: [a-token]\ndata_dir: /nowhere\npools:\n- name: demo\n  model_dir: {}\n  models: [sim]\n  \
             clusters: [pool]\n  replicas: [{{endpoint: '127.0.0.1:2', events: 'tcp://127.0.0.1:3'}}]\n",
            dir.display()
        );
        let config = Config::parse(&yaml).unwrap();
        let text = PoolText::load(&config.pools[0]).unwrap();
        let tokenizer = Tokenizer::from_file(dir.join("tokenizer.json")).unwrap();
        let stored = |prompt: &str| Stored {
            tokens: tokenizer.encode(prompt, false).unwrap().get_ids().to_vec(),
            ..Stored::default()
        };
        let sent = |prompt: &str| Sent {
            mark: bodies::mark(prompt).to_owned(),
            ids: None,
        };
        let prompts = [(); 3].map(|()| bodies::unique_text(9));
        let requests = |n: usize, heard: &[usize]| Requests {
            sent: vec![sent(&prompts[n])],
            heard: Heard {
                firsts: heard.iter().map(|n| stored(&prompts[*n])).collect(),
                ..Heard::default()
            },
            ..Requests::default()
        };
        let mut ours = requests(0, &[2, 0]);
        ours.recognise(Some(&text));
        assert_eq!(ours.stored, Some(stored(&prompts[0])));
        let mut others = requests(1, &[2, 0]);
        others.recognise(Some(&text));
        assert_eq!(others.stored, None);
        assert!(others.heard_of(&ours, Some(&text)) && !ours.heard_of(&others, Some(&text)));
        // Without a vocabulary any prompt will do.
        others.recognise(None);
        assert_eq!(others.stored, Some(stored(&prompts[2])));
    }
}
