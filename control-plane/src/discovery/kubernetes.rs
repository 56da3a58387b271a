//! Replicas by pods: list and watch, and the same for an `InferencePool` that says which pods.
//!
//! [`watch`] lists and watches. Until a list is whole the last one stays in force, and so it does while the API server is
//! away.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::Api;
use kube::core::{ApiResource, GroupVersionKind};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Failure, Kind, News};
use crate::config::{DiscoveryConfig, KubernetesConfig, PodPort, Pods};

pub mod client;
pub mod pods;
pub mod pool;
mod watch;

use client::{Cluster, failure};
use pods::{Pod, PodObject, Ports, found};
use pool::{PoolObject, Selection, VERSIONS};
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
    /// The pool that says which pods, and what it last said.
    selects: Option<(Watch<PoolObject>, Option<Selection>)>,
    watch: Option<Watch<PodObject>>,
    ports: Ports,
    pods: BTreeMap<String, Pod>,
    /// A list that is coming in.
    fresh: Option<BTreeMap<String, Pod>>,
    /// The list has been whole once since the selector was last changed.
    whole: bool,
    /// When what has changed is told.
    due: Option<Instant>,
    /// The list of pools that comes in has it.
    pool_listed: bool,
    /// Why watches do not work, until they do: a list that comes between does not make up for that.
    broken: Option<Failure>,
    /// What keeps the pool that says which pods from being followed.
    unfollowed: Option<Failure>,
    /// Pods without the port, as last logged.
    without: Vec<String>,
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
            pods: BTreeMap::new(),
            fresh: None,
            whole: false,
            due: None,
            pool_listed: true,
            broken: None,
            unfollowed: None,
            without: Vec::new(),
            cluster,
        };
        match (&of.pods, selecting) {
            (Pods::Labels(labels), _) => follower.watch_pods(labels),
            (Pods::InferencePool(_), None) => {}
            (Pods::InferencePool(name), Some(resource)) => {
                let watch = Watch::new(&follower.cluster, &resource, Which::Named(name));
                follower.selects = Some((watch, None));
            }
        }
        Ok(follower)
    }

    fn watch_pods(&mut self, labels: &str) {
        let kind = GroupVersionKind::gvk("", "v1", "Pod");
        let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
        let labelled = Which::Labels(labels);
        self.watch = Some(Watch::new(&self.cluster, &resource, labelled));
        self.whole = false;
        self.fresh = None;
        self.due = None;
    }

    async fn follow(mut self) {
        loop {
            let due = self.due;
            let done = tokio::select! {
                event = next(self.watch.as_mut()) => self.pod_event(event).await,
                event = next(self.selects.as_mut().map(|(watch, _)| watch)) => self.pool_event(event).await,
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
            Ok(Event::Init) => self.fresh = Some(BTreeMap::new()),
            Ok(Event::InitApply(object)) => {
                if let (Some(pod), Some(fresh)) = (Pod::of(object), &mut self.fresh) {
                    fresh.insert(pod.name().to_owned(), pod);
                }
            }
            Ok(Event::InitDone) => {
                self.pods = self.fresh.take().unwrap_or_default();
                self.whole = true;
                self.changed();
            }
            Ok(Event::Apply(object)) => {
                if let Some(pod) = Pod::of(object) {
                    self.pods.insert(pod.name().to_owned(), pod);
                    self.changed();
                }
            }
            Ok(Event::Delete(object)) => {
                if let Some(name) = object.metadata.name {
                    self.pods.remove(&name);
                    self.changed();
                }
            }
            Ok(Event::Works) => self.works(),
            Err(why) => self.failed(why).await?,
        }
        Some(())
    }

    async fn pool_event(&mut self, event: Told<PoolObject>) -> Option<()> {
        let unfollowed = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                self.pool_listed = true;
                match Selection::of(&object.spec) {
                    Ok(selection) => {
                        if self.unfollowed.take().is_some() {
                            self.changed();
                        }
                        self.select(selection);
                        return Some(());
                    }
                    Err(why) => Failure {
                        kind: Kind::Empty,
                        text: format!("the InferencePool cannot be followed: {why}"),
                    },
                }
            }
            Ok(Event::Delete(_)) => pool_is_gone(),
            Ok(Event::Init) => {
                self.pool_listed = false;
                return Some(());
            }
            Ok(Event::InitDone) if !self.pool_listed => pool_is_gone(),
            Ok(Event::InitDone) => return Some(()),
            Ok(Event::Works) => {
                self.works();
                return Some(());
            }
            Err(why) => return self.failed(why).await,
        };
        self.unfollowed = Some(unfollowed.clone());
        tell(&self.news, self.pool, unfollowed).await
    }

    async fn failed(&mut self, why: Failure) -> Option<()> {
        if !why.kind.is_passing() {
            self.broken = Some(why.clone());
        }
        tell(&self.news, self.pool, why).await
    }

    fn works(&mut self) {
        self.broken = None;
        self.changed();
    }

    fn select(&mut self, selection: Selection) {
        let Some((_, last)) = &mut self.selects else {
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
        let (found, without) = found(self.pods.values(), &self.ports, &self.config);
        if without != self.without {
            if !without.is_empty() {
                tracing::warn!(pods = without.join(", "), ports = ?self.ports.ports, "pods without this port are left out");
            }
            self.without = without;
        }
        let mut news = News::list(self.pool, found);
        news.partly = self.unfollowed.clone().or_else(|| self.broken.clone());
        self.news.send(news).await.ok()
    }
}

fn pool_is_gone() -> Failure {
    Failure {
        kind: Kind::NotFound,
        text: "the InferencePool was deleted: its pods are followed as before".to_owned(),
    }
}

/// The version in which the pool is there.
async fn find_pool(cluster: &Cluster, name: &str) -> Result<ApiResource, Failure> {
    for version in VERSIONS {
        let resource = pool::resource(version);
        let api: Api<PoolObject> = cluster.api(&resource);
        match api.get(name).await {
            Ok(_) => return Ok(resource),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(failure(&error, "inferencepools", "get", &cluster.namespace)),
        }
    }
    let versions = VERSIONS.map(|(group, version)| format!("{group}/{version}"));
    Err(Failure {
        kind: Kind::NotFound,
        text: format!(
            "no InferencePool {name:?} in namespace {:?} (looked for {})",
            cluster.namespace,
            versions.join(" and ")
        ),
    })
}

/// The configuration's port, else those that the pool targets, else the usual one.
fn ports(wanted: Option<&PodPort>, targeted: &[u16]) -> Vec<PodPort> {
    match wanted {
        Some(port) => vec![port.clone()],
        None if targeted.is_empty() => vec![PodPort::Number(SERVE_PORT)],
        None => targeted.iter().map(|port| PodPort::Number(*port)).collect(),
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
