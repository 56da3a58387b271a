//! `/readyz`: do gateways get a table?

use super::{Engines, named, refs};
use crate::doctor::item::Item;

pub(super) const ID: &str = "control_plane.ready";
/// Most characters of its text that are told.
const TOLD_CHARS: usize = 300;
const WAITING: &str = "waiting for the events of:";

pub(super) fn judge(url: &str, (status, text): &(u16, String), engines: &Engines) -> Item {
    if *status == 200 {
        return Item::ok(ID, url, "gateways get a table");
    }
    if let Some(why) = waits_for_faults(text, engines) {
        return Item::skipped(ID, url, why);
    }
    let text: String = text.trim().chars().take(TOLD_CHARS).collect();
    let (found, fix) = match text.strip_prefix(WAITING).map(str::trim) {
        Some("") => (
            "it waits, and names no replica that it waits for".to_owned(),
            "if that stays: has it any replicas? See control_plane.replicas, pool.discovery and its log",
        ),
        Some(names) => (
            format!("it waits for the events of: {names}"),
            "`startup_grace_ms` at most: see engine.events of those replicas",
        ),
        None if text == "stopping" => (
            "it is stopping: it takes no new polls".to_owned(),
            "start it again, if that was not meant",
        ),
        None if text.is_empty() => (
            format!("/readyz answers {status}, without a text"),
            "is something between here and it that answers in its place? Pass its own address by --url",
        ),
        None => (
            format!("/readyz answers {status}: {text}"),
            "its log says what it waits for",
        ),
    };
    Item::fail(ID, url, found, fix)
}

/// Whether all that it waits for are replicas whose engines have a fault of their own.
fn waits_for_faults(text: &str, engines: &Engines) -> Option<String> {
    let names = text.trim().strip_prefix(WAITING)?.split(',').map(str::trim);
    let told = |name: &str| Some(format!("{name} (see {})", engines.fault_of(name)?));
    let told: Option<Vec<String>> = names.map(told).collect();
    Some(format!(
        "it waits, `startup_grace_ms` at most, for the events of engines that have a fault: {}",
        named(&refs(&told?))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::item::Status;

    #[test]
    fn always_a_text_and_a_cure() {
        for (status, text, found) in [
            (
                503,
                "waiting for the events of: a, b\n",
                "the events of: a, b",
            ),
            (503, "waiting for the events of: \n", "names no replica"),
            (503, "stopping\n", "is stopping"),
            (503, "", "answers 503, without a text"),
            (404, "{\"detail\":\"Not Found\"}", "answers 404: {"),
        ] {
            let item = judge("cp", &(status, text.to_owned()), &Engines::default());
            assert_eq!(item.status, Status::Fail, "{item:?}");
            assert!(item.found.contains(found), "{item:?}");
            assert!(!item.fix.is_empty(), "{item:?}");
        }
    }
}
