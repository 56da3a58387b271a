//! One VM's state. It lives in a static, since a configuration change keeps the VM but makes new
//! contexts, and streams of the old ones still count.

use std::cell::RefCell;

use crate::decisions::Told;
use crate::feedback::{Figures, NOTES};
use crate::health::Health;
use crate::host::Host;
use crate::lease::Lease;
use crate::load::Loads;
use crate::metrics::Metrics;
use crate::news::News;
use crate::pools::{HeadCache, View};
use crate::profiles::Profiles;
use crate::quiet::Quiet;
use crate::recent::SENT;
use crate::replicas::Replicas;
use crate::router::missed::Missed;
use crate::router::report::Reports;
use crate::router::stored_answers::ANSWERS;
use crate::sync::choice::Choice;
use crate::sync::{Freshness, Poller};

/// All of it.
#[derive(Debug)]
pub struct Vm {
    /// Random numbers for draws and jitter.
    pub random: Random,
    /// The head in shared data.
    pub heads: HeadCache,
    /// Compiled profiles.
    pub profiles: Profiles,
    /// Work in flight.
    pub loads: Loads,
    /// What replicas say, and how much of it is others'.
    pub replicas: Replicas,
    /// Endpoints that fail.
    pub health: Health,
    /// Who polls.
    pub lease: Lease,
    /// The poller's state, idle in most VMs.
    pub poller: Poller,
    /// Which control plane it asks.
    pub choice: Choice,
    /// What gateways tell each other, in the VM that polls.
    pub news: News,
    /// What became of decisions, to be told.
    pub decisions: Told,
    /// When the control plane was last heard by this process.
    pub freshness: Freshness,
    /// Metric ids.
    pub metrics: Metrics,
    /// Predictions against what engines report.
    pub feedback: Figures,
    /// Complaints about routes' metadata.
    pub odd_routes: Quiet,
    /// Overrides that Envoy did not obey.
    pub missed: Missed,
    /// Full reports asked for.
    pub reports: Reports,
    /// Requests until the next timed one.
    pub untimed: u32,
    /// Pools already reported to get token-id prompts.
    pub token_id_pools: Vec<String>,
}

impl Vm {
    /// A VM's state at its start.
    #[must_use]
    pub fn new(host: &impl Host) -> Self {
        let mut random = Random(host.random_seed());
        let id = random.draw();
        Health::prepare(host);
        SENT.prepare(host);
        ANSWERS.prepare(host);
        NOTES.prepare(host);
        Self {
            random,
            heads: HeadCache::default(),
            profiles: Profiles::default(),
            loads: Loads::new(id),
            replicas: Replicas::default(),
            health: Health::default(),
            lease: Lease::new(id),
            poller: Poller::default(),
            choice: Choice::default(),
            news: News::default(),
            decisions: Told::default(),
            freshness: Freshness::default(),
            metrics: Metrics::define(host),
            feedback: Figures::default(),
            odd_routes: Quiet::default(),
            missed: Missed::default(),
            reports: Reports::default(),
            untimed: 0,
            token_id_pools: Vec::new(),
        }
    }
}

impl Vm {
    /// Takes notice of how many requests a replica has from this Envoy now.
    pub fn note_ours(&mut self, host: &impl Host, view: &View, name: &str) {
        if let Some(replica) = view.replica_called(name) {
            let ours = self.loads.on(replica, name).requests;
            self.replicas.note_ours(name, ours, host.monotonic_us());
        }
    }
}

/// splitmix64: small, and good enough to draw among equals.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

thread_local! {
    static VM: RefCell<Option<Vm>> = const { RefCell::new(None) };
}

/// Runs `work` on this VM's state. `None` if it is in use already, which Envoy's single-threaded
/// callbacks cannot make happen.
pub fn with<R>(host: &impl Host, work: impl FnOnce(&mut Vm) -> R) -> Option<R> {
    VM.with(|vm| {
        let mut vm = vm.try_borrow_mut().ok()?;
        Some(work(vm.get_or_insert_with(|| Vm::new(host))))
    })
}
