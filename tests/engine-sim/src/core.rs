//! The engine's own task: takes requests, steps the scheduler, lets time pass, publishes events, then hands
//! out tokens. Everything that HTTP may look at lies in [`Shared`].

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::hash::as_u64;
use crate::http::Adapters;
use crate::metrics::Histograms;
use crate::publisher::{Publisher, SharedRing};
use crate::scheduler::{Counters, Limits, NewRequest, Output, RequestId, Scheduler, Step};

/// One request on its way into the scheduler.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) new: NewRequest,
    /// Which of an HTTP call's answers this is.
    pub(crate) index: usize,
    pub(crate) outputs: mpsc::UnboundedSender<(usize, Output)>,
    pub(crate) arrival: Instant,
}

/// What the engine is told.
#[derive(Debug)]
pub(crate) enum Command {
    Add(Vec<Job>),
    ResetCache(oneshot::Sender<bool>),
    /// Wire hash and number of copies of every cached block.
    Blocks(oneshot::Sender<Vec<(u64, usize)>>),
}

/// Faults in force.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    pub(crate) stall_until: Option<Instant>,
    /// Steps take this many times longer.
    pub(crate) slow: f64,
    /// Requests still to be refused, and with which status.
    pub(crate) refuse: (u64, u16),
    /// The engine behind the API server has died.
    pub(crate) unhealthy: bool,
}

/// Gauges and counters, as of the last step.
#[derive(Debug, Default, Clone)]
pub(crate) struct Stats {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) free_blocks: u32,
    pub(crate) usable_blocks: u32,
    pub(crate) cached_blocks: usize,
    pub(crate) evictions: u64,
    pub(crate) cache: Counters,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) finished: u64,
    pub(crate) aborted: u64,
    pub(crate) rejected_requests: u64,
    pub(crate) rejected_tokens: u64,
    pub(crate) histograms: Histograms,
}

/// What the engine's task and the HTTP server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Starts before this one.
    pub(crate) incarnation: u64,
    pub(crate) started: SystemTime,
    pub(crate) ring: SharedRing,
    /// Accepted and not finished.
    pub(crate) requests: AtomicU32,
    /// Prompt tokens accepted whose prefill has not ended.
    pub(crate) prefill_tokens: AtomicU64,
    pub(crate) next_id: AtomicU64,
    stats: Mutex<Stats>,
    faults: Mutex<Faults>,
    adapters: Mutex<Adapters>,
}

impl Shared {
    pub(crate) fn new(config: Config, incarnation: u64, ring: SharedRing) -> Self {
        let usable = config.blocks.saturating_sub(1);
        let stats = Stats {
            free_blocks: usable,
            usable_blocks: usable,
            ..Stats::default()
        };
        Self {
            adapters: Mutex::new(Adapters::new(&config.lora)),
            config,
            incarnation,
            started: SystemTime::now(),
            ring,
            requests: AtomicU32::new(0),
            prefill_tokens: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
            stats: Mutex::new(stats),
            faults: Mutex::new(Faults {
                stall_until: None,
                slow: 1.0,
                refuse: (0, 503),
                unhealthy: false,
            }),
        }
    }

    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn adapters(&self) -> MutexGuard<'_, Adapters> {
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Client {
    index: usize,
    outputs: mpsc::UnboundedSender<(usize, Output)>,
    prompt_len: u64,
    arrival: Instant,
    last: Option<Instant>,
}

/// The task's state.
pub(crate) struct Core {
    shared: std::sync::Arc<Shared>,
    scheduler: Scheduler,
    publisher: Publisher,
    commands: mpsc::UnboundedReceiver<Command>,
    clients: HashMap<RequestId, Client>,
    /// Simulated time not yet slept.
    owed: Duration,
}

/// Shorter waits are gathered: the timer is no finer.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

impl Core {
    pub(crate) fn new(
        shared: std::sync::Arc<Shared>,
        publisher: Publisher,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let config = &shared.config;
        let limits = Limits {
            block_size: config.block_size,
            max_num_seqs: config.max_num_seqs,
            max_num_batched_tokens: config.max_num_batched_tokens,
        };
        let scheduler = Scheduler::new(limits, config.blocks);
        Self {
            shared,
            scheduler,
            publisher,
            commands,
            clients: HashMap::new(),
            owed: Duration::ZERO,
        }
    }

    /// Runs until the HTTP server is gone.
    pub(crate) async fn run(mut self) {
        loop {
            if self.scheduler.is_idle() {
                let Some(command) = self.commands.recv().await else {
                    return;
                };
                self.handle(command);
            }
            while let Ok(command) = self.commands.try_recv() {
                self.handle(command);
            }
            self.drop_gone();
            self.wait_while_stalled().await;
            let step = self.scheduler.step();
            self.let_time_pass(&step).await;
            self.publisher.publish(&step.events).await;
            self.deliver(step);
            tokio::task::yield_now().await;
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Add(jobs) => {
                for job in jobs {
                    let client = Client {
                        index: job.index,
                        outputs: job.outputs,
                        prompt_len: job.new.prompt.len() as u64,
                        arrival: job.arrival,
                        last: None,
                    };
                    self.clients.insert(job.new.id, client);
                    self.scheduler.add(job.new);
                }
            }
            Command::ResetCache(done) => drop(done.send(self.scheduler.reset_prefix_cache())),
            Command::Blocks(list) => {
                let blocks = self
                    .scheduler
                    .pool()
                    .cached()
                    .map(|(d, n)| (as_u64(d), n))
                    .collect();
                let _ = list.send(blocks);
            }
        }
        self.tell_stats();
    }

    /// Aborts requests whose clients have gone away.
    fn drop_gone(&mut self) {
        let gone: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, c)| c.outputs.is_closed())
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.scheduler.abort(id);
            self.forget(id);
            self.shared.stats().aborted += 1;
        }
    }

    fn forget(&mut self, id: RequestId) {
        if let Some(client) = self.clients.remove(&id) {
            self.shared.requests.fetch_sub(1, Ordering::Relaxed);
            if client.last.is_none() {
                self.shared
                    .prefill_tokens
                    .fetch_sub(client.prompt_len, Ordering::Relaxed);
            }
        }
    }

    async fn wait_while_stalled(&self) {
        loop {
            let until = self.shared.faults().stall_until;
            match until.and_then(|until| until.checked_duration_since(Instant::now())) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    }

    /// A step takes as long as its slowest part: prefill adds up, decoding shares the step.
    async fn let_time_pass(&mut self, step: &Step) {
        let config = &self.shared.config;
        if config.speed == 0.0 || (step.prefill_tokens == 0 && step.decodes == 0) {
            return;
        }
        let slow = self.shared.faults().slow;
        let seconds = f64::from(step.prefill_tokens) / config.prefill_tokens_per_s
            + (config.step_ms + f64::from(step.decodes) * config.step_ms_per_decode) / 1000.0;
        self.owed += Duration::try_from_secs_f64(seconds * slow / config.speed).unwrap_or_default();
        if self.owed >= SHORTEST_SLEEP {
            let before = Instant::now();
            tokio::time::sleep(self.owed).await;
            self.owed = self.owed.saturating_sub(before.elapsed());
        }
    }

    fn deliver(&mut self, step: Step) {
        let now = Instant::now();
        let shared = std::sync::Arc::clone(&self.shared);
        let mut stats = shared.stats();
        for output in step.outputs {
            let Some(client) = self.clients.get_mut(&output.id) else {
                continue;
            };
            stats.generation_tokens += 1;
            match client.last.replace(now) {
                None => {
                    shared
                        .prefill_tokens
                        .fetch_sub(client.prompt_len, Ordering::Relaxed);
                    stats.prompt_tokens += client.prompt_len;
                    stats.cached_tokens += u64::from(output.cached_tokens);
                    stats.histograms.first_token.observe(now - client.arrival);
                }
                Some(last) => stats.histograms.between_tokens.observe(now - last),
            }
            let (id, finished) = (output.id, output.finished);
            if finished {
                stats.finished += 1;
                stats.histograms.whole_request.observe(now - client.arrival);
            }
            let _ = client.outputs.send((client.index, output));
            if finished {
                self.forget(id);
            }
        }
        drop(stats);
        self.tell_stats();
    }

    fn tell_stats(&self) {
        let mut stats = self.shared.stats();
        let pool = self.scheduler.pool();
        stats.running = self.scheduler.running();
        stats.waiting = self.scheduler.waiting();
        stats.free_blocks = pool.free_count();
        stats.usable_blocks = pool.usable();
        stats.cached_blocks = pool.cached_count();
        stats.evictions = pool.evictions();
        stats.cache = self.scheduler.counters().clone();
    }
}
