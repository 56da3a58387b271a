//! Totals that somebody else counts -> differences, whatever is lost, repeated or started anew.

use std::collections::BTreeMap;

use prefix_picker_core::sync::PoolFeedback;

/// Gateways remembered at most; over it the one unheard for longest is forgotten.
pub const GATEWAYS_MAX: usize = 1_024;

/// What each gateway last reported.
#[derive(Debug, Default)]
pub struct Ledger {
    gateways: BTreeMap<String, Gateway>,
    /// Counts reports, to know who was unheard for longest.
    reports: u64,
}

#[derive(Debug)]
struct Gateway {
    pools: Vec<PoolFeedback>,
    heard: u64,
}

impl Ledger {
    /// What has come since the gateway's last report, for pools that are `known`.
    ///
    /// Nothing of a gateway's first report counts: what it holds may be long ago, or counted before
    /// a restart of ours. A gateway that has just started reports before it has anything to report.
    pub fn take(
        &mut self,
        gateway: &str,
        totals: &[PoolFeedback],
        known: impl Fn(&str) -> bool,
    ) -> Vec<PoolFeedback> {
        self.reports += 1;
        let totals: Vec<_> = totals.iter().filter(|t| known(&t.pool)).cloned().collect();
        let heard = self.reports;
        let Some(gateway_before) = self.gateways.get_mut(gateway) else {
            self.make_room();
            let first = Gateway {
                pools: totals,
                heard,
            };
            self.gateways.insert(gateway.to_owned(), first);
            return Vec::new();
        };
        gateway_before.heard = heard;
        let before = std::mem::take(&mut gateway_before.pools);
        let changes = totals.iter().map(|now| {
            let before = before.iter().find(|before| before.pool == now.pool);
            difference(before, now)
        });
        let changes = changes.filter(|change| change.answered() > 0).collect();
        gateway_before.pools = totals;
        changes
    }

    fn make_room(&mut self) {
        if self.gateways.len() < GATEWAYS_MAX {
            return;
        }
        let oldest = self.gateways.iter().min_by_key(|(_, g)| g.heard);
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.gateways.remove(&name);
        }
    }
}

/// All of `now` where it is not a continuation of `before`.
fn difference(before: Option<&PoolFeedback>, now: &PoolFeedback) -> PoolFeedback {
    let since = before.and_then(|before| continued(before, now));
    since.unwrap_or_else(|| now.clone())
}

/// What has come since `before`; `None` if any total is smaller than it was.
fn continued(before: &PoolFeedback, now: &PoolFeedback) -> Option<PoolFeedback> {
    Some(PoolFeedback {
        pool: now.pool.clone(),
        exact: now.exact.checked_sub(before.exact)?,
        over: now.over.checked_sub(before.over)?,
        under: now.under.checked_sub(before.under)?,
        early: now.early.checked_sub(before.early)?,
        missing: now.missing.checked_sub(before.missing)?,
        apart: now.apart.checked_sub(before.apart)?,
        telling: now.telling.checked_sub(before.telling)?,
        predicted_tokens: now.predicted_tokens.checked_sub(before.predicted_tokens)?,
        prompt_tokens: now.prompt_tokens.checked_sub(before.prompt_tokens)?,
        cached_tokens: now.cached_tokens.checked_sub(before.cached_tokens)?,
        over_tokens: now.over_tokens.checked_sub(before.over_tokens)?,
        under_tokens: now.under_tokens.checked_sub(before.under_tokens)?,
    })
}

/// One engine's counters.
#[derive(Debug, Default)]
pub struct Counters(Option<(u64, u64)>);

impl Counters {
    /// What has come since the last scrape; `None` at the first. An engine that restarted counts from
    /// zero.
    pub fn take(&mut self, queries: u64, hits: u64) -> Option<(u64, u64)> {
        let (q, h) = self.0.replace((queries, hits))?;
        match (queries.checked_sub(q), hits.checked_sub(h)) {
            (Some(queries), Some(hits)) => Some((queries, hits)),
            _ => Some((queries, hits)),
        }
    }
}
