//! Hears a replica's events, whatever their topic, and asks its replay socket.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use zeromq::{Socket, SocketOptions, SocketRecv, SubSocket};

use super::CONNECT_TIMEOUT;
use super::peer::{Peer, peer};
use crate::events::frame::{self, Frame};
use crate::events::{KvEvent, Stored, decode_batch};
use crate::subscriber::replay::{self, ReplayEvent};

/// Topics that are told.
const TOPICS_MAX: usize = 4;
/// Longest topic that is told, in characters.
const TOPIC_CHARS_MAX: usize = 100;
/// Silence of the replay socket after which it is given up.
const REPLAY_SILENCE: Duration = Duration::from_secs(3);
/// A sequence number that no engine comes to: all there is from it on is the END.
const FAR_SEQ: u64 = 1 << 62;

/// Beginnings of prompts that are kept.
const FIRSTS_MAX: usize = 64;

/// What was heard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Batches of events.
    pub batches: u64,
    /// Blocks stored, of anybody's.
    pub stored: u64,
    /// Their topics.
    pub topics: BTreeSet<String>,
    /// Number of the newest batch.
    pub last_seq: Option<u64>,
    /// Batches that could not be read.
    pub undecodable: u64,
    /// Ranks that the batches name.
    pub ranks: BTreeSet<i64>,
    /// First blocks of prompts that are not known to be ours.
    pub firsts: Vec<Stored>,
}

/// What the replay socket did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It answered: with the batch that was just heard, if one was.
    Answered,
    /// It answered, but lacks the batch that was just heard.
    Lacks(u64),
    /// It did not answer; what is there.
    Silent(Peer),
}

/// A subscription.
pub(super) struct Listener(SubSocket);

impl Listener {
    /// Subscribes to all topics.
    pub(super) async fn connect(endpoint: &str) -> Result<Self, Peer> {
        match peer(endpoint).await {
            Peer::Socket(kind) if kind == "PUB" || kind == "XPUB" => {}
            Peer::Unknown => {}
            other => return Err(other),
        }
        let mut options = SocketOptions::default();
        options.connect_timeout(CONNECT_TIMEOUT);
        let mut socket = SubSocket::with_options(options);
        let connect = async {
            socket.subscribe("").await?;
            socket.connect(endpoint).await
        };
        match timeout(CONNECT_TIMEOUT, connect).await {
            Ok(Ok(())) => Ok(Self(socket)),
            // The library tries again until its time is over, whatever the system says.
            Ok(Err(_)) | Err(_) => Err(Peer::Nobody),
        }
    }

    /// Hears until the first blocks of a prompt with these tokens are stored, for ever if need be, as
    /// where they are not known. First blocks of others are kept.
    pub(super) async fn hear(&mut self, ids: Option<&[u32]>, heard: &mut Heard) -> Option<Stored> {
        while let Ok(message) = self.0.recv().await {
            let frames = message.into_vec();
            let Ok(Frame::Batch {
                topic,
                seq,
                payload,
            }) = frame::parse(&frames)
            else {
                continue;
            };
            heard.batches += 1;
            heard.last_seq = Some(seq);
            if heard.topics.len() < TOPICS_MAX {
                let topic = String::from_utf8_lossy(topic);
                let topic = topic.chars().take(TOPIC_CHARS_MAX).collect();
                heard.topics.insert(topic);
            }
            let Ok(batch) = decode_batch(payload) else {
                heard.undecodable += 1;
                continue;
            };
            if heard.ranks.len() < TOPICS_MAX {
                heard.ranks.extend(batch.rank);
            }
            for event in batch.events {
                if let KvEvent::Stored(stored) = event {
                    heard.stored += 1;
                    if !is_first(&stored) {
                        continue;
                    }
                    if ids.is_some_and(|ids| is_of(&stored, ids)) {
                        return Some(stored);
                    }
                    if heard.firsts.len() < FIRSTS_MAX {
                        heard.firsts.push(stored);
                    }
                }
            }
        }
        None
    }
}

fn is_first(stored: &Stored) -> bool {
    stored.parent.is_none() && stored.is_dense() && !stored.tokens.is_empty()
}

/// Whether first blocks are those of a prompt with these tokens.
pub(super) fn is_of(stored: &Stored, ids: &[u32]) -> bool {
    ids.starts_with(&stored.tokens) || stored.tokens.starts_with(ids)
}

/// Asks for the batch of this number and what follows it, or for nothing.
pub(super) async fn replay(endpoint: &str, seq: Option<u64>) -> Replayed {
    let (sender, mut events) = mpsc::channel(replay::QUEUED_BATCHES_MAX);
    let from = seq.unwrap_or(FAR_SEQ);
    let asked = endpoint.to_owned();
    let task = tokio::spawn(async move { replay::read(&asked, from, sender).await });
    let mut has = seq.is_none();
    let answer = loop {
        match timeout(REPLAY_SILENCE, events.recv()).await {
            Ok(Some(ReplayEvent::Batch { seq, .. })) => has |= seq == from,
            Ok(Some(ReplayEvent::End)) if has => break Some(Replayed::Answered),
            Ok(Some(ReplayEvent::End)) => break Some(Replayed::Lacks(from)),
            Ok(Some(ReplayEvent::Failed) | None) | Err(_) => break None,
        }
    };
    task.abort();
    match answer {
        Some(answer) => answer,
        None => Replayed::Silent(peer(endpoint).await),
    }
}
