//! A gateway's admin pages -> items.
//!
//! | page | what for |
//! |---|---|
//! | `/server_info` | Envoy's version |
//! | `/config_dump` | listeners, routes, filters and clusters as they are in use |
//! | `/clusters` | endpoints, also those that came by discovery |
//! | `/stats` | the filter's own figures |
//!
//! Tokens are in Envoy's configuration and so are seen; they are compared and never shown.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;

use super::addresses::without_path;
use super::item::{Item, Status};
use super::page::{NoPage, fetch};
use super::who::{Who, who};
use crate::config::Config;
use crate::server::auth::Tokens;

mod buffers;
mod clusters;
mod dump;
mod filter;
mod polls;
mod stats;

use dump::Dump;
use polls::Polls;
pub(super) use polls::REFUSED;

const REACHABLE: &str = "gateway.reachable";
/// What is not known of a gateway whose pages cannot be read.
const OTHERS: [&str; 15] = [
    "gateway.version",
    "gateway.filter",
    "gateway.flag",
    "gateway.failure_policy",
    "gateway.destination_header",
    "gateway.control_plane_cluster",
    "gateway.token",
    "gateway.buffer_limit",
    "gateway.traps",
    "gateway.sync",
    "gateway.table_age",
    "gateway.missed_override",
    "gateway.clusters",
    "gateway.override_host",
    "gateway.endpoints",
];
/// One that has just started is looked at once more after so long.
const AGAIN_AFTER: Duration = Duration::from_millis(2_500);
/// Looks at how polls go on, where the first one does not tell, and the time between two: together longer than
/// the filter waits after a failure.
const LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// Gateways looked at together: configurations may be large.
const TOGETHER: usize = 4;
/// How long a page may take: configurations of large meshes have many megabytes.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The filter's own figures.
const STATS: &str = "/stats?filter=prefix_picker|vm_reload";
/// The header by which endpoints are named.
const HEADER: &str = "x-gateway-destination-endpoint";

/// A gateway's pages.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// `/config_dump`
    pub config_dump: Value,
    /// `/clusters?format=json`
    pub clusters: Value,
    /// `/server_info`
    pub server_info: Value,
    /// `/stats`, at least those of the filter and of Wasm.
    pub stats: String,
    /// The same some seconds later, where it was looked at again.
    pub later: Option<String>,
}

/// What is known of the control planes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ControlPlanes<'a> {
    /// The item that says that there is none.
    pub absent: Option<&'static str>,
    /// Their addresses as doctor has them.
    pub urls: &'a [String],
}

/// A gateway's pages, or what is in the way.
pub(super) struct Look {
    subject: String,
    pages: Result<Pages, Item>,
}

/// Looks at all gateways.
pub(super) async fn look(urls: &[String], client: &reqwest::Client) -> Vec<Look> {
    let look = |url: String| async move {
        let name = url.trim_end_matches('/');
        let subject = name.strip_prefix("http://").unwrap_or(name).to_owned();
        let pages = match pages(client, name).await {
            Ok(pages) => Ok(again(client, name, pages).await),
            Err(why) => Err(unreachable(client, name, &subject, &why).await),
        };
        Look { subject, pages }
    };
    let looks = futures_util::stream::iter(urls.to_vec()).map(look);
    looks.buffered(TOGETHER).collect().await
}

/// Judges them.
pub(super) fn examine(config: &Config, looks: Vec<Look>, beside: ControlPlanes<'_>) -> Vec<Item> {
    let mut items = Vec::new();
    if looks.is_empty() {
        let why = "no --envoy-admin was given: nothing of the gateways was looked at";
        items.push(Item::skipped(REACHABLE, "gateways", why));
    }
    for look in looks {
        match look.pages {
            Ok(pages) => {
                let found = "the admin pages can be read";
                items.push(Item::ok(REACHABLE, &look.subject, found));
                items.extend(judge(config, &look.subject, &pages, beside));
            }
            Err(item) => {
                items.push(item);
                let why = format!("nothing is known of it: see {REACHABLE}");
                items.extend(OTHERS.map(|id| Item::skipped(id, &look.subject, why.as_str())));
            }
        }
    }
    items
}

/// The pages once more, where the filter may not have polled yet: then it may have a moment later. And its figures
/// some times more, where polls seem not to be answered: which of them rise tells how they end now.
async fn again(client: &reqwest::Client, url: &str, mut seen: Pages) -> Pages {
    let polls = {
        let found = filter::find(&Dump::of(&seen.config_dump));
        found.iter().any(|found| !found.plugin.standalone)
    };
    if !polls {
        return seen;
    }
    if polls::unsettled(&seen.stats, Age::of(&seen.server_info)).is_some() {
        tokio::time::sleep(AGAIN_AFTER).await;
        seen = pages(client, url).await.unwrap_or(seen);
    }
    for _ in 0..LOOKS {
        if !Polls::of(&seen).is_unclear() {
            break;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
        let page = fetch(client, &format!("{url}{STATS}"), TIMEOUT).await;
        if let Some(page) = page.ok().filter(|page| page.status == 200) {
            seen.later = Some(page.text());
        }
    }
    seen
}

async fn unreachable(client: &reqwest::Client, url: &str, subject: &str, why: &NoPage) -> Item {
    const ID: &str = REACHABLE;
    const FIX: &str = "--envoy-admin is the address of Envoy's `admin` section; on Kubernetes: kubectl port-forward POD \
        19000 (Envoy Gateway) or 15000 (Istio)";
    if why.late {
        let fix = format!(
            "look at Envoy's log, then restart it. If it is another program that hangs there: {FIX}"
        );
        return Item::fail(ID, subject, format!("{why}: it hangs"), fix);
    }
    if why.nobody {
        let fix = format!(
            "start that Envoy, if it does not run: its log says why it ended. If it runs: {FIX}"
        );
        return Item::fail(ID, subject, why.to_string(), fix);
    }
    if let Some(bare) = without_path(url) {
        let who = who(client, &bare).await;
        let (found, fix) = match who {
            Who::EnvoyAdmin => (
                format!("{why}. Envoy's admin pages are at {bare}"),
                format!("leave the path out: --envoy-admin {bare}"),
            ),
            other => (
                format!("{why}. At {bare}: {}", other.told()),
                other.cure(&format!("{FIX}; leave the path out")),
            ),
        };
        return Item::fail(ID, subject, found, fix);
    }
    match who(client, url).await {
        // Those of an Envoy, but not all, or nobody that is known.
        Who::EnvoyAdmin | Who::Other => Item::fail(ID, subject, why.to_string(), FIX),
        other => Item::fail(
            ID,
            subject,
            format!("{}, not Envoy's admin pages", other.told()),
            other.cure(FIX),
        ),
    }
}

/// Judges one gateway by its pages. Where there is no control plane, what follows from that is not said again.
#[must_use]
pub fn judge(
    config: &Config,
    subject: &str,
    pages: &Pages,
    beside: ControlPlanes<'_>,
) -> Vec<Item> {
    let dump = Dump::of(&pages.config_dump);
    let tokens = Tokens::open(&config.tokens, &config.token_files).ok();
    let mut items = vec![version(subject, &pages.server_info)];
    let found = filter::find(&dump);
    items.extend(filter::judge(config, subject, &dump, &found));
    let standalone = !found.is_empty() && found.iter().all(|found| found.plugin.standalone);
    if !found.is_empty() {
        let now = Polls::of(pages).now(standalone);
        items.push(filter::token(subject, &found, tokens.as_ref(), &now));
        items.extend(buffers::judge(config, subject, &dump, &found));
        items.extend(stats::judge(subject, &pages.stats));
        let place = polls::place(&found, &pages.clusters, beside.urls);
        let causes = polls::Causes::of(&items, beside.absent, place);
        items.extend(causes.judge(subject, &Polls::of(pages), &now));
    }
    let clusters = clusters::judge(config, subject, &dump, &pages.clusters);
    items.extend(clusters.into_iter().map(|item| {
        // An Envoy that has neither may be another one: that is one fault.
        if found.is_empty() && item.id == clusters::CLUSTERS && item.status != Status::Ok {
            let why = format!("{}: see gateway.filter", item.found);
            return Item::skipped(item.id, &item.subject, why);
        }
        item
    }));
    complete(subject, !found.is_empty(), &mut items);
    items
}

/// An item for each id: what is not there to be looked at is skipped.
fn complete(subject: &str, has_filter: bool, items: &mut Vec<Item>) {
    for id in OTHERS {
        if items.iter().any(|item| item.id == id) {
            continue;
        }
        let why = match id {
            "gateway.override_host" | "gateway.endpoints" if has_filter => {
                "none of a pool's clusters is there: see gateway.clusters"
            }
            _ => "the filter is not there: see gateway.filter",
        };
        items.push(Item::skipped(id, subject, why));
    }
}

/// How old an Envoy is: the filter's workers may not have done anything yet.
#[derive(Clone, Copy, Debug)]
struct Age {
    /// Its workers run.
    live: bool,
    /// Since the process began, in seconds; `None`: not told.
    seconds: Option<u64>,
}

impl Age {
    fn of(info: &Value) -> Self {
        let told = |name| info.get(name).and_then(Value::as_str);
        let uptime = told("uptime_current_epoch").and_then(|text| text.strip_suffix('s'));
        Self {
            live: told("state").is_none_or(|state| state == "LIVE"),
            seconds: uptime.and_then(|seconds| seconds.parse().ok()),
        }
    }

    fn is_below(self, seconds: u64) -> bool {
        self.seconds.is_some_and(|age| age < seconds)
    }
}

fn version(subject: &str, info: &Value) -> Item {
    const ID: &str = "gateway.version";
    let told = info
        .get("version")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // COMMIT/1.40.0/Clean/RELEASE/BoringSSL
    let version = told.split('/').nth(1).unwrap_or_default();
    match super::engine::version_parts(version) {
        Some((1, minor)) if minor < 35 => Item::fail(
            ID,
            subject,
            format!("Envoy {version}"),
            "take Envoy 1.35 or later: before, no filter can hold a request's headers until its body is there",
        ),
        Some((1, minor)) if minor < 38 => Item::ok(
            ID,
            subject,
            format!("Envoy {version}; selected_host_key needs 1.38"),
        ),
        Some(_) => Item::ok(ID, subject, format!("Envoy {version}")),
        None => Item::skipped(ID, subject, format!("version {told:?} is not understood")),
    }
}

async fn pages(client: &reqwest::Client, url: &str) -> Result<Pages, NoPage> {
    let page = async |path: &str| -> Result<Vec<u8>, NoPage> {
        let at = format!("{url}{path}");
        let page = fetch(client, &at, TIMEOUT).await?;
        match page.status {
            200 => Ok(page.body),
            status => Err(NoPage::other(format!("{at}: status {status}"))),
        }
    };
    let json = |path: &str, bytes: &[u8]| {
        serde_json::from_slice(bytes)
            .map_err(|_| NoPage::other(format!("{url}{path}: not Envoy's JSON")))
    };
    // EDS endpoints are on the page of clusters.
    let (dump, clusters, info, stats) = tokio::join!(
        page("/config_dump"),
        page("/clusters?format=json"),
        page("/server_info"),
        page(STATS),
    );
    Ok(Pages {
        config_dump: json("/config_dump", &dump?)?,
        clusters: json("/clusters", &clusters?)?,
        server_info: json("/server_info", &info?)?,
        stats: String::from_utf8_lossy(&stats?).into_owned(),
        later: None,
    })
}
