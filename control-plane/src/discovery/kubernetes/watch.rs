//! One list and watch: what is there, then what changes, for ever.
//!
//! kube's own (`kube::runtime::watcher`, 5.0) begins a watch anew without a word and without a pause when it ends: one
//! that ends at once is asked for thousands of times a second, and nobody hears of it. It also asks
//! for a version that the API server forgot for ever, where the answer's status says so.

use std::time::Duration;

use futures_util::StreamExt;
use kube::api::{Api, ListParams, WatchParams};
use kube::core::{ApiResource, Object, ObjectMeta, WatchEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Asked, Cluster};
use super::{Failure, Kind};

/// How long one watch lasts, in seconds: a dead connection is noticed 15 s after it.
const WATCH_S: u32 = 60;
/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Pauses after failures in a row: each twice the last.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Watches begin no closer than this.
const APART: Duration = Duration::from_secs(1);
/// A watch that is open for so long works, though nothing changes.
const SETTLED: Duration = Duration::from_secs(5);
/// So many failures in a row are none of those that pass.
const LASTING: u32 = 3;
/// Events that wait to be taken.
const QUEUE: usize = 64;

/// What a watch tells.
pub(super) enum Event<K> {
    /// A list begins: all that was there is in question.
    Init,
    /// It has this one.
    InitApply(K),
    /// It is whole.
    InitDone,
    /// One came or changed.
    Apply(K),
    /// One is gone.
    Delete(K),
    /// It failed before and works again.
    Works,
}

pub(super) type Told<K> = Result<Event<K>, Failure>;

/// Which objects.
#[derive(Clone, Copy)]
pub(super) enum Which<'a> {
    Labels(&'a str),
    Named(&'a str),
}

/// See the module. Ends when dropped.
pub(super) struct Watch<K> {
    events: mpsc::Receiver<Told<K>>,
    _task: JoinSet<Option<()>>,
}

impl<K> Watch<K> {
    /// What comes next; never ends. Nothing is lost where it is dropped before it is ready.
    pub(super) async fn next(&mut self) -> Told<K> {
        match self.events.recv().await {
            Some(told) => told,
            None => std::future::pending().await,
        }
    }
}

/// What can be watched: a pod or a pool, as far as it is read.
pub(super) trait Parts:
    Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}
impl<T> Parts for T where
    T: Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<P: Parts, U: Parts + Default> Watch<Object<P, U>> {
    /// Watches all objects that `which` selects.
    pub(super) fn new(cluster: &Cluster, resource: &ApiResource, which: Which<'_>) -> Self {
        let (list, watch) = match which {
            Which::Labels(labels) => (
                ListParams::default().labels(labels),
                WatchParams::default().labels(labels),
            ),
            Which::Named(name) => {
                let field = format!("metadata.name={name}");
                (
                    ListParams::default().fields(&field),
                    WatchParams::default().fields(&field),
                )
            }
        };
        let (sender, events) = mpsc::channel(QUEUE);
        let follower = Follower {
            api: cluster.api(resource),
            asked: cluster.asked(&resource.plural),
            list: list.limit(PAGE),
            watch: watch.timeout(WATCH_S),
            sender,
            failures: 0,
            stalled: false,
        };
        let mut task = JoinSet::new();
        task.spawn(follower.run());
        Self {
            events,
            _task: task,
        }
    }
}

/// Why one attempt ended.
enum End {
    /// Nobody listens any more.
    Unheard,
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

struct Follower<P: Parts, U: Parts> {
    api: Api<Object<P, U>>,
    asked: Asked,
    list: ListParams,
    watch: WatchParams,
    sender: mpsc::Sender<Told<Object<P, U>>>,
    failures: u32,
    /// The last watch was silent for longer than it should have lasted.
    stalled: bool,
}

impl<P: Parts, U: Parts + Default> Follower<P, U> {
    /// `None`: nobody listens any more.
    async fn run(mut self) -> Option<()> {
        let mut version = None;
        loop {
            let (begin, lists) = (Instant::now(), version.is_none());
            let ended = match &mut version {
                None => self.whole_list().await.map(|of| version = Some(of)),
                Some(version) => self.changes(version).await,
            };
            let apart = match ended {
                Ok(()) if lists => Duration::ZERO,
                Ok(()) => APART.saturating_sub(begin.elapsed()),
                Err(End::Unheard) => return None,
                Err(End::Failed(failure)) => {
                    if failure.kind == Kind::Gone || std::mem::take(&mut self.stalled) {
                        version = None;
                    }
                    self.failed(failure).await?
                }
            };
            tokio::time::sleep(apart).await;
        }
    }

    /// The version to watch from.
    async fn whole_list(&mut self) -> Result<String, End> {
        self.tell(Event::Init).await?;
        let mut page = self.list.clone();
        loop {
            let listed = self.api.list(&page).await;
            let listed = listed.map_err(|error| self.asked.failure(&error, "list"))?;
            for object in listed.items {
                self.tell(Event::InitApply(object)).await?;
            }
            let more = listed.metadata.continue_.filter(|token| !token.is_empty());
            if let Some(token) = more {
                page = self.list.clone().continue_token(&token);
                continue;
            }
            self.tell(Event::InitDone).await?;
            let version = listed.metadata.resource_version;
            return Ok(version.ok_or_else(|| self.asked.no_version())?);
        }
    }

    /// One watch, to its end.
    async fn changes(&mut self, version: &mut String) -> Result<(), End> {
        let events = self.api.watch(&self.watch, version).await;
        let events = events.map_err(|error| self.asked.failure(&error, "watch"))?;
        let mut events = std::pin::pin!(events);
        let begin = Instant::now();
        let settled = tokio::time::sleep(SETTLED);
        let mut settled = std::pin::pin!(settled);
        let mut works = false;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = &mut settled, if !works => {
                    works = true;
                    self.works().await?;
                    continue;
                }
            };
            let event = match event {
                None if works => return Ok(()),
                None => return Err(self.asked.ended_at_once().into()),
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    // It should have ended by itself: nobody knows since when nothing came through.
                    self.stalled = begin.elapsed() > Duration::from_secs(WATCH_S.into());
                    return Err(self.asked.broke_off(&error).into());
                }
            };
            let told = match event {
                WatchEvent::Error(status) => {
                    return Err(self.asked.status(&status, "watch").into());
                }
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    None
                }
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    note(version, &object.metadata);
                    Some(Event::Apply(object))
                }
                WatchEvent::Deleted(object) => {
                    note(version, &object.metadata);
                    Some(Event::Delete(object))
                }
            };
            works = true;
            self.works().await?;
            if let Some(told) = told {
                self.tell(told).await?;
            }
        }
    }

    async fn works(&mut self) -> Result<(), End> {
        match std::mem::take(&mut self.failures) {
            0 => Ok(()),
            _ => self.tell(Event::Works).await,
        }
    }

    async fn tell(&self, event: Event<Object<P, U>>) -> Result<(), End> {
        self.sender.send(Ok(event)).await.map_err(|_| End::Unheard)
    }

    /// Tells of it. Returns the pause.
    async fn failed(&mut self, mut failure: Failure) -> Option<Duration> {
        let pause = pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        if failure.kind.is_passing() && self.failures >= LASTING {
            failure.kind = Kind::Server;
            failure.text = format!("again and again: {}", failure.text);
        }
        self.sender.send(Err(failure)).await.ok()?;
        Some(pause)
    }
}

fn note(version: &mut String, of: &ObjectMeta) {
    if let Some(newer) = &of.resource_version {
        version.clone_from(newer);
    }
}

fn pause(failures: u32) -> Duration {
    PAUSE_MIN
        .saturating_mul(1 << failures.min(8))
        .min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow() {
        let ms: Vec<_> = [0, 1, 2, 3, 4, 5, 9, u32::MAX]
            .map(|failures| pause(failures).as_millis())
            .to_vec();
        assert_eq!(
            ms,
            [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000, 10_000]
        );
    }
}
