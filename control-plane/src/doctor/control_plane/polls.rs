//! Polls of gateways: are there any, and have they the right token?

use serde_json::Value;

use super::Figures;
use crate::doctor::envoy::REFUSED;
use crate::doctor::item::{Item, Status};
use crate::status::alarms::REFUSED_S;

pub(super) const ID: &str = "control_plane.gateways";
/// Seconds from its start.
const UNSETTLED_S: u64 = 30;
const TOKENS: &str = "control_plane.tokens";
const SYNC: &str = "gateway.sync";
const TOKEN: &str = "gateway.token";
/// Faults of a gateway with which it gets no answer.
const CAUSES: [&str; 5] = [
    "gateway.reachable",
    "gateway.filter",
    "gateway.control_plane_cluster",
    TOKEN,
    SYNC,
];

/// Nobody has polled yet one that has just started: gateways ask it again within a second or two.
pub(super) fn is_unsettled(metrics: &str, status: &Value) -> bool {
    let uptime_s = status.get("uptime_s").and_then(Value::as_u64);
    uptime_s.is_some_and(|uptime_s| uptime_s < UNSETTLED_S) && answers(&Figures::of(metrics)) == 0.0
}

fn answers(figures: &Figures<'_>) -> f64 {
    let answered = figures.all("polls_total");
    let answered = answered.filter(|polls| {
        matches!(
            polls.label("result"),
            Some("delta" | "load" | "head" | "nothing")
        )
    });
    answered.map(|polls| polls.value).sum()
}

/// Does any gateway get its table here?
pub(super) fn answered(url: &str, figures: &Figures<'_>, is_ready: bool) -> Item {
    let polls = answers(figures);
    if polls == 0.0 && !is_ready {
        let why = "it answers no gateway before it is ready: see control_plane.ready";
        return Item::skipped(ID, url, why);
    }
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

/// Does any come with a wrong token? `status`: `/v1/status`, whose alarm ends some minutes after the last one.
pub(super) fn refused(url: &str, figures: &Figures<'_>, status: &Value) -> Item {
    const ID: &str = TOKENS;
    let refused = figures.all("polls_total");
    let refused = refused.filter(|polls| polls.label("result") == Some("unauthorized"));
    let refused: f64 = refused.map(|polls| polls.value).sum();
    if refused == 0.0 {
        return Item::ok(ID, url, "no poll was refused for its token");
    }
    let found = format!(
        "{} came with a token that is not valid, or none",
        if refused == 1.0 {
            "1 poll".to_owned()
        } else {
            format!("{refused} polls")
        }
    );
    let alarms = status.get("alarms").and_then(Value::as_array);
    let is_over = alarms.is_some_and(|all| all.iter().all(|alarm| alarm["id"] != "refused_token"));
    if is_over {
        let minutes = REFUSED_S / 60;
        return Item::ok(
            ID,
            url,
            format!("no poll was refused in the last {minutes} minutes; before that, {found}"),
        );
    }
    Item::warn(
        ID,
        url,
        found,
        "a gateway has the wrong `control_plane.token`; the log names where it asks from (\"refused\")",
    )
}

/// That no gateway polls here, or one with a wrong token, may follow from a gateway that was looked at; the first may
/// also be as it should.
pub(crate) fn blame_gateways(items: &mut [Item], gateways: &[Item]) {
    let is_refused = |item: &&Item| {
        let sync = item.id == SYNC && item.found.starts_with(REFUSED);
        item.status == Status::Fail && (sync || item.id == TOKEN)
    };
    if let Some(cause) = gateways.iter().find(is_refused) {
        for item in items.iter_mut() {
            if item.id == TOKENS && item.status == Status::Warn {
                let why = format!("{}: see {} of {}", item.found, cause.id, cause.subject);
                *item = Item::skipped(TOKENS, &item.subject, why);
            }
        }
    }
    let is_cause = |item: &&Item| item.status == Status::Fail && CAUSES.contains(&item.id);
    let is_fine = |id: &'static str| move |item: &&Item| item.id == id && item.status == Status::Ok;
    let why = if let Some(cause) = gateways.iter().find(is_cause) {
        format!("see {} of {}", cause.id, cause.subject)
    } else if let Some(asked) = items.iter().find(is_fine(ID)) {
        // As it should be where there are several.
        format!(
            "gateways ask one control plane at a time, and have answers of {}",
            asked.subject
        )
    } else if let Some(sync) = gateways.iter().find(is_fine(SYNC)) {
        format!(
            "polls of {} are answered since, or by another control plane (see {SYNC})",
            sync.subject
        )
    } else {
        return;
    };
    let is_it = |item: &&mut Item| item.id == ID && item.status == Status::Fail;
    for item in items.iter_mut().filter(is_it) {
        *item = Item::skipped(ID, &item.subject, format!("{}: {why}", item.found));
    }
}
