//! The tasks of each replica: its events, its load, what it says of itself. They start and end one
//! replica at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prefix_picker_core::ids::ReplicaIndex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{Config, ReplicaConfig};
use crate::engine::Engine;
use crate::engine::sink::ReplicaSink;
use crate::facts;
use crate::facts::sources::Told;
use crate::metrics::{Metrics, ReplicaLabels};
use crate::scrape;
use crate::subscriber::{self, Source};

/// How long an engine that was discovered may take to say where its events are, before they are looked
/// for where they usually are.
const TELLS_MAX: Duration = Duration::from_secs(2);

/// Whether an engine's word on where its events are goes before the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// They are where the configuration says.
    Configured,
    /// The configuration only guesses.
    Told,
}

/// See the module.
pub struct Supervisor {
    config: Arc<Config>,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    client: reqwest::Client,
    running: HashMap<ReplicaIndex, Running>,
}

struct Running {
    labels: ReplicaLabels,
    tasks: JoinSet<()>,
}

impl Supervisor {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(
        config: Arc<Config>,
        engine: Arc<Engine>,
        metrics: Arc<Metrics>,
        client: reqwest::Client,
    ) -> Self {
        Self {
            config,
            engine,
            metrics,
            client,
            running: HashMap::new(),
        }
    }

    /// Starts what a replica of the engine needs.
    pub fn start(
        &mut self,
        slot: ReplicaIndex,
        pool: usize,
        replica: &ReplicaConfig,
        events: Events,
    ) {
        let Some(pool) = self.config.pools.get(pool) else {
            return;
        };
        let mut about = facts::Target::new(slot, pool, replica);
        let labels = about.labels.clone();
        let told = (events == Events::Told).then(|| {
            let (tell, told) = watch::channel(None);
            about.tell = Some(tell);
            told
        });
        let timeout = Duration::from_millis(self.config.scrape_timeout_ms);
        let mut tasks = JoinSet::new();
        tasks.spawn(facts::run(
            about,
            Duration::from_millis(self.config.models_interval_ms),
            timeout,
            self.client.clone(),
            self.engine.clone(),
            self.metrics.clone(),
        ));
        let follower = Follower {
            source: Source {
                name: replica.name.clone(),
                events: replica.events.clone(),
                replay: replica.replay.clone(),
                topic: replica.topic.clone(),
            },
            engine: self.engine.clone(),
            metrics: self.metrics.clone(),
            slot,
            labels: labels.clone(),
        };
        tasks.spawn(follower.follow(told));
        let target = scrape::Target {
            replica: slot,
            rank: replica.data_parallel_rank,
            labels: labels.clone(),
            metrics: replica.metrics.clone(),
            health: replica.health.clone(),
        };
        tasks.spawn(scrape::run(
            target,
            scrape::Pace::of(&self.config),
            self.client.clone(),
            self.engine.clone(),
            self.metrics.clone(),
        ));
        self.running.insert(slot, Running { labels, tasks });
    }

    /// Ends a replica's tasks, takes it out of the engine and drops its metrics.
    pub async fn stop(&mut self, slot: ReplicaIndex) {
        let Some(mut running) = self.running.remove(&slot) else {
            return;
        };
        // Until they have ended: the next replica may get the slot.
        running.tasks.shutdown().await;
        let engine = self.engine.clone();
        // A replica that holds a million blocks takes a moment to be forgotten.
        let removed = tokio::task::spawn_blocking(move || engine.remove(slot));
        if removed.await.is_err() {
            tracing::error!(replica = %running.labels.replica, "a replica cannot be removed");
        }
        self.metrics.forget(&running.labels);
    }

    /// Ends all tasks; what is known stays.
    pub async fn shutdown(&mut self) {
        for (_, mut running) in self.running.drain() {
            running.tasks.shutdown().await;
        }
    }

    /// Replicas that have tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

/// Follows one replica's events.
struct Follower {
    source: Source,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    slot: ReplicaIndex,
    labels: ReplicaLabels,
}

impl Follower {
    /// From the beginning again where its pool's profile is replaced, or the engine's events are
    /// somewhere else than thought.
    async fn follow(mut self, mut told: Option<watch::Receiver<Option<Told>>>) {
        let Some(mut lives) = self.engine.lives(self.slot) else {
            return;
        };
        if let Some(told) = &mut told {
            // Either way: what is heard later is followed later.
            let _ = tokio::time::timeout(TELLS_MAX, told.wait_for(Option::is_some)).await;
            self.heed(told);
        }
        loop {
            let sink = ReplicaSink::new(
                self.engine.clone(),
                self.metrics.clone(),
                self.slot,
                self.labels.clone(),
            );
            let position = self.engine.position(self.slot);
            tokio::select! {
                () = subscriber::run(self.source.clone(), position, sink) => return,
                changed = lives.changed() => if changed.is_err() { return },
                () = self.moved(&mut told) => {}
            }
            // The subscriber may have applied and said something after the change. From here on it is
            // gone, and a replay brings all of it again.
            self.engine.drop_replica(self.slot);
            self.engine.synced(self.slot, false);
            if let Some(told) = &mut told {
                self.heed(told);
            }
        }
    }

    /// Returns once the engine says that its events are elsewhere.
    async fn moved(&self, told: &mut Option<watch::Receiver<Option<Told>>>) {
        let elsewhere = |said: &Option<Told>| {
            said.as_ref().is_some_and(|said| {
                said.events != self.source.events || said.replay != self.source.replay
            })
        };
        let moved = match told {
            Some(told) => told.wait_for(elsewhere).await.is_ok(),
            None => false,
        };
        if !moved {
            std::future::pending::<()>().await;
        }
    }

    fn heed(&mut self, told: &mut watch::Receiver<Option<Told>>) {
        let Some(said) = told.borrow_and_update().clone() else {
            return;
        };
        if (&said.events, &said.replay) != (&self.source.events, &self.source.replay) {
            tracing::info!(
                replica = %self.source.name,
                events = said.events,
                replay = said.replay.as_deref().unwrap_or("none"),
                "the engine says where its events are"
            );
            (self.source.events, self.source.replay) = (said.events, said.replay);
        }
    }
}
