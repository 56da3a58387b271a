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

use serde_json::Value;

use super::item::Item;
use super::page::fetch;
use super::who::{Who, who};
use crate::config::Config;
use crate::server::auth::Tokens;

mod buffers;
mod clusters;
mod dump;
mod filter;
mod stats;

use dump::Dump;

/// So long after its start an Envoy has polled, in seconds.
const SETTLED_S: u64 = 5;
/// How long a page may take: configurations of large meshes have many megabytes.
const TIMEOUT: Duration = Duration::from_secs(8);
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
}

/// A gateway's pages, or what is in the way.
pub(super) struct Look {
    subject: String,
    pages: Result<Pages, Item>,
}

/// Looks at all gateways.
pub(super) async fn look(urls: &[String], client: &reqwest::Client) -> Vec<Look> {
    let mut looks = Vec::new();
    for url in urls {
        let name = url.trim_end_matches('/');
        let subject = name.strip_prefix("http://").unwrap_or(name).to_owned();
        let pages = match pages(client, name).await {
            Ok(pages) => Ok(pages),
            Err(why) => Err(unreachable(client, name, &subject, why).await),
        };
        looks.push(Look { subject, pages });
    }
    looks
}

/// Judges them. `absent`: the item that says that there is no control plane.
pub(super) fn examine(
    config: &Config,
    looks: Vec<Look>,
    absent: Option<&'static str>,
) -> Vec<Item> {
    const ID: &str = "gateway.reachable";
    let mut items = Vec::new();
    if looks.is_empty() {
        let why = "no --envoy-admin was given: nothing of the gateways was looked at";
        items.push(Item::skipped(ID, "gateways", why));
    }
    for look in looks {
        match look.pages {
            Ok(pages) => {
                items.push(Item::ok(ID, &look.subject, "the admin pages can be read"));
                items.extend(judge(config, &look.subject, &pages, absent));
            }
            Err(item) => items.push(item),
        }
    }
    items
}

async fn unreachable(client: &reqwest::Client, url: &str, subject: &str, why: String) -> Item {
    const ID: &str = "gateway.reachable";
    const FIX: &str = "--envoy-admin is the address of Envoy's `admin` section; on Kubernetes: kubectl port-forward POD \
        19000 (Envoy Gateway) or 15000 (Istio)";
    match who(client, url).await {
        // Those of an Envoy, but not all, or nobody that is known.
        Who::EnvoyAdmin | Who::Other => Item::fail(ID, subject, why, FIX),
        other => Item::fail(
            ID,
            subject,
            format!("{}, not Envoy's admin pages", other.told()),
            other.cure(FIX),
        ),
    }
}

/// Judges one gateway by its pages. `absent`: the item that says that there is no control plane, if there
/// is none: what follows from that is not said again.
#[must_use]
pub fn judge(
    config: &Config,
    subject: &str,
    pages: &Pages,
    absent: Option<&'static str>,
) -> Vec<Item> {
    let dump = Dump::of(&pages.config_dump);
    let tokens = Tokens::open(&config.tokens, &config.token_files).ok();
    let mut items = vec![version(subject, &pages.server_info)];
    let found = filter::find(&dump);
    items.extend(filter::judge(config, subject, &dump, &found));
    let standalone = !found.is_empty() && found.iter().all(|found| found.plugin.standalone);
    if !found.is_empty() {
        items.push(filter::token(subject, &found, tokens.as_ref()));
        items.extend(buffers::judge(config, subject, &dump, &found));
        let young = has_just_started(&pages.server_info);
        let figures = stats::judge(subject, &pages.stats, standalone, young);
        let figures = figures.into_iter();
        items.extend(figures.map(|item| stats::without_control_plane(item, absent)));
    }
    items.extend(clusters::judge(config, subject, &dump, &pages.clusters));
    items
}

/// Its workers, and the filter in them, may not have done anything yet.
fn has_just_started(info: &Value) -> bool {
    let told = |name| info.get(name).and_then(Value::as_str);
    let uptime = told("uptime_current_epoch").and_then(|text| text.strip_suffix('s'));
    let uptime: Option<u64> = uptime.and_then(|seconds| seconds.parse().ok());
    told("state").is_some_and(|state| state != "LIVE")
        || uptime.is_some_and(|seconds| seconds < SETTLED_S)
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

async fn pages(client: &reqwest::Client, url: &str) -> Result<Pages, String> {
    let page = async |path: &str| -> Result<Vec<u8>, String> {
        let at = format!("{url}{path}");
        let page = fetch(client, &at, TIMEOUT).await;
        let page = page.map_err(|why| why.to_string())?;
        match page.status {
            200 => Ok(page.body),
            status => Err(format!("{at}: status {status}")),
        }
    };
    let json = |path: &str, bytes: &[u8]| {
        serde_json::from_slice(bytes).map_err(|_| format!("{url}{path}: not Envoy's JSON"))
    };
    // EDS endpoints are on the page of clusters.
    let (dump, clusters, info, stats) = tokio::join!(
        page("/config_dump"),
        page("/clusters?format=json"),
        page("/server_info"),
        page("/stats?filter=prefix_picker|vm_reload"),
    );
    Ok(Pages {
        config_dump: json("/config_dump", &dump?)?,
        clusters: json("/clusters", &clusters?)?,
        server_info: json("/server_info", &info?)?,
        stats: String::from_utf8_lossy(&stats?).into_owned(),
    })
}
