//! Carries out what discovery finds: engine, tasks, metrics, log.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use prefix_picker_core::ids::ReplicaIndex;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::found::Found;
use super::kept::Kept;
use super::set::{Command, Set};
use super::{Failure, News, dns, kubernetes};
use crate::clock::ms_since;
use crate::config::{Config, SourceConfig};
use crate::drains::Drains;
use crate::engine::{Engine, JoinError};
use crate::metrics::{ChangeLabels, FailureLabels, Metrics, PoolLabels, unix_seconds};
use crate::supervisor::{Events, Supervisor};

/// How long an address that the DNS does not list any more is remembered: resolvers flap.
const DNS_GRACE_MS: u64 = 30_000;
/// Lists that wait to be taken.
const QUEUE: usize = 16;
/// A failure that lasts is logged again after this long.
const REPEAT: Duration = Duration::from_secs(300);
/// How soon a changed list is on disk.
const SAVE_AFTER: Duration = Duration::from_secs(1);

/// What discovery works on.
pub struct Parts {
    /// The configuration.
    pub config: Arc<Config>,
    /// Who is told of replicas.
    pub engine: Arc<Engine>,
    /// The figures.
    pub metrics: Arc<Metrics>,
    /// Who is out of service.
    pub drains: Arc<Drains>,
    /// Who runs their tasks.
    pub supervisor: Arc<Mutex<Supervisor>>,
}

/// See the module.
pub struct Discovery {
    parts: Parts,
    kept: Kept,
    pools: BTreeMap<usize, Pool>,
    start: Instant,
    save_at: Option<Instant>,
}

struct Pool {
    name: String,
    set: Set,
    slots: HashMap<String, ReplicaIndex>,
    /// Listed, but not to be had, and why.
    refused: BTreeMap<String, (Found, JoinError)>,
    failing: Option<(Failure, Instant)>,
    /// A list has come.
    listed: bool,
}

/// Puts the replicas of the last life into a new engine, before its snapshots are read.
pub fn restore(engine: &Engine, config: &Config, kept: &Kept) {
    for (number, pool) in config.pools.iter().enumerate() {
        for found in kept.of(config, number) {
            match engine.add(number, &found.replica, &found.key, false) {
                Ok(slot) => {
                    engine.stand(slot, found.standing);
                }
                Err(error) => tracing::warn!(
                    pool = %pool.name, replica = %found.replica.name, %error,
                    "a replica that was there before the restart is left out"
                ),
            }
        }
        engine.expect_list(number, pool.discovery.is_some());
    }
}

impl Discovery {
    /// Begins with the replicas that [`restore`] put into the engine.
    #[must_use]
    pub fn new(parts: Parts, kept: Kept) -> Self {
        let mut pools = BTreeMap::new();
        for (number, config) in parts.config.pools.iter().enumerate() {
            let Some(discovery) = &config.discovery else {
                continue;
            };
            let grace_ms = match discovery.source {
                SourceConfig::Dns(_) => DNS_GRACE_MS,
                SourceConfig::Kubernetes(_) => 0,
            };
            let mut set = Set::new(grace_ms);
            set.restore(kept.of(&parts.config, number));
            let pool = Pool {
                name: config.name.clone(),
                set,
                slots: HashMap::new(),
                refused: BTreeMap::new(),
                failing: None,
                listed: false,
            };
            pools.insert(number, pool);
        }
        Self {
            parts,
            kept,
            pools,
            start: Instant::now(),
            save_at: None,
        }
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        let (sender, mut news) = mpsc::channel(QUEUE);
        // They end with this.
        let mut sources = JoinSet::new();
        self.start_sources(&mut sources, &sender);
        self.adopt().await;
        loop {
            let tick = self
                .pools
                .values()
                .filter_map(|pool| pool.set.next_tick_ms())
                .min();
            let tick = tick.map(|ms| self.start + Duration::from_millis(ms));
            let wake = [tick, self.save_at].into_iter().flatten().min();
            tokio::select! {
                Some(news) = news.recv() => self.take(news).await,
                () = at(wake) => self.tick().await,
            }
        }
    }

    fn start_sources(&self, sources: &mut JoinSet<()>, sender: &mpsc::Sender<News>) {
        let configs = self.parts.config.pools.iter().enumerate();
        let configs: Vec<_> = configs
            .filter_map(|(number, pool)| Some((number, pool.discovery.clone()?)))
            .collect();
        let mut namespaces: Vec<_> = configs
            .iter()
            .filter_map(|(_, config)| match &config.source {
                SourceConfig::Kubernetes(of) => Some(of.namespace.clone()),
                SourceConfig::Dns(_) => None,
            })
            .collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        let prefixed = namespaces.len() > 1;
        for (number, config) in configs {
            let sender = sender.clone();
            match config.source.clone() {
                SourceConfig::Dns(of) => sources.spawn(dns::run(number, config, of, sender)),
                SourceConfig::Kubernetes(of) => {
                    sources.spawn(kubernetes::run(number, config, of, prefixed, sender))
                }
            };
        }
    }

    /// Starts the tasks of those that are there from the last life.
    async fn adopt(&mut self) {
        let members = self.parts.engine.members();
        let mut supervisor = self.parts.supervisor.lock().await;
        for (number, pool) in &mut self.pools {
            for found in self.kept.of(&self.parts.config, *number) {
                let member = members
                    .iter()
                    .find(|m| m.pool == *number && m.key == found.key);
                if let Some(member) = member {
                    pool.slots.insert(found.key.clone(), member.slot);
                    supervisor.start(member.slot, *number, &found.replica, Events::Told);
                }
            }
            pool.show(&self.parts.metrics);
        }
    }

    async fn take(&mut self, news: News) {
        let now_ms = ms_since(self.start);
        let Some(pool) = self.pools.get_mut(&news.pool) else {
            return;
        };
        let metrics = &self.parts.metrics;
        let failure = news.list.as_ref().err().or(news.partly.as_ref());
        // Such that are all in a day's work are not told of.
        let failure = failure.filter(|failure| !failure.kind.is_passing());
        let live = self.parts.engine.live();
        if news.list.is_ok() || failure.is_some() {
            let text = failure.map(|failure| &*failure.text);
            live.discovery_said(news.pool, news.list.is_ok(), text);
        }
        match news.list {
            Err(failure) => pool.failed(metrics, failure),
            Ok(list) => {
                // Whole seconds do.
                #[allow(clippy::cast_possible_truncation)]
                let now = unix_seconds() as i64;
                metrics
                    .discovery_success
                    .get_or_create(&pool.labels())
                    .set(now);
                match news.partly {
                    Some(failure) => pool.failed(metrics, failure),
                    None => pool.works(metrics),
                }
                let commands = pool.set.take(list, now_ms);
                self.carry_out(news.pool, commands).await;
                self.first_list(news.pool);
            }
        }
    }

    fn first_list(&mut self, number: usize) {
        if let Some(pool) = self.pools.get_mut(&number)
            && !std::mem::replace(&mut pool.listed, true)
        {
            self.parts.engine.expect_list(number, false);
            tracing::info!(pool = %pool.name, replicas = pool.slots.len(), "discovery has its first list");
        }
    }

    async fn tick(&mut self) {
        let now_ms = ms_since(self.start);
        let numbers: Vec<usize> = self.pools.keys().copied().collect();
        for number in numbers {
            let pool = self.pools.get_mut(&number);
            let commands = pool.map(|pool| pool.set.tick(now_ms)).unwrap_or_default();
            if !commands.is_empty() {
                self.carry_out(number, commands).await;
            }
        }
        if self.save_at.is_some_and(|at| at <= Instant::now()) {
            self.save_at = None;
            let (kept, dir) = (self.kept.clone(), self.parts.config.data_dir.clone());
            let written = tokio::task::spawn_blocking(move || kept.write(&dir)).await;
            if !matches!(written, Ok(Ok(()))) {
                tracing::error!(
                    "discovered.json cannot be written: a restart begins with an older list"
                );
            }
        }
    }

    async fn carry_out(&mut self, number: usize, commands: Vec<Command>) {
        let Some(pool) = self.pools.get_mut(&number) else {
            return;
        };
        let mut supervisor = self.parts.supervisor.lock().await;
        for command in commands {
            match command {
                Command::Remove { key, why } => {
                    pool.remove(&self.parts, &mut supervisor, &key, why).await;
                }
                Command::Stand { key, standing } => {
                    if let Some((found, _)) = pool.refused.get_mut(&key) {
                        found.standing = standing;
                    }
                    if let Some(slot) = pool.slots.get(&key)
                        && self.parts.engine.stand(*slot, standing)
                    {
                        let members = self.parts.engine.members();
                        let name = members.iter().find(|member| member.slot == *slot);
                        let name = name.map_or(key.as_str(), |member| &member.name);
                        tracing::info!(pool = %pool.name, replica = name, standing = standing.as_str(), "a replica is listed as otherwise now");
                    }
                }
                Command::Add(found) => {
                    pool.add(number, &self.parts, &mut supervisor, found).await;
                }
            }
        }
        // Whom they clashed with may be gone.
        for (_, (found, _)) in pool.refused.clone() {
            pool.add(number, &self.parts, &mut supervisor, found).await;
        }
        pool.show(&self.parts.metrics);
        if self.kept.set(&self.parts.config, number, pool.set.listed()) {
            self.save_at
                .get_or_insert_with(|| Instant::now() + SAVE_AFTER);
        }
    }
}

async fn at(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

impl Pool {
    async fn add(
        &mut self,
        number: usize,
        parts: &Parts,
        supervisor: &mut Supervisor,
        found: Found,
    ) {
        let (engine, replica, key) = (
            parts.engine.clone(),
            found.replica.clone(),
            found.key.clone(),
        );
        // Where all numbers were given, the table is written anew.
        let beside_others = self.listed;
        let added =
            tokio::task::spawn_blocking(move || engine.add(number, &replica, &key, beside_others));
        let slot = match added.await {
            Ok(Ok(slot)) => slot,
            Ok(Err(error)) => return self.refuse(found, error),
            Err(error) => {
                tracing::error!(replica = %found.replica.name, %error, "a replica cannot be added");
                return;
            }
        };
        self.refused.remove(&found.key);
        let replica = &found.replica;
        parts.engine.stand(slot, found.standing);
        parts.drains.joined(&parts.engine, slot, &replica.name);
        supervisor.start(slot, number, replica, Events::Told);
        tracing::info!(
            pool = %self.name, replica = %replica.name, endpoint = %replica.endpoint, standing = found.standing.as_str(),
            "a replica has come: it is listed now"
        );
        self.count(&parts.metrics, "added");
        self.slots.insert(found.key, slot);
    }

    fn refuse(&mut self, found: Found, error: JoinError) {
        let before = self
            .refused
            .insert(found.key.clone(), (found.clone(), error.clone()));
        if before.is_none_or(|(_, before)| before != error) {
            tracing::warn!(pool = %self.name, replica = %found.replica.name, %error, "a replica is listed but left out");
        }
    }

    async fn remove(
        &mut self,
        parts: &Parts,
        supervisor: &mut Supervisor,
        key: &str,
        why: &'static str,
    ) {
        self.refused.remove(key);
        let Some(slot) = self.slots.remove(key) else {
            return;
        };
        let members = parts.engine.members();
        let name = members.into_iter().find(|member| member.slot == slot);
        let name = name.map(|member| member.name).unwrap_or_default();
        supervisor.stop(slot).await;
        parts.drains.forget(&name);
        tracing::info!(pool = %self.name, replica = %name, why, "a replica is gone");
        self.count(&parts.metrics, "removed");
    }

    /// How many there are: known at once, also while nobody can be asked.
    fn show(&self, metrics: &Metrics) {
        let count = i64::try_from(self.slots.len()).unwrap_or(i64::MAX);
        metrics.discovered.get_or_create(&self.labels()).set(count);
    }

    fn count(&self, metrics: &Metrics, change: &'static str) {
        let labels = ChangeLabels {
            pool: self.name.clone(),
            change,
        };
        metrics.discovery_changes.get_or_create(&labels).inc();
    }

    fn failed(&mut self, metrics: &Metrics, failure: Failure) {
        let labels = FailureLabels {
            pool: self.name.clone(),
            kind: failure.kind.as_str(),
        };
        metrics.discovery_failures.get_or_create(&labels).inc();
        if failure.kind.is_passing() {
            // All in a day's work: the watch goes on.
            tracing::info!(pool = %self.name, kind = failure.kind.as_str(), "{}", failure.text);
            return;
        }
        metrics
            .discovery_failing
            .get_or_create(&self.labels())
            .set(1);
        self.complain(failure);
    }

    fn works(&mut self, metrics: &Metrics) {
        metrics
            .discovery_failing
            .get_or_create(&self.labels())
            .set(0);
        if self.failing.take().is_some() {
            tracing::info!(pool = %self.name, "discovery works again");
        }
    }

    fn labels(&self) -> PoolLabels {
        PoolLabels {
            pool: self.name.clone(),
        }
    }

    /// Once, and again now and then.
    fn complain(&mut self, failure: Failure) {
        let replicas = self.slots.len();
        let due = self.failing.as_ref().is_none_or(|(last, at)| {
            (last.kind, &last.text) != (failure.kind, &failure.text) || at.elapsed() >= REPEAT
        });
        if due {
            tracing::warn!(
                pool = %self.name, kind = failure.kind.as_str(), replicas,
                "discovery fails, what was listed last stays in force: {}", failure.text
            );
            self.failing = Some((failure, Instant::now()));
        }
    }
}
