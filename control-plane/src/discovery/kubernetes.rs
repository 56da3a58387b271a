//! Replicas by pods: list and watch, and the same for an `InferencePool` that says which pods.
//!
//! [`watch`] lists and watches. Until a list is whole the last one stays in force, and so it does while the API server is
//! away.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::{ApiResource, GroupVersionKind};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Failure, Kind, News};
use crate::config::{DiscoveryConfig, KubernetesConfig, PodPort, Pods};

mod ask;
pub mod client;
mod look;
pub mod object;
pub mod pods;
pub mod pool;
mod selects;
mod unread;
mod watch;

use client::Cluster;
use look::find_pool;
use pods::{Pod, PodObject, Ports, found};
use pool::Selection;
use selects::{Means, Selects};
use unread::Unreadable;
use watch::{Event, Told, Watch, Which};

/// Pause before a client that could not be made, or a pool that is not there, is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How long changes are gathered: a rollout touches many pods at once.
const GATHER: Duration = Duration::from_millis(20);
/// Where engines serve if nothing says so.
const SERVE_PORT: u16 = 8000;

/// Watches for ever. `prefixed`: names begin with the pods' namespace.
pub async fn run(
    pool: usize,
    config: DiscoveryConfig,
    of: KubernetesConfig,
    prefixed: bool,
    news: mpsc::Sender<News>,
) {
    loop {
        let why = match Follower::start(pool, &config, &of, prefixed, &news).await {
            Ok(follower) => return follower.follow().await,
            Err(why) => why,
        };
        if tell(&news, pool, why).await.is_none() {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn tell(news: &mpsc::Sender<News>, pool: usize, why: Failure) -> Option<()> {
    news.send(News::failure(pool, why)).await.ok()
}

struct Follower {
    pool: usize,
    config: DiscoveryConfig,
    wanted_port: Option<PodPort>,
    news: mpsc::Sender<News>,
    cluster: Cluster,
    /// The pool that says which pods.
    selects: Option<Selects>,
    watch: Option<Watch<PodObject>>,
    ports: Ports,
    listed: Listed,
    /// A list that is coming in.
    fresh: Option<Listed>,
    /// The list has been whole once since the selector was last changed.
    whole: bool,
    /// When what has changed is told.
    due: Option<Instant>,
    /// Why the pods' watch does not work, until it does: a list that comes between does not make up for that.
    broken: Option<Failure>,
    /// Pods without the port, as last logged.
    without: Vec<String>,
}

/// What is listed.
#[derive(Default)]
struct Listed {
    pods: BTreeMap<String, Pod>,
    /// Of these, the pod is as it was, if it was.
    unread: Unreadable,
}

impl Follower {
    async fn start(
        pool: usize,
        config: &DiscoveryConfig,
        of: &KubernetesConfig,
        prefixed: bool,
        news: &mpsc::Sender<News>,
    ) -> Result<Self, Failure> {
        let cluster = Cluster::connect(of).await?;
        let selecting = match &of.pods {
            Pods::Labels(_) => None,
            Pods::InferencePool(name) => Some(find_pool(&cluster, name).await?),
        };
        let prefix = if prefixed {
            format!("{}:", cluster.namespace)
        } else {
            String::new()
        };
        let mut follower = Self {
            pool,
            config: config.clone(),
            wanted_port: of.port.clone(),
            news: news.clone(),
            selects: None,
            watch: None,
            ports: Ports {
                ports: ports(of.port.as_ref(), &[]),
                prefix,
            },
            listed: Listed::default(),
            fresh: None,
            whole: false,
            due: None,
            broken: None,
            without: Vec::new(),
            cluster,
        };
        match (&of.pods, selecting) {
            (Pods::Labels(labels), _) => follower.watch_pods(labels),
            (Pods::InferencePool(_), None) => {}
            (Pods::InferencePool(name), Some(resource)) => {
                follower.selects = Some(Selects::new(&follower.cluster, resource, name));
            }
        }
        Ok(follower)
    }

    fn watch_pods(&mut self, labels: &str) {
        let kind = GroupVersionKind::gvk("", "v1", "Pod");
        let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
        let labelled = Which::Labels(labels);
        self.watch = Some(Watch::new(&self.cluster, &resource, labelled));
        // It was the last one's.
        self.broken = None;
        self.whole = false;
        self.fresh = None;
        self.due = None;
    }

    async fn follow(mut self) {
        loop {
            let due = self.due;
            let done = tokio::select! {
                event = next(self.watch.as_mut()) => self.pod_event(event).await,
                event = pool_news(self.selects.as_mut()) => self.pool_event(event).await,
                () = at(due) => self.tell_list().await,
            };
            if done.is_none() {
                return;
            }
        }
    }

    /// `None`: nobody listens any more.
    async fn pod_event(&mut self, event: Told<PodObject>) -> Option<()> {
        match event {
            Ok(Event::Init) => self.fresh = Some(Listed::default()),
            Ok(Event::InitApply(object)) => {
                if let (Some(pod), Some(fresh)) = (Pod::of(object), &mut self.fresh) {
                    fresh.pods.insert(pod.name().to_owned(), pod);
                }
            }
            Ok(Event::InitDone) => {
                self.listed = self.fresh.take().unwrap_or_default();
                self.whole = true;
                self.changed();
            }
            Ok(Event::Apply(object)) => {
                if let Some(pod) = Pod::of(object) {
                    self.listed.unread.remove(pod.name());
                    self.listed.pods.insert(pod.name().to_owned(), pod);
                    self.changed();
                }
            }
            Ok(Event::Delete(name)) => {
                self.listed.unread.remove(&name);
                self.listed.pods.remove(&name);
                self.changed();
            }
            Ok(Event::Unread(unread)) => {
                if let Some(fresh) = &mut self.fresh {
                    let before = unread
                        .name
                        .as_ref()
                        .and_then(|name| self.listed.pods.get(name));
                    let before = before.map(|pod| (pod.name().to_owned(), pod.clone()));
                    fresh.pods.extend(before);
                    fresh.unread.insert(unread);
                } else {
                    self.listed.unread.insert(unread);
                    self.changed();
                }
            }
            Ok(Event::Works) => {
                self.broken = None;
                self.changed();
            }
            Err(why) => {
                if !why.kind.is_passing() {
                    self.broken = Some(why.clone());
                }
                tell(&self.news, self.pool, why).await?;
            }
        }
        Some(())
    }

    async fn pool_event(&mut self, news: selects::News) -> Option<()> {
        let means = self.selects.as_mut().map(|selects| selects.take(news));
        match means {
            None | Some(Means::Nothing) => {}
            Some(Means::Changed) => self.changed(),
            Some(Means::Selected(selection)) => {
                self.changed();
                self.select(selection);
            }
            Some(Means::Fails(why)) => tell(&self.news, self.pool, why).await?,
        }
        Some(())
    }

    fn select(&mut self, selection: Selection) {
        let Some(Selects { last, .. }) = &mut self.selects else {
            return;
        };
        if last.as_ref() == Some(&selection) {
            return;
        }
        tracing::info!(labels = %selection.labels, ports = ?selection.ports, "the InferencePool selects");
        let same_labels = last
            .as_ref()
            .is_some_and(|last| last.labels == selection.labels);
        *last = Some(selection.clone());
        self.ports.ports = ports(self.wanted_port.as_ref(), &selection.ports);
        if same_labels {
            self.changed();
        } else {
            self.watch_pods(&selection.labels);
        }
    }

    /// There is something to tell, soon.
    fn changed(&mut self) {
        if self.whole && self.due.is_none() {
            self.due = Some(Instant::now() + GATHER);
        }
    }

    async fn tell_list(&mut self) -> Option<()> {
        self.due = None;
        let (found, without) = found(self.listed.pods.values(), &self.ports, &self.config);
        if without != self.without {
            if !without.is_empty() {
                tracing::warn!(pods = without.join(", "), ports = ?self.ports.ports, "pods without this port are left out");
            }
            self.without = without;
        }
        let mut news = News::list(self.pool, found);
        let pool = self.selects.as_ref().and_then(Selects::fails);
        let failure = pool.or(self.broken.as_ref()).cloned();
        news.partly = failure.or_else(|| self.listed.unread.failure());
        self.news.send(news).await.ok()
    }
}

/// The configuration's port, else those that the pool targets, else the usual one.
fn ports(wanted: Option<&PodPort>, targeted: &[u16]) -> Vec<PodPort> {
    match wanted {
        Some(port) => vec![port.clone()],
        None if targeted.is_empty() => vec![PodPort::Number(SERVE_PORT)],
        None => targeted.iter().map(|port| PodPort::Number(*port)).collect(),
    }
}

async fn pool_news(selects: Option<&mut Selects>) -> selects::News {
    match selects {
        Some(selects) => selects.next().await,
        None => std::future::pending().await,
    }
}

async fn next<K>(watch: Option<&mut Watch<K>>) -> Told<K> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
