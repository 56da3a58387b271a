//! Did engines begin anew, or events get lost? Of old that is history: a roll-out restarts every engine.

use serde_json::Value;

use super::{Figures, named, refs};
use crate::doctor::item::Item;

const ID: &str = "control_plane.resets";
/// A reset within so many seconds is looked into.
const RECENT_S: u64 = 300;
/// So many of a replica are told as long as they are more than one an hour, whenever the last one was.
const OFTEN: f64 = 4.0;

/// `status`: `/v1/status`, which knows when each replica's last one was.
pub(super) fn judge(url: &str, figures: &Figures<'_>, status: &Value) -> Item {
    let resets = figures.all("replica_resets_total");
    let (mut restarted, mut lost, mut matters) = (Vec::new(), Vec::new(), false);
    for reset in resets.filter(|reset| reset.value > 0.0) {
        let name = reset.label("replica").unwrap_or("?");
        let pool = reset.label("pool").unwrap_or_default();
        matters |= is_recent(status, pool, name) || is_often(status, reset.value);
        match reset.label("why") {
            Some("restart") => restarted.push(format!("{name} ({})", times(reset.value))),
            why => lost.push(format!("{name} ({}: {})", why.unwrap_or("?"), reset.value)),
        }
    }
    let (restarted, lost) = (refs(&restarted), refs(&lost));
    let restarts = (!restarted.is_empty()).then(|| {
        format!(
            "engines were restarted, and what they held was gone: {}",
            named(&restarted)
        )
    });
    let losses = (!lost.is_empty()).then(|| {
        format!(
            "events were lost, and with them what was known: {}",
            named(&lost)
        )
    });
    let fix = if losses.is_some() {
        "give engines a replay_endpoint and a larger buffer_steps in --kv-events-config, and the replicas `replay`"
    } else {
        "if it was no roll-out, look why: their logs, memory, liveness probes. Nothing is to be done here"
    };
    let told: Vec<String> = restarts.into_iter().chain(losses).collect();
    if told.is_empty() {
        let found = "nothing of what was known was lost since its start";
        return Item::ok(ID, url, found);
    }
    let told = told.join("; ");
    if matters {
        return Item::warn(ID, url, told, fix);
    }
    let minutes = RECENT_S / 60;
    Item::ok(
        ID,
        url,
        format!("nothing was lost in the last {minutes} minutes; before that, {told}"),
    )
}

/// Whether the replica's last one was a moment ago, or nobody knows when.
fn is_recent(status: &Value, pool: &str, replica: &str) -> bool {
    let pool = named_in(status, "pools", "pool", pool);
    let told = pool.and_then(|pool| named_in(pool, "replicas", "replica", replica));
    let age_ms = told.and_then(|told| told.get("reset_age_ms")?.as_u64());
    age_ms.is_none_or(|age_ms| age_ms < RECENT_S * 1_000)
}

/// The item of a list whose field is this name.
fn named_in<'a>(of: &'a Value, list: &str, field: &str, name: &str) -> Option<&'a Value> {
    let all = of.get(list)?.as_array()?;
    all.iter().find(|told| told[field] == name)
}

fn is_often(status: &Value, count: f64) -> bool {
    let uptime_s = status.get("uptime_s").and_then(Value::as_f64);
    count >= OFTEN && count * 3_600.0 > uptime_s.unwrap_or(0.0)
}

/// "once", "twice", "3 times".
fn times(count: f64) -> String {
    match count {
        1.0 => "once".to_owned(),
        2.0 => "twice".to_owned(),
        more => format!("{more} times"),
    }
}
