//! An engine's life: each incarnation has a runtime of its own, so that its death closes every socket at
//! once and leaves nothing running, as a killed process would.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::config::Config;
use crate::core::{Core, Shared};
use crate::generate::Random;
use crate::hash::none_hash;
use crate::http::{App, router_of_ranks};
use crate::model::Model;
use crate::publisher::{Endpoints, Publisher, Ring, SharedRing};

const WORKERS: usize = 2;
/// How long a dying incarnation's blocking work is waited for.
const DEATH: Duration = Duration::from_millis(500);
/// How long a port is tried for again after a restart.
const REBIND: Duration = Duration::from_secs(5);
/// A fault's own answer gets out before it strikes.
const ANSWER_FIRST: Duration = Duration::from_millis(30);

/// What an engine's thread is told.
#[derive(Debug)]
pub(crate) enum Control {
    Die,
    Restart {
        down: Duration,
        done: Option<Sender<()>>,
    },
    Stop,
}

/// Sends `control` a little later, from a thread that does not die with the engine.
pub(crate) fn after_answer(control: &Sender<Control>, order: Control) {
    let control = control.clone();
    std::thread::spawn(move || {
        std::thread::sleep(ANSWER_FIRST);
        let _ = control.send(order);
    });
}

#[derive(Debug, Clone)]
struct Addresses {
    http: SocketAddr,
    endpoints: Endpoints,
}

/// A running engine. Dropping it stops it.
#[derive(Debug)]
pub struct Engine {
    name: String,
    addresses: Addresses,
    control: Sender<Control>,
    died: Arc<Mutex<Receiver<()>>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts an engine in this process, on threads and a runtime of its own; returns once it listens.
/// Blocks for some milliseconds, so call it outside of time-critical async code.
///
/// # Errors
/// Settings that contradict each other, or an address that cannot be bound.
pub fn spawn(config: Config) -> anyhow::Result<Engine> {
    config.validate().map_err(|wrong| anyhow!(wrong))?;
    let name = config.name.clone();
    let (control, orders) = mpsc::channel();
    let (ready, started) = mpsc::channel();
    let (dead, died) = mpsc::channel();
    let own_control = control.clone();
    let thread = std::thread::Builder::new()
        .name(format!("engine-sim {name}"))
        .spawn(move || live(config, &own_control, &orders, &ready, &dead))
        .context("starting a thread")?;
    let addresses = started.recv().context("the engine's thread ended")??;
    Ok(Engine {
        name,
        addresses,
        control,
        died: Arc::new(Mutex::new(died)),
        thread: Some(thread),
    })
}

impl Engine {
    /// As in the `x-engine` header.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// HTTP address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addresses.http
    }

    /// `http://host:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addresses.http)
    }

    /// Where to subscribe to events, as a client would write it.
    #[must_use]
    pub fn events_endpoint(&self) -> Option<String> {
        self.addresses.endpoints.events.as_deref().map(reachable)
    }

    /// Where to ask for replays, as a client would write it.
    #[must_use]
    pub fn replay_endpoint(&self) -> Option<String> {
        self.addresses.endpoints.replay.as_deref().map(reachable)
    }

    /// Kills the engine: every socket closes. [`Engine::restart`] brings it back.
    pub fn die(&self) {
        let _ = self.control.send(Control::Die);
        let _ = self.wait_dead(DEATH * 4);
    }

    /// Kills the engine, waits `down`, and starts it again on the same ports with sequence 0 and an empty
    /// cache. Returns once it listens.
    pub fn restart(&self, down: Duration) {
        let (done, listens) = mpsc::channel();
        let _ = self.control.send(Control::Restart {
            down,
            done: Some(done),
        });
        let _ = listens.recv_timeout(down + DEATH + REBIND);
    }

    /// Waits until the engine has died (by [`Engine::die`] or a `die` fault). False: not within `timeout`.
    #[must_use]
    pub fn wait_dead(&self, timeout: Duration) -> bool {
        self.died
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv_timeout(timeout)
            .is_ok()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.control.send(Control::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn reachable(endpoint: &str) -> String {
    endpoint
        .replace("//0.0.0.0:", "//127.0.0.1:")
        .replace("//*:", "//127.0.0.1:")
}

/// The engine's thread: incarnation after incarnation until told to stop.
fn live(
    mut config: Config,
    control: &Sender<Control>,
    orders: &Receiver<Control>,
    ready: &Sender<anyhow::Result<Addresses>>,
    dead: &Sender<()>,
) {
    let mut alive = match incarnate(&config, 0, control) {
        Ok((runtime, addresses)) => {
            keep_ports(&mut config, &addresses);
            let _ = ready.send(Ok(addresses));
            Some(runtime)
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let mut incarnation = 0;
    while let Ok(order) = orders.recv() {
        if let Some(runtime) = alive.take() {
            runtime.shutdown_timeout(DEATH);
        }
        match order {
            Control::Stop => return,
            Control::Die => {
                let _ = dead.send(());
            }
            Control::Restart { down, done } => {
                std::thread::sleep(down);
                incarnation += 1;
                alive = rebirth(&config, incarnation, control);
                if let Some(done) = done {
                    let _ = done.send(());
                }
            }
        }
    }
}

fn rebirth(config: &Config, incarnation: u64, control: &Sender<Control>) -> Option<Runtime> {
    let begun = Instant::now();
    loop {
        match incarnate(config, incarnation, control) {
            Ok((runtime, _)) => return Some(runtime),
            Err(error) if begun.elapsed() > REBIND => {
                tracing::error!(error = format!("{error:#}"), "restart failed");
                return None;
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A later incarnation listens where the first one did, also if the system chose the ports.
fn keep_ports(config: &mut Config, addresses: &Addresses) {
    config.listen = addresses.http;
    for (configured, bound) in [
        (&mut config.events, &addresses.endpoints.events),
        (&mut config.replay, &addresses.endpoints.replay),
    ] {
        if let Some(configured) = configured
            && configured.ends_with(":0")
            && let Some((_, port)) = bound.as_deref().and_then(|b| b.rsplit_once(':'))
        {
            *configured = format!("{}{port}", configured.trim_end_matches('0'));
        }
    }
}

fn incarnate(
    config: &Config,
    incarnation: u64,
    control: &Sender<Control>,
) -> anyhow::Result<(Runtime, Addresses)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name(format!("sim {}", config.name))
        .enable_all()
        .build()
        .context("starting a runtime")?;
    match runtime.block_on(start(config, incarnation, control.clone())) {
        Ok(addresses) => Ok((runtime, addresses)),
        Err(error) => {
            runtime.shutdown_timeout(DEATH);
            Err(error)
        }
    }
}

async fn start(
    config: &Config,
    incarnation: u64,
    control: Sender<Control>,
) -> anyhow::Result<Addresses> {
    let model = Arc::new(Model::load()?);
    let mut apps = Vec::new();
    for rank in 0..config.data_parallel_size {
        let config = config.of_rank(rank);
        apps.push(start_rank(config, incarnation, Arc::clone(&model), control.clone()).await?);
    }
    let endpoints = apps.first().map(|app| app.endpoints.clone());
    let endpoints = endpoints.unwrap_or_default();
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("listening on {}", config.listen))?;
    let http = listener.local_addr().context("own address")?;
    let listener = listener.tap_io(|tcp| {
        let _ = tcp.set_nodelay(true);
    });
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router_of_ranks(apps)).await {
            tracing::error!(%error, "HTTP server ended");
        }
    });
    Ok(Addresses { http, endpoints })
}

async fn start_rank(
    config: Config,
    incarnation: u64,
    model: Arc<Model>,
    control: Sender<Control>,
) -> anyhow::Result<App> {
    let ring: SharedRing = Arc::new(Mutex::new(Ring::default()));
    let (publisher, endpoints) = Publisher::open(&config, Arc::clone(&ring)).await?;
    let name: Vec<u32> = config.name.bytes().map(u32::from).collect();
    let none_hash = none_hash(
        config.wire,
        config.python_hash_seed.as_deref(),
        Random::of(config.seed ^ incarnation, &name).next(),
    );
    let shared = Arc::new(Shared::new(config, incarnation, ring));
    let (engine, commands) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(Core::new(Arc::clone(&shared), publisher, commands).run());
    Ok(App {
        shared,
        model,
        engine,
        control,
        endpoints,
        none_hash,
    })
}

/// Runs one engine until SIGTERM or SIGINT (then `Ok`), or until a `die` fault (then an error).
///
/// # Errors
/// As [`spawn`]; or it died on command.
pub fn run(config: Config) -> anyhow::Result<()> {
    let engine = spawn(config)?;
    tracing::info!(
        name = engine.name(),
        http = engine.url(),
        events = engine.events_endpoint(),
        replay = engine.replay_endpoint(),
        "engine listens"
    );
    let died = Arc::clone(&engine.died);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting a runtime")?;
    let (dead, mut death) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        if died
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv()
            .is_ok()
        {
            let _ = dead.send(());
        }
    });
    runtime.block_on(async {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            _ = term.recv() => Ok(()),
            _ = tokio::signal::ctrl_c() => Ok(()),
            Some(()) = death.recv() => Err(anyhow!("died on command")),
        }
    })
}
