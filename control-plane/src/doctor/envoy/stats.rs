//! The filter's own figures.

use crate::doctor::item::{Item, Status};

/// Beyond this age nobody believes that the table is kept.
const AGE_MAX_S: u64 = 5;
/// Overrides missed beyond this share of those named, one in so many, are no accident.
const MISSED_SHARE: u64 = 100;

/// How a refused token is told.
const REFUSED: &str = "all polls are refused";

/// Figures by their names, tags and all.
struct Stats<'a>(&'a str);

impl Stats<'_> {
    /// A figure whose name ends so.
    fn get(&self, end: &str) -> Option<u64> {
        let values = self.0.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.ends_with(end).then(|| value.parse().ok()).flatten()
        });
        values.reduce(u64::saturating_add)
    }

    fn polls(&self, result: &str) -> u64 {
        let end = format!("prefix_picker_filter_sync_polls_total_result=_={result}_=_");
        self.get(&end).unwrap_or(0)
    }
}

/// `young`: it may not have polled yet.
pub(super) fn judge(subject: &str, stats: &str, standalone: bool, young: bool) -> Vec<Item> {
    let stats = Stats(stats);
    let mut items = vec![traps(subject, &stats)];
    let quiet = if standalone {
        Some("standalone: there is no table")
    } else {
        let is_silent = young && stats.polls("ok") == 0;
        is_silent.then_some("Envoy has just started: look again")
    };
    if let Some(why) = quiet {
        items.push(Item::skipped("gateway.sync", subject, why));
        items.push(Item::skipped("gateway.table_age", subject, why));
    } else {
        items.push(sync(subject, &stats));
        items.push(table_age(subject, &stats));
    }
    items.push(missed(subject, &stats));
    items
}

/// What follows from a control plane that is not there is not said again.
pub(super) fn without_control_plane(item: Item, absent: Option<&'static str>) -> Item {
    let follows = item.status == Status::Fail
        && matches!(item.id, "gateway.sync" | "gateway.table_age")
        && !item.found.starts_with(REFUSED);
    match absent {
        Some(id) if follows => {
            let found = format!("{}. No control plane serves it: see {id}", item.found);
            Item::skipped(item.id, &item.subject, found)
        }
        _ => item,
    }
}

fn traps(subject: &str, stats: &Stats<'_>) -> Item {
    const ID: &str = "gateway.traps";
    match stats.get(".vm_reload") {
        None | Some(0) => Item::ok(ID, subject, "the filter was never reloaded"),
        Some(times) => Item::warn(
            ID,
            subject,
            format!("the filter trapped and was reloaded {times} times"),
            "Envoy's log has the trap's text: please report it",
        ),
    }
}

fn sync(subject: &str, stats: &Stats<'_>) -> Item {
    const ID: &str = "gateway.sync";
    let (ok, unauthorized) = (stats.polls("ok"), stats.polls("unauthorized"));
    let others =
        ["refused", "reset", "status", "bad_answer"].map(|result| (result, stats.polls(result)));
    let failed: u64 = others.iter().map(|(_, count)| count).sum();
    if unauthorized > 0 && ok == 0 {
        return Item::fail(
            ID,
            subject,
            format!("{REFUSED}: the token is not valid ({unauthorized} times)"),
            "let `control_plane.token` in the filter's configuration be one of the control plane's `tokens` or `token_files`",
        );
    }
    if ok == 0 {
        let told = others.iter().filter(|(_, count)| *count > 0);
        let told: Vec<String> = told
            .map(|(result, count)| format!("{count} times {result}"))
            .collect();
        return Item::fail(
            ID,
            subject,
            format!(
                "no poll was answered ({})",
                if told.is_empty() {
                    "none was sent".to_owned()
                } else {
                    told.join(", ")
                }
            ),
            "does the cluster of `control_plane.cluster` lead to the control plane, and does it run?",
        );
    }
    if stats
        .get("prefix_picker_filter_sync_loads_total")
        .unwrap_or(0)
        == 0
    {
        return Item::fail(
            ID,
            subject,
            "polls are answered, but no table has come",
            "the control plane is still starting, or the filter is of another version: see its /readyz and Envoy's log",
        );
    }
    Item::ok(
        ID,
        subject,
        format!("{ok} polls answered, {failed} failed since the start"),
    )
}

fn table_age(subject: &str, stats: &Stats<'_>) -> Item {
    const ID: &str = "gateway.table_age";
    match stats.get("prefix_picker_filter_table_age_seconds") {
        None => Item::skipped(ID, subject, "the filter tells no age"),
        Some(age) if age > AGE_MAX_S => Item::fail(
            ID,
            subject,
            format!(
                "the control plane was last heard {age} s ago: prefixes are of then, and after a minute requests go by load"
            ),
            "is the control plane there, and reachable from Envoy? See gateway.sync",
        ),
        Some(age) => Item::ok(
            ID,
            subject,
            format!("the control plane was heard {age} s ago"),
        ),
    }
}

fn missed(subject: &str, stats: &Stats<'_>) -> Item {
    const ID: &str = "gateway.missed_override";
    let named = stats.get("prefix_picker_filter_named_total").unwrap_or(0);
    let missed = stats
        .get("prefix_picker_filter_missed_override_total")
        .unwrap_or(0);
    if missed.saturating_mul(MISSED_SHARE) > named {
        return Item::warn(
            ID,
            subject,
            format!(
                "{missed} of {named} requests were served by another endpoint than the one named"
            ),
            "see gateway.override_host and gateway.endpoints; retries count too",
        );
    }
    Item::ok(
        ID,
        subject,
        format!("{missed} of {named} requests were served elsewhere than named"),
    )
}
