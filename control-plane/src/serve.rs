//! Puts the parts together and runs them until told to stop.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::serve::ListenerExt;
use prefix_picker_core::ids::Epoch;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::ms_since;
use crate::config::{Config, FleetSecret, ReplicaConfig};
use crate::discovery::kept::Kept;
use crate::discovery::run;
use crate::drains::Drains;
use crate::engine::memory::Memory;
use crate::engine::{self, Engine, PoolParts, rules, snapshot};
use crate::facts;
use crate::metrics::{Metrics, ResultLabels, unix_seconds};
use crate::parts;
use crate::server::auth::Tokens;
use crate::server::{self, Refused, Shared};
use crate::supervisor::{Events, Supervisor};

/// A snapshot is written at most for one part in so many of the time, since the index waits for it.
const SNAPSHOT_SHARE: u32 = 20;
/// Time between readings of the token files.
const TOKENS_INTERVAL: Duration = Duration::from_secs(5);
/// How often a start looks whether all replicas are known.
const OPEN_INTERVAL: Duration = Duration::from_millis(20);
/// How long a connection to an engine stays open that nobody uses: to one that is gone, for nothing.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// How long open connections may take to end at a stop.
const STOP_MAX: Duration = Duration::from_secs(3);

/// A control plane that has been set up and not started yet.
pub struct Serve {
    config: Arc<Config>,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    tokens: Arc<Tokens>,
    admin: Arc<Tokens>,
    drains: Arc<Drains>,
    kept: Kept,
    supervisor: Arc<tokio::sync::Mutex<Supervisor>>,
    listener: TcpListener,
}

impl Serve {
    /// Reads everything the configuration names and takes the listening address.
    ///
    /// # Errors
    /// If a file is missing or broken, or the address is taken.
    pub async fn open(config: Config) -> anyhow::Result<Self> {
        let dir = &config.data_dir;
        std::fs::create_dir_all(dir)
            .with_context(|| format!("data_dir {} cannot be made", dir.display()))?;
        let tokens = Tokens::open(&config.tokens, &config.token_files)?;
        let admin = Tokens::open(&config.admin_tokens, &config.admin_token_files)?;
        let secret = fleet_secret(&config)?;
        // Models may come from the hub, which takes its time.
        let pools = config.pools.clone();
        let load = move || pools.iter().map(parts::load).collect::<anyhow::Result<_>>();
        let mut parts: Vec<_> = tokio::task::spawn_blocking(load).await??;
        for (pool, parts) in config.pools.iter().zip(&parts) {
            for (what, why) in parts::obstacles(&parts.profile) {
                tracing::warn!(pool = %pool.name, what, why, "requests of this kind are routed by history, not by events");
            }
        }
        // Engines are near: a proxy of the environment is not for them.
        let client = reqwest::Client::builder()
            .no_proxy()
            .pool_idle_timeout(IDLE_MAX)
            .build()?;
        let memory = Memory::read(dir);
        // Those that were discovered in the last life are there until somebody says otherwise.
        let kept = Kept::read(dir);
        follow_versions(&config, &kept, &memory, &client, &mut parts).await;
        // Milliseconds since 1970: above the versions of any earlier life.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let version = (unix_seconds() * 1000.0) as u64;
        let epoch = Epoch(random_u64()?.max(1));
        let engine = Arc::new(Engine::new(&config, parts, &secret, epoch, version));
        run::restore(&engine, &config, &kept);
        snapshot::load(&engine, &config);
        engine.remember(&memory);
        let drains = Drains::open(&engine, &config);
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let (config, metrics) = (Arc::new(config), Arc::new(Metrics::new()));
        let supervisor = Supervisor::new(config.clone(), engine.clone(), metrics.clone(), client);
        Ok(Self {
            config,
            engine,
            metrics,
            tokens: Arc::new(tokens),
            admin: Arc::new(admin),
            drains: Arc::new(drains),
            kept,
            supervisor: Arc::new(tokio::sync::Mutex::new(supervisor)),
            listener,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The brain, for tests.
    #[must_use]
    pub fn engine(&self) -> Arc<Engine> {
        self.engine.clone()
    }

    /// Runs until `stop` ends, then writes the snapshots.
    ///
    /// # Errors
    /// If the server or the last snapshot fails.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<()> {
        let (stopping, stopped) = watch::channel(false);
        let mut tasks = self.start_tasks().await;
        let shared = Arc::new(Shared {
            engine: self.engine.clone(),
            metrics: self.metrics.clone(),
            tokens: self.tokens.clone(),
            admin: self.admin.clone(),
            drains: self.drains,
            config: self.config.clone(),
            stopping: stopped.clone(),
            refused: Refused::default(),
            status: server::Kept::default(),
        });
        tracing::info!(address = %self.listener.local_addr()?, version = env!("CARGO_PKG_VERSION"), "listening");
        let mut until = stopped.clone();
        // Answers are small and wanted at once. A socket that refuses still works.
        let listener = self.listener.tap_io(|socket| {
            let _ = socket.set_nodelay(true);
        });
        let router = server::router(shared);
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let server = axum::serve(listener, service).with_graceful_shutdown(async move {
            // An error means that nobody can stop us any more: then stop.
            let _ = until.wait_for(|stop| *stop).await;
        });
        let server = tokio::spawn(server.into_future());
        let mut server = std::pin::pin!(server);
        tokio::select! {
            () = stop => tracing::info!("stopping"),
            ended = &mut server => ended?.context("the HTTP server failed")?,
        }
        stopping.send_replace(true);
        if tokio::time::timeout(STOP_MAX, server).await.is_err() {
            tracing::warn!("connections were cut at stop");
        }
        // Nothing is applied after this, so the snapshot is the last word.
        tasks.shutdown().await;
        self.supervisor.lock().await.shutdown().await;
        let bytes = snapshot::write(&self.engine, &self.config)
            .context("the snapshot cannot be written")?;
        tracing::info!(bytes, "stopped, snapshot written");
        Ok(())
    }

    async fn start_tasks(&self) -> JoinSet<()> {
        let (config, engine, metrics) = (&self.config, &self.engine, &self.metrics);
        let mut tasks = JoinSet::new();
        {
            let mut supervisor = self.supervisor.lock().await;
            for (pool, replica) in config.replicas() {
                if let Some(slot) = engine.slot_of(&replica.name) {
                    supervisor.start(slot, pool, replica, Events::Configured);
                }
            }
        }
        tasks.spawn(engine::publish_loop(
            engine.clone(),
            Duration::from_millis(config.publish_interval_ms),
        ));
        engine.check_generated(config.pools.iter().map(|pool| pool.model_dir.as_path()));
        tasks.spawn(crate::canonicity::run(engine.clone()));
        tasks.spawn(open_when_known(
            engine.clone(),
            Duration::from_millis(config.startup_grace_ms),
        ));
        tasks.spawn(announce_loads(
            engine.clone(),
            Duration::from_millis(config.scrape_interval_ms),
        ));
        if config.snapshot_interval_ms > 0 {
            let interval = Duration::from_millis(config.snapshot_interval_ms);
            tasks.spawn(write_snapshots(
                engine.clone(),
                config.clone(),
                metrics.clone(),
                interval,
            ));
        }
        for tokens in [&self.tokens, &self.admin] {
            if tokens.has_files() {
                tasks.spawn(reload_tokens(tokens.clone()));
            }
        }
        let parts = run::Parts {
            config: config.clone(),
            engine: engine.clone(),
            metrics: metrics.clone(),
            drains: self.drains.clone(),
            supervisor: self.supervisor.clone(),
        };
        tasks.spawn(run::Discovery::new(parts, self.kept.clone()).run());
        tasks
    }
}

/// Gives each pool the rules of the version that most of its engines have: as they say now, or said
/// before they went away.
async fn follow_versions(
    config: &Config,
    kept: &Kept,
    memory: &Memory,
    client: &reqwest::Client,
    parts: &mut [PoolParts],
) {
    let timeout = Duration::from_millis(config.scrape_timeout_ms);
    let configured = config.replicas();
    let mut replicas: Vec<(usize, ReplicaConfig)> = configured
        .map(|(pool, replica)| (pool, replica.clone()))
        .collect();
    let mut keys: Vec<String> = replicas
        .iter()
        .map(|(_, replica)| replica.name.clone())
        .collect();
    for pool in 0..config.pools.len() {
        for found in kept.of(config, pool) {
            replicas.push((pool, found.replica.clone()));
            keys.push(found.key.clone());
        }
    }
    let told = facts::versions(config, &replicas, client, timeout).await;
    let mut versions: Vec<Vec<String>> = vec![Vec::new(); config.pools.len()];
    for (((pool, _), key), told) in replicas.iter().zip(&keys).zip(told) {
        let version = told.or_else(|| memory.version(key).map(str::to_owned));
        if let Some(of_pool) = versions.get_mut(*pool) {
            of_pool.extend(version);
        }
    }
    for ((pool, parts), versions) in config.pools.iter().zip(parts).zip(versions) {
        if pool.engine.vllm_version.is_some() {
            continue;
        }
        match rules::majority(versions.iter().map(String::as_str)) {
            Some(rules) => parts.profile.rules = rules,
            None => tracing::info!(
                pool = %pool.name,
                "no engine says its version yet: prompts are rendered as by the newest vLLM known"
            ),
        }
    }
}

/// Gateways get a table once every replica is either followed or down, or the grace is over: until
/// then, one that has an older table is better off with that.
async fn open_when_known(engine: Arc<Engine>, grace: Duration) {
    let deadline = tokio::time::Instant::now() + grace;
    let waiting =
        || !engine.unsettled_replicas().is_empty() || !engine.unasked_replicas().is_empty();
    while waiting() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(OPEN_INTERVAL).await;
    }
    let missing = engine.unsettled_replicas();
    if !missing.is_empty() {
        tracing::warn!(
            replicas = missing.join(", "),
            "starting without the events of some replicas"
        );
    }
    let first = engine.clone();
    if tokio::task::spawn_blocking(move || first.publish())
        .await
        .is_err()
    {
        tracing::error!("publishing failed");
    }
    engine.open();
    tracing::info!("ready");
}

async fn announce_loads(engine: Arc<Engine>, interval: Duration) {
    let start = tokio::time::Instant::now();
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        let now_ms = ms_since(start);
        engine.announce_loads(now_ms);
    }
}

async fn reload_tokens(tokens: Arc<Tokens>) {
    loop {
        tokio::time::sleep(TOKENS_INTERVAL).await;
        if let Err(error) = tokens.reload() {
            tracing::warn!(%error, "tokens stay as they were");
        }
    }
}

async fn write_snapshots(
    engine: Arc<Engine>,
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    interval: Duration,
) {
    let mut pause = interval;
    loop {
        tokio::time::sleep(pause).await;
        let begin = tokio::time::Instant::now();
        let (engine, config) = (engine.clone(), config.clone());
        let written = tokio::task::spawn_blocking(move || snapshot::write(&engine, &config)).await;
        let result = match written {
            Ok(Ok(bytes)) => {
                metrics
                    .snapshot_bytes
                    .set(i64::try_from(bytes).unwrap_or(i64::MAX));
                "written"
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "snapshot cannot be written");
                "failed"
            }
            Err(error) => {
                tracing::error!(%error, "snapshot cannot be written");
                "failed"
            }
        };
        metrics
            .snapshots
            .get_or_create(&ResultLabels { result })
            .inc();
        pause = interval.max(begin.elapsed() * SNAPSHOT_SHARE);
    }
}

fn random_u64() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// The secret's bytes. A generated one is 32 random bytes in hex, readable by the owner alone.
fn fleet_secret(config: &Config) -> anyhow::Result<Vec<u8>> {
    match &config.fleet_secret {
        FleetSecret::Inline(secret) => Ok(secret.as_bytes().to_vec()),
        FleetSecret::File(path) => read_secret(path),
        FleetSecret::Generated => {
            let path = config.data_dir.join("fleet-secret");
            if path.exists() {
                return read_secret(&path);
            }
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes)
                .map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
            write_private(&path, &hex::encode(bytes))
                .with_context(|| format!("fleet secret {} cannot be written", path.display()))?;
            read_secret(&path)
        }
    }
}

/// A secret's bytes, without white space around them.
pub(crate) fn read_secret(path: &Path) -> anyhow::Result<Vec<u8>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("fleet secret {} cannot be read", path.display()))?;
    let secret = text.trim().as_bytes().to_vec();
    anyhow::ensure!(
        secret.len() >= 16,
        "fleet secret {}: shorter than 16 bytes",
        path.display()
    );
    Ok(secret)
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
