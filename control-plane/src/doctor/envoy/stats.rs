//! The filter's own figures.

use super::Age;
use crate::doctor::item::{Item, Status};

/// Beyond this age nobody believes that the table is kept.
const AGE_MAX_S: u64 = 5;
/// Overrides missed beyond this share of those named, one in so many, are no accident.
const MISSED_SHARE: u64 = 100;

/// So long after its start an Envoy's polls are answered, in seconds.
const SETTLED_S: u64 = 5;
/// So long after its start it has polled at all: first it compiles the filter, which takes the longer the busier
/// the machine is.
const POLLS_WITHIN_S: u64 = 30;

/// How a refused token is told.
const REFUSED: &str = "all polls are refused";
/// How polls end that are not answered, but for a wrong token.
const FAILURES: [&str; 4] = ["refused", "reset", "status", "bad_answer"];

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

    /// Tables taken.
    fn loads(&self) -> u64 {
        self.get("prefix_picker_filter_sync_loads_total")
            .unwrap_or(0)
    }
}

/// Why polls say nothing yet, if Envoy has started so lately that they cannot.
pub(super) fn unsettled(stats: &str, age: &Age) -> Option<String> {
    let stats = Stats(stats);
    let answered = stats.polls("ok");
    let failed = FAILURES.into_iter().chain(["unauthorized"]);
    let failed: u64 = failed.map(|result| stats.polls(result)).sum();
    if answered == 0 && (!age.live || age.is_below(SETTLED_S)) {
        return Some("Envoy has just started: look again".to_owned());
    }
    let seconds = age.seconds.filter(|_| age.is_below(POLLS_WITHIN_S))?;
    if answered == 0 && failed == 0 {
        return Some(format!(
            "Envoy started {seconds} s ago, and the filter has not polled yet: look again"
        ));
    }
    (answered > 0 && stats.loads() == 0)
        .then(|| format!("Envoy started {seconds} s ago, and no table has come yet: look again"))
}

pub(super) fn judge(subject: &str, stats: &str, standalone: bool, age: &Age) -> Vec<Item> {
    let unsettled = unsettled(stats, age);
    let stats = Stats(stats);
    let mut items = vec![traps(subject, &stats)];
    let quiet = if standalone {
        Some("standalone: there is no table".to_owned())
    } else {
        unsettled
    };
    if let Some(why) = quiet {
        items.push(Item::skipped("gateway.sync", subject, why.as_str()));
        items.push(Item::skipped("gateway.table_age", subject, why));
    } else {
        items.push(sync(subject, &stats));
        items.push(table_age(subject, &stats));
    }
    items.push(missed(subject, &stats));
    items
}

/// What leaves a gateway without answers.
pub(super) struct Causes {
    /// The gateway's own fault.
    own: Option<&'static str>,
    /// The item that says that there is no control plane.
    absent: Option<&'static str>,
}

impl Causes {
    /// `items`: the gateway's, before those about its polls.
    pub(super) fn of(items: &[Item], absent: Option<&'static str>) -> Self {
        let is_own = |item: &&Item| {
            item.status == Status::Fail
                && matches!(item.id, "gateway.control_plane_cluster" | "gateway.token")
        };
        Self {
            own: items.iter().find(is_own).map(|item| item.id),
            absent,
        }
    }

    /// What follows from a fault is not said as another.
    pub(super) fn explain(&self, item: Item) -> Item {
        let follows =
            item.status == Status::Fail && matches!(item.id, "gateway.sync" | "gateway.table_age");
        let no_control_plane = self.absent.filter(|_| !item.found.starts_with(REFUSED));
        let found = match (self.own, no_control_plane) {
            (Some(id), _) if follows => format!("{}: see {id}", item.found),
            (None, Some(id)) if follows => {
                format!("{}. No control plane serves it: see {id}", item.found)
            }
            _ => return item,
        };
        Item::skipped(item.id, &item.subject, found)
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
    let others = FAILURES.map(|result| (result, stats.polls(result)));
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
    if stats.loads() == 0 {
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
