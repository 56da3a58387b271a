//! The filter's own figures.

use crate::doctor::item::Item;

/// Overrides missed beyond this share of those named, one in so many, are no accident.
const MISSED_SHARE: u64 = 100;

/// Figures by their names, tags and all.
#[derive(Clone, Copy)]
pub(super) struct Stats<'a>(pub(super) &'a str);

impl Stats<'_> {
    /// A figure whose name ends so.
    pub(super) fn get(&self, end: &str) -> Option<u64> {
        let values = self.0.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.ends_with(end).then(|| value.parse().ok()).flatten()
        });
        values.reduce(u64::saturating_add)
    }

    /// Polls that ended so.
    pub(super) fn polls(&self, result: &str) -> u64 {
        let end = format!("prefix_picker_filter_sync_polls_total_result=_={result}_=_");
        self.get(&end).unwrap_or(0)
    }

    /// Tables taken.
    pub(super) fn loads(&self) -> u64 {
        self.get("prefix_picker_filter_sync_loads_total")
            .unwrap_or(0)
    }
}

/// All but those about polls.
pub(super) fn judge(subject: &str, stats: &str) -> Vec<Item> {
    let stats = Stats(stats);
    vec![traps(subject, &stats), missed(subject, &stats)]
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
