//! The event publisher: PUB socket, replay ring and ROUTER socket, framed as the imitated vLLM version does.
//!
//! `zeromq`'s PUB queues per subscriber without blocking and drops above 100,000 messages, like vLLM's high-water
//! mark; its ROUTER has room for as many answers, so a replay of a whole ring reaches its reader.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use bytes::Bytes;
use zeromq::{
    PubSocket, RouterRecvHalf, RouterSendHalf, RouterSocket, Socket as _, SocketRecv as _,
    SocketSend as _, ZmqMessage,
};

use crate::config::Config;
use crate::event::{Form, KvEvent};

const END: u64 = u64::MAX;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One published batch, as told by `/sim/state`.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Published {
    /// Sequence number.
    pub seq: u64,
    /// When it was handed to the socket: microseconds since 1970.
    pub wall_us: u64,
    /// Events in it.
    pub events: usize,
    /// Held back by a `drop_events` fault.
    pub dropped: bool,
}

#[derive(Debug)]
struct Kept {
    published: Published,
    /// Absent if a fault made the batch unreplayable.
    payload: Option<Bytes>,
}

/// Batches kept for replay, and the faults ordered for the next ones.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    kept: VecDeque<Kept>,
    next_seq: u64,
    drop_next: u64,
    drop_from_replay: bool,
}

/// The ring, shared by publisher, replay and HTTP.
pub(crate) type SharedRing = Arc<Mutex<Ring>>;

fn locked(ring: &SharedRing) -> std::sync::MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Orders the next `batches` to be lost on the way; `replayable`: the replay socket still has them.
pub(crate) fn drop_next(ring: &SharedRing, batches: u64, replayable: bool) {
    let mut ring = locked(ring);
    ring.drop_next = batches;
    ring.drop_from_replay = !replayable;
}

/// Next sequence number, and the batches from `since` on (at most `limit`, the oldest first).
pub(crate) fn published(ring: &SharedRing, since: u64, limit: usize) -> (u64, Vec<Published>) {
    let ring = locked(ring);
    let list = ring
        .kept
        .iter()
        .map(|k| &k.published)
        .filter(|p| p.seq >= since)
        .take(limit)
        .cloned()
        .collect();
    (ring.next_seq, list)
}

/// Publishes batches in order.
pub(crate) struct Publisher {
    socket: Option<PubSocket>,
    form: Form,
    topic: Bytes,
    buffer_steps: usize,
    ring: SharedRing,
}

/// What the sockets were bound to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Endpoints {
    pub(crate) events: Option<String>,
    pub(crate) replay: Option<String>,
}

impl Publisher {
    /// Opens both sockets and starts to answer replays.
    ///
    /// # Errors
    /// An endpoint that cannot be bound or connected to.
    pub(crate) async fn open(
        config: &Config,
        ring: SharedRing,
    ) -> anyhow::Result<(Self, Endpoints)> {
        let mut endpoints = Endpoints::default();
        let mut socket = None;
        let caching = |_: &&String| config.prefix_caching;
        if let Some(endpoint) = config.events.as_ref().filter(caching) {
            let mut publisher = PubSocket::new();
            if binds(endpoint) {
                let bound = publisher
                    .bind(&any_host(endpoint))
                    .await
                    .with_context(|| format!("events {endpoint}"))?;
                endpoints.events = Some(bound.to_string());
            } else {
                tokio::time::timeout(CONNECT_TIMEOUT, publisher.connect(endpoint))
                    .await
                    .with_context(|| format!("events {endpoint}: nobody listens"))?
                    .with_context(|| format!("events {endpoint}"))?;
                endpoints.events = Some(endpoint.clone());
            }
            socket = Some(publisher);
        }
        let topic = Bytes::from(config.topic.clone());
        if let Some(endpoint) = config.replay.as_ref().filter(caching) {
            let mut router = RouterSocket::new();
            let bound = router
                .bind(&any_host(endpoint))
                .await
                .with_context(|| format!("replay {endpoint}"))?;
            endpoints.replay = Some(bound.to_string());
            let topic = config.wire.replay_has_topic().then(|| topic.clone());
            let (send, receive) = router.split();
            tokio::spawn(serve_replay(send, receive, Arc::clone(&ring), topic));
        }
        let form = Form {
            wire: config.wire,
            bytes_hashes: config.bytes_hashes,
            rank: config.rank,
        };
        Ok((
            Self {
                socket,
                form,
                topic,
                buffer_steps: config.buffer_steps,
                ring,
            },
            endpoints,
        ))
    }

    /// Sends one batch, unless there is nothing in it.
    pub(crate) async fn publish(&mut self, events: &[KvEvent]) {
        if events.is_empty() || self.socket.is_none() {
            return;
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let payload = Bytes::from(self.form.encode(now.as_secs_f64(), events));
        let wall_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let (seq, dropped) =
            locked(&self.ring).keep(events.len(), wall_us, &payload, self.buffer_steps);
        if dropped {
            return;
        }
        let frames = vec![
            self.topic.clone(),
            Bytes::copy_from_slice(&seq.to_be_bytes()),
            payload,
        ];
        if let (Some(socket), Ok(message)) = (&mut self.socket, ZmqMessage::try_from(frames)) {
            let _ = socket.send(message).await; // the socket drops for those who cannot keep up
        }
    }
}

impl Ring {
    fn keep(&mut self, events: usize, wall_us: u64, payload: &Bytes, most: usize) -> (u64, bool) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let dropped = self.drop_next > 0;
        self.drop_next = self.drop_next.saturating_sub(1);
        let payload = (!dropped || !self.drop_from_replay).then(|| payload.clone());
        self.kept.push_back(Kept {
            published: Published {
                seq,
                wall_us,
                events,
                dropped,
            },
            payload,
        });
        while self.kept.len() > most {
            self.kept.pop_front();
        }
        (seq, dropped)
    }

    fn from(&self, start: u64) -> Vec<(u64, Bytes)> {
        let kept = self.kept.iter().filter(|k| k.published.seq >= start);
        kept.filter_map(|k| Some((k.published.seq, k.payload.clone()?)))
            .collect()
    }
}

/// vLLM's rule: these endpoints are bound, all others connected to.
fn binds(endpoint: &str) -> bool {
    endpoint.contains('*') || endpoint.contains("::") || endpoint.starts_with("ipc://")
}

fn any_host(endpoint: &str) -> String {
    endpoint.replace("//*:", "//0.0.0.0:")
}

/// Answers `[identity, "", start]` with every batch from `start` on and an end marker. Other requests get no
/// answer, as from vLLM.
async fn serve_replay(
    send: RouterSendHalf,
    mut receive: RouterRecvHalf,
    ring: SharedRing,
    topic: Option<Bytes>,
) {
    while let Ok(request) = receive.recv().await {
        let frames = request.into_vec();
        let [identity, delimiter, start] = frames.as_slice() else {
            continue;
        };
        let (true, Ok(start)) = (delimiter.is_empty(), <[u8; 8]>::try_from(&start[..])) else {
            continue;
        };
        let batches = locked(&ring).from(u64::from_be_bytes(start));
        let (mut send, identity, topic) = (send.clone(), identity.clone(), topic.clone());
        tokio::spawn(async move {
            let end = (END, Bytes::new());
            for (seq, payload) in batches.into_iter().chain([end]) {
                let mut frames = vec![identity.clone(), Bytes::new()];
                // The end marker's topic is empty.
                frames.extend(
                    topic
                        .clone()
                        .map(|t| if seq == END { Bytes::new() } else { t }),
                );
                frames.extend([Bytes::copy_from_slice(&seq.to_be_bytes()), payload]);
                let Ok(message) = ZmqMessage::try_from(frames) else {
                    return;
                };
                if send.send(message).await.is_err() {
                    return;
                }
            }
        });
    }
}
