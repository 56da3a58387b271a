//! One list and watch: what is there, then what changes, for ever.
//!
//! kube's own (`kube::runtime::watcher`, 5.0) begins a watch anew without a word and without a pause when it ends: one
//! that ends at once is asked for thousands of times a second, and nobody hears of it. It also asks
//! for a version that the API server forgot for ever, where the answer's status says so.

use kube::api::{ListParams, WatchParams};
use kube::core::ApiResource;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Failure;
use super::client::Cluster;
use super::object::Unread;

mod follow;

use follow::{PAGE, WATCH_S, Watcher};

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
    /// The one of this name is gone.
    Delete(String),
    /// One that is listed, came or changed cannot be read.
    Unread(Unread),
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

impl<K: DeserializeOwned + Send + 'static> Watch<K> {
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
        let watcher = Watcher::new(
            cluster.asked(resource),
            list.limit(PAGE),
            watch.timeout(WATCH_S),
            sender,
        );
        let mut task = JoinSet::new();
        task.spawn(watcher.run());
        Self {
            events,
            _task: task,
        }
    }
}
