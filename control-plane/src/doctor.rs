//! Looks at a running fleet and says, item by item, what is right and what to change.
//!
//! | module | what it does |
//! |---|---|
//! | [`item`] | what is said, and how it is printed |
//! | [`engine`] | one replica: what was seen of it -> items |
//! | [`probe`] | sees it: HTTP, events, replay, a few tiny requests |
//! | [`pool`] | replicas of a pool against each other |
//! | [`control_plane`] | the control plane's own figures -> items |
//! | [`envoy`] | a gateway's admin pages -> items |
//! | [`dashboards`] | names of metrics that engines no longer have |
//! | `who` | who answers where another was expected |
//!
//! Judging is pure: what was seen comes in, items go out. Seeing is bounded: each look has a time
//! limit, and what the whole time does not suffice for is said to be skipped.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;

mod addresses;
pub mod control_plane;
pub mod dashboards;
mod discovered;
pub mod engine;
pub mod envoy;
pub mod item;
mod page;
pub mod pool;
pub mod probe;
mod samples;
mod starts;
mod text;
mod who;

pub use item::{Item, Problem, Report, Status};

/// What to look at.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses of control planes. None: as configured in `listen`.
    pub urls: Vec<String>,
    /// Admin addresses of Envoys.
    pub envoy_admin: Vec<String>,
    /// Dashboards and rules, or folders of such.
    pub dashboards: Vec<PathBuf>,
    /// Send each replica a few requests of one token.
    pub probe: bool,
    /// The engines' `PYTHONHASHSEED`, if it is known.
    pub python_hash_seed: Option<String>,
    /// For everything together.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            envoy_admin: Vec::new(),
            dashboards: Vec::new(),
            probe: true,
            python_hash_seed: None,
            time: Duration::from_secs(25),
        }
    }
}

/// Looks at everything.
///
/// # Errors
/// If nothing can be looked at: there is no HTTP client to be had.
pub async fn examine(config: &Config, options: &Options) -> Result<Report, reqwest::Error> {
    let deadline = Instant::now() + options.time;
    let client = || {
        let client = reqwest::Client::builder().no_proxy();
        client.connect_timeout(probe::CONNECT_TIMEOUT)
    };
    // An engine's request that follows a redirect comes as GET, and to an address that nobody configured.
    let no_redirects = reqwest::redirect::Policy::none();
    let (client, of_engines) = (client().build()?, client().redirect(no_redirects).build()?);
    let mut urls = addresses::distinct(&options.urls);
    let admins = addresses::distinct(&options.envoy_admin);
    if urls.is_empty() {
        urls.push(control_plane::url_of(config));
    }
    let (known, mut items) = discovered::complete(config, &urls, &client).await;
    let ((replicas, engines), control_planes, gateways) = tokio::join!(
        pool::examine(config, &known, options, &of_engines, deadline),
        control_plane::look(config, &urls, &client),
        envoy::look(&admins, &client),
    );
    // Causes come first: what follows from them is not said again.
    let mut control_planes = control_plane::examine(config, control_planes, &engines);
    let beside = envoy::ControlPlanes {
        absent: control_plane::absence(&control_planes),
        urls: &urls,
    };
    let gateways = envoy::examine(&known, gateways, beside);
    control_plane::blame_gateways(&mut control_planes, &gateways);
    items.extend(replicas);
    items.extend(control_planes);
    items.extend(gateways);
    items.extend(dashboards::examine(&options.dashboards));
    Ok(Report {
        items,
        errors: Vec::new(),
    })
}
