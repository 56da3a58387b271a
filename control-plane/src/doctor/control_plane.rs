//! The control plane's own figures -> items.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use super::item::Item;
use super::page::fetch;
use super::samples::{Sample, samples};
use super::who::{is_control_plane, who};
use crate::config::Config;

mod ready;
mod replicas;

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

/// Looks at all of them.
pub(super) async fn examine(
    config: &Config,
    urls: &[String],
    client: &reqwest::Client,
) -> Vec<Item> {
    let mut items = Vec::new();
    for url in urls {
        items.extend(examine_one(config, url, client).await);
    }
    items
}

async fn examine_one(config: &Config, url: &str, client: &reqwest::Client) -> Vec<Item> {
    const ID: &str = "control_plane.reachable";
    let url = url.trim_end_matches('/');
    let page = async |path: &str| fetch(client, &format!("{url}{path}"), TIMEOUT).await;
    let (status, ready, metrics) =
        tokio::join!(page("/v1/status"), page("/readyz"), page("/metrics"));
    let configured = url_of(config);
    let start = format!(
        "start it (`prefix-picker serve --config FILE`), or say by --url where it is: its `listen` says {configured}"
    );
    let status = match status {
        Ok(status) if is_control_plane(&status) => status,
        Ok(status) => {
            let who = who(client, url).await;
            let found = format!(
                "{}, no control plane: /v1/status answers {}",
                who.told(),
                status.status
            );
            let fix = who.cure(&format!(
                "--url is the control plane's address, its `listen` says {configured}"
            ));
            return vec![Item::fail(ID, url, found, fix)];
        }
        Err(why) => return vec![Item::fail(ID, url, why, start)],
    };
    match (ready, metrics) {
        (Ok(ready), Ok(metrics)) if metrics.status == 200 => {
            let pages = Pages {
                ready: (ready.status, ready.text()),
                metrics: metrics.text(),
                status: status.json(),
            };
            let mut items = vec![Item::ok(ID, url, "answers")];
            items.extend(judge(config, url, &pages));
            items
        }
        (Err(why), _) | (_, Err(why)) => vec![Item::fail(ID, url, why, start)],
        (_, Ok(metrics)) => vec![Item::fail(
            ID,
            url,
            format!("/metrics answers {}", metrics.status),
            "let its /metrics be read from here: something in front of it may keep it back",
        )],
    }
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
pub fn judge(config: &Config, url: &str, pages: &Pages) -> Vec<Item> {
    let figures = Figures::of(&pages.metrics);
    let mut items = vec![
        ready::judge(url, &pages.ready),
        replicas::judge(config, url, &figures, &pages.status),
    ];
    items.extend(replicas::followed(&figures));
    items.push(restarts(url, &figures));
    items.push(unreadable(url, &figures));
    items.push(gateways(url, &figures));
    items.push(tokens(url, &figures));
    items.push(memory(url, &figures));
    items.extend(accuracy(&figures));
    items.extend(super::starts::judge(&pages.metrics));
    items
}

/// Did engines begin anew, or events get lost, since the control plane runs?
fn restarts(url: &str, figures: &Figures<'_>) -> Item {
    const ID: &str = "control_plane.resets";
    let resets = figures
        .all("replica_resets_total")
        .filter(|reset| reset.value > 0.0);
    let mut restarted = Vec::new();
    let mut lost = Vec::new();
    for reset in resets {
        let name = reset.label("replica").unwrap_or("?");
        match reset.label("why") {
            Some("restart") => restarted.push(format!("{name} ({} times)", reset.value)),
            why => lost.push(format!("{name} ({}: {})", why.unwrap_or("?"), reset.value)),
        }
    }
    let (restarted, lost) = (refs(&restarted), refs(&lost));
    match (restarted.is_empty(), lost.is_empty()) {
        (true, true) => Item::ok(
            ID,
            url,
            "nothing of what was known was lost since its start",
        ),
        (false, true) => Item::warn(
            ID,
            url,
            format!(
                "engines were restarted, and what they held was gone: {}",
                named(&restarted)
            ),
            "if it was no roll-out, look why: their logs, memory, liveness probes. Nothing is to be done here",
        ),
        (_, false) => Item::warn(
            ID,
            url,
            format!(
                "events were lost, and with them what was known: {}",
                named(&lost)
            ),
            "give engines a replay_endpoint and a larger buffer_steps in --kv-events-config, and the replicas `replay`",
        ),
    }
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

fn gateways(url: &str, figures: &Figures<'_>) -> Item {
    const ID: &str = "control_plane.gateways";
    let answered = figures.all("polls_total");
    let answered = answered.filter(|polls| {
        matches!(
            polls.label("result"),
            Some("delta" | "load" | "head" | "nothing")
        )
    });
    let polls: f64 = answered.map(|polls| polls.value).sum();
    if polls == 0.0 {
        return Item::fail(
            ID,
            url,
            "no gateway has had an answer since its start",
            "is the filter in Envoy, and does its `control_plane.cluster` lead here? See --envoy-admin",
        );
    }
    let waiting = figures.sum("polls_waiting");
    Item::ok(
        ID,
        url,
        format!("{polls} polls of gateways answered, {waiting} wait for news"),
    )
}

fn tokens(url: &str, figures: &Figures<'_>) -> Item {
    const ID: &str = "control_plane.tokens";
    let refused = figures.all("polls_total");
    let refused = refused.filter(|polls| polls.label("result") == Some("unauthorized"));
    let refused: f64 = refused.map(|polls| polls.value).sum();
    if refused == 0.0 {
        return Item::ok(ID, url, "no poll was refused for its token");
    }
    Item::warn(
        ID,
        url,
        format!("{refused} polls came with a token that is not valid, or none"),
        "a gateway has the wrong `control_plane.token`; the log names where it asks from (\"refused\"). After a rotation of \
         tokens such counts stay until the next start",
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
