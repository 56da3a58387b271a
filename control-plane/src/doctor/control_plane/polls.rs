//! Polls of gateways: are there any, and have they the right token?

use serde_json::Value;

use super::Figures;
use crate::doctor::item::{Item, Status};
use crate::status::alarms::REFUSED_S;

pub(super) const ID: &str = "control_plane.gateways";
/// Faults of a gateway with which it gets no answer.
const CAUSES: [&str; 3] = [
    "gateway.filter",
    "gateway.control_plane_cluster",
    "gateway.token",
];

/// Does any gateway get its table here?
pub(super) fn answered(url: &str, figures: &Figures<'_>, is_ready: bool) -> Item {
    let answered = figures.all("polls_total");
    let answered = answered.filter(|polls| {
        matches!(
            polls.label("result"),
            Some("delta" | "load" | "head" | "nothing")
        )
    });
    let polls: f64 = answered.map(|polls| polls.value).sum();
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
    const ID: &str = "control_plane.tokens";
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

/// A gateway that was looked at and cannot poll: that none does follows from it.
pub(crate) fn blame_gateways(items: &mut [Item], gateways: &[Item]) {
    let is_cause = |item: &&Item| item.status == Status::Fail && CAUSES.contains(&item.id);
    let Some(cause) = gateways.iter().find(is_cause) else {
        return;
    };
    let is_it = |item: &&mut Item| item.id == ID && item.status == Status::Fail;
    for item in items.iter_mut().filter(is_it) {
        let why = format!("{}: see {} of {}", item.found, cause.id, cause.subject);
        *item = Item::skipped(ID, &item.subject, why);
    }
}
