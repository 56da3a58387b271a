//! The control plane's own figures -> items.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use super::addresses::without_path;
use super::item::{Item, Status};
use super::page::{NoPage, fetch};
use super::samples::{Sample, samples};
use super::who::{Who, is_control_plane, who};
use crate::config::Config;

mod engines;
mod polls;
mod ready;
mod replicas;
mod resets;

pub use engines::Engines;
pub(super) use polls::blame_gateways;

/// How long a page may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Names told in one item.
const NAMED_MAX: usize = 5;
const PREFIX: &str = "prefix_picker_";

/// What the control plane answered.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// `/readyz`: status and text.
    pub ready: (u16, String),
    /// `/metrics`.
    pub metrics: String,
    /// `/v1/status`.
    pub status: Value,
}

/// Where it listens, as seen from the same machine.
pub(super) fn url_of(config: &Config) -> String {
    let mut at = config.listen;
    // Listening everywhere, it also listens here.
    if at.ip().is_unspecified() {
        at.set_ip(match at.ip() {
            IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{at}")
}

/// A control plane's pages, or what is in the way.
pub(super) struct Look {
    url: String,
    pages: Result<Pages, Item>,
}

/// One that has just started is looked at once more after so long.
const AGAIN_AFTER: Duration = Duration::from_millis(2_500);
const REACHABLE: &str = "control_plane.reachable";
/// What is not known of a control plane that does not answer.
const OTHERS: [&str; 10] = [
    ready::ID,
    "control_plane.replicas",
    "control_plane.synced",
    "control_plane.resets",
    "control_plane.events_readable",
    polls::ID,
    "control_plane.tokens",
    "control_plane.memory",
    "control_plane.accuracy",
    "traffic.volatile_start",
];

/// Looks at all of them.
pub(super) async fn look(config: &Config, urls: &[String], client: &reqwest::Client) -> Vec<Look> {
    let mut looks = Vec::new();
    for url in urls {
        let url = url.trim_end_matches('/').to_owned();
        let mut pages = look_at(config, &url, client).await;
        if pages
            .as_ref()
            .is_ok_and(|pages| polls::is_unsettled(&pages.metrics, &pages.status))
        {
            tokio::time::sleep(AGAIN_AFTER).await;
            pages = look_at(config, &url, client).await;
        }
        looks.push(Look { url, pages });
    }
    looks
}

/// Judges them, with what was seen of the engines.
pub(super) fn examine(config: &Config, looks: Vec<Look>, engines: &Engines) -> Vec<Item> {
    let mut items = Vec::new();
    for look in looks {
        match look.pages {
            Ok(pages) => {
                items.push(Item::ok(REACHABLE, &look.url, "answers"));
                items.extend(judge(config, &look.url, &pages, engines));
            }
            Err(item) => {
                items.push(item);
                let why = format!("nothing is known of it: see {REACHABLE}");
                items.extend(OTHERS.map(|id| Item::skipped(id, &look.url, why.as_str())));
            }
        }
    }
    items
}

/// The item that says so, if none of the control planes gives gateways a table.
pub(super) fn absence(items: &[Item]) -> Option<&'static str> {
    let of = |id: &'static str| items.iter().filter(move |item| item.id == id);
    if of(ready::ID).any(|item| item.status == Status::Ok) {
        return None;
    }
    let mut faults = of(ready::ID).chain(of(REACHABLE));
    let fault = faults.find(|item| item.status == Status::Fail);
    // One that waits for engines that have a fault gives no table either.
    fault.or_else(|| of(ready::ID).next()).map(|item| item.id)
}

async fn look_at(config: &Config, url: &str, client: &reqwest::Client) -> Result<Pages, Item> {
    let page = async |path: &str| fetch(client, &format!("{url}{path}"), TIMEOUT).await;
    let (status, ready, metrics) =
        tokio::join!(page("/v1/status"), page("/readyz"), page("/metrics"));
    let configured = url_of(config);
    let status = match status {
        Ok(status) if is_control_plane(&status) => status,
        Ok(status) => {
            let bare = without_path(url);
            let who = who(client, bare.as_deref().unwrap_or(url)).await;
            if let (Some(bare), Who::ControlPlane) = (&bare, &who) {
                let found = format!(
                    "{url}/v1/status answers {}. A control plane is at {bare}",
                    status.status
                );
                let fix = format!("leave the path out: --url {bare}");
                return Err(Item::fail(REACHABLE, url, found, fix));
            }
            let found = format!(
                "{}, no control plane: /v1/status answers {}",
                who.told(),
                status.status
            );
            let without = bare.map_or("", |_| ", without a path");
            let fix = who.cure(&format!(
                "--url is the control plane's address{without}; its `listen` says {configured}"
            ));
            return Err(Item::fail(REACHABLE, url, found, fix));
        }
        Err(why) => return Err(unanswered(url, &why, &configured)),
    };
    match (ready, metrics) {
        (Ok(ready), Ok(metrics)) if metrics.status == 200 => Ok(Pages {
            ready: (ready.status, ready.text()),
            metrics: metrics.text(),
            status: status.json(),
        }),
        (Err(why), _) | (_, Err(why)) => Err(unanswered(url, &why, &configured)),
        (_, Ok(metrics)) => Err(Item::fail(
            REACHABLE,
            url,
            format!("/metrics answers {}", metrics.status),
            "let its /metrics be read from here: something in front of it may keep it back",
        )),
    }
}

fn unanswered(url: &str, why: &NoPage, configured: &str) -> Item {
    let where_it_is = format!("say by --url where it is: its `listen` says {configured}");
    if why.late {
        return Item::fail(
            REACHABLE,
            url,
            format!("{why}: it hangs"),
            format!(
                "look at its log, then restart it; a liveness probe on /healthz does so by itself. If it is another \
                 program that hangs there, {where_it_is}"
            ),
        );
    }
    Item::fail(
        REACHABLE,
        url,
        why.to_string(),
        format!("start it (`prefix-picker serve --config FILE`), or {where_it_is}"),
    )
}

/// Its figures.
struct Figures<'a>(Vec<Sample<'a>>);

impl<'a> Figures<'a> {
    fn of(text: &'a str) -> Self {
        let ours = samples(text).filter_map(|mut sample| {
            sample.name = sample.name.strip_prefix(PREFIX)?;
            Some(sample)
        });
        Self(ours.collect())
    }

    fn all<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b Sample<'a>> {
        self.0.iter().filter(move |sample| sample.name == name)
    }

    fn sum(&self, name: &str) -> f64 {
        self.all(name).map(|sample| sample.value).sum()
    }
}

/// Judges it by its pages.
#[must_use]
pub fn judge(config: &Config, url: &str, pages: &Pages, engines: &Engines) -> Vec<Item> {
    let figures = Figures::of(&pages.metrics);
    let ready = ready::judge(url, &pages.ready, engines);
    let is_ready = ready.status == Status::Ok;
    let mut items = vec![
        ready,
        replicas::judge(config, url, &figures, &pages.status, engines),
    ];
    items.extend(replicas::followed(&figures, engines));
    items.push(resets::judge(url, &figures, &pages.status));
    items.push(unreadable(url, &figures));
    items.push(polls::answered(url, &figures, is_ready));
    items.push(polls::refused(url, &figures, &pages.status));
    items.push(memory(url, &figures));
    items.extend(accuracy(&figures));
    items.extend(super::starts::judge(&pages.metrics));
    items
}

fn unreadable(url: &str, figures: &Figures<'_>) -> Item {
    const ID: &str = "control_plane.events_readable";
    let bad = figures.all("kv_events_total");
    let bad = bad.filter(|sample| matches!(sample.label("kind"), Some("bad" | "undecodable")));
    let of: BTreeSet<&str> = bad
        .filter(|sample| sample.value > 0.0)
        .filter_map(|sample| sample.label("replica"))
        .collect();
    let of: Vec<&str> = of.into_iter().collect();
    if of.is_empty() {
        return Item::ok(ID, url, "all events could be read");
    }
    Item::fail(
        ID,
        url,
        format!("events that cannot be read came from {}", named(&of)),
        "an engine of a version that this build does not know: update prefix-picker, and report what `prefix-picker decode-events` says",
    )
}

fn memory(url: &str, figures: &Figures<'_>) -> Item {
    const ID: &str = "control_plane.memory";
    let dropped = figures
        .all("index_dropped_blocks")
        .filter(|pool| pool.value > 0.0);
    let pools: Vec<&str> = dropped.filter_map(|pool| pool.label("pool")).collect();
    if pools.is_empty() {
        return Item::ok(ID, url, "the index fits into its memory");
    }
    Item::warn(
        ID,
        url,
        format!(
            "prefixes were forgotten for lack of memory in {}",
            named(&pools)
        ),
        "raise the pool's `memory_budget_bytes`",
    )
}

/// The alarm about predictions.
fn accuracy(figures: &Figures<'_>) -> Vec<Item> {
    const ID: &str = "control_plane.accuracy";
    let pools = figures.all("prediction_mismatch");
    pools
        .filter_map(|alarm| {
            let name = alarm.label("pool")?;
            Some(if alarm.value > 0.0 {
                Item::fail(
                    ID,
                    name,
                    "what gateways predict to be cached is not what engines find",
                    "see engine.template, engine.tokenizer and engine.events of the pool's replicas; docs/operations.md, \
                     \"Are the predictions right?\"",
                )
            } else {
                Item::ok(ID, name, "predictions agree with what engines find cached, as far as they tell")
            })
        })
        .collect()
}

fn refs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

fn named(names: &[&str]) -> String {
    let told = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}
