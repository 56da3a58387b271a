//! The `InferencePool` that says which pods: its watch, and what keeps it from being followed.

use kube::core::ApiResource;

use super::client::Cluster;
use super::look::Looking;
use super::pool::{PoolObject, Selection};
use super::watch::{Event, Told, Watch, Which};
use super::{Failure, Kind};

pub(super) struct Selects {
    name: String,
    cluster: Cluster,
    resource: ApiResource,
    watch: Watch<PoolObject>,
    /// What it last said.
    pub(super) last: Option<Selection>,
    /// The list of pools that comes in has it.
    listed: bool,
    /// Why its watch does not work, until it does.
    broken: Option<Failure>,
    /// What keeps it from being followed.
    unfollowed: Option<Failure>,
    looking: Looking,
}

/// What is heard of it.
pub(super) enum News {
    Told(Told<PoolObject>),
    /// It was gone, and is here.
    Found(ApiResource),
}

/// What follows.
pub(super) enum Means {
    Nothing,
    /// What fails is another thing, or nothing.
    Changed,
    Selected(Selection),
    Fails(Failure),
}

impl Selects {
    pub(super) fn new(cluster: &Cluster, resource: ApiResource, name: &str) -> Self {
        Self {
            watch: Watch::new(cluster, &resource, Which::Named(name)),
            name: name.to_owned(),
            cluster: cluster.clone(),
            resource,
            last: None,
            listed: true,
            broken: None,
            unfollowed: None,
            looking: Looking::default(),
        }
    }

    /// What comes next; never ends. Nothing is lost where it is dropped before it is ready.
    pub(super) async fn next(&mut self) -> News {
        tokio::select! {
            event = self.watch.next() => News::Told(event),
            resource = self.looking.found() => News::Found(resource),
        }
    }

    /// Why its pods may be others than those that are followed.
    pub(super) fn fails(&self) -> Option<&Failure> {
        self.unfollowed.as_ref().or(self.broken.as_ref())
    }

    pub(super) fn take(&mut self, news: News) -> Means {
        let event = match news {
            News::Told(event) => event,
            News::Found(resource) => {
                self.found(resource);
                return Means::Nothing;
            }
        };
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                self.is_there();
                match Selection::of(&object.spec) {
                    Ok(selection) => {
                        self.unfollowed = None;
                        Means::Selected(selection)
                    }
                    Err(why) => self.cannot_be_followed(Kind::Empty, &why),
                }
            }
            Ok(Event::Unread(unread)) => {
                self.is_there();
                self.cannot_be_followed(Kind::Server, &unread.text)
            }
            Ok(Event::Delete(_)) => self.is_gone(),
            Ok(Event::Init) => {
                self.listed = false;
                Means::Nothing
            }
            Ok(Event::InitDone) if !self.listed => self.is_gone(),
            Ok(Event::InitDone) => Means::Nothing,
            Ok(Event::Works) => {
                self.broken = None;
                Means::Changed
            }
            Err(why) => {
                // The group is not served any more: the pool may be in another one.
                if why.kind == Kind::NotFound {
                    self.looking.begin(&self.cluster, &self.name);
                }
                if !why.kind.is_passing() {
                    self.broken = Some(why.clone());
                }
                Means::Fails(why)
            }
        }
    }

    fn is_there(&mut self) {
        self.listed = true;
        self.looking.end();
    }

    fn is_gone(&mut self) -> Means {
        self.looking.begin(&self.cluster, &self.name);
        let text =
            "the InferencePool was deleted: its pods are followed as before, and it is looked for";
        self.unfollowed(Kind::NotFound, text.to_owned())
    }

    fn cannot_be_followed(&mut self, kind: Kind, why: &str) -> Means {
        self.unfollowed(kind, format!("the InferencePool cannot be followed: {why}"))
    }

    fn unfollowed(&mut self, kind: Kind, text: String) -> Means {
        let failure = Failure { kind, text };
        self.unfollowed = Some(failure.clone());
        Means::Fails(failure)
    }

    /// It is in this API group now. If that is the one that is watched, the watch tells.
    fn found(&mut self, resource: ApiResource) {
        if resource == self.resource {
            return;
        }
        tracing::info!(pool = %self.name, api_version = %resource.api_version, "the InferencePool is in another API group now");
        self.watch = Watch::new(&self.cluster, &resource, Which::Named(&self.name));
        self.resource = resource;
        self.broken = None;
    }
}
