//! The figures of each pool, in Envoy's own metrics: counted by every worker, read as one.

use std::rc::Rc;

use prefix_picker_core::sync::PoolFeedback;

use super::{Expected, Judged, Outcome};
use crate::host::{Host, MetricId};

/// Pools that are measured at most: metrics never expire in Envoy.
pub const POOLS_MAX: usize = 64;

/// One pool's metrics.
#[derive(Debug)]
struct Pool {
    name: Rc<str>,
    outcomes: Vec<MetricId>,
    telling: MetricId,
    predicted_total: MetricId,
    prompt_total: MetricId,
    cached_total: MetricId,
    over_total: MetricId,
    under_total: MetricId,
    predicted: MetricId,
    cached: MetricId,
    error: MetricId,
    over: MetricId,
    under: MetricId,
}

impl Pool {
    fn define(host: &impl Host, name: &Rc<str>) -> Self {
        let full = |metric: &str, labels: &str| {
            format!("prefix_picker_filter_feedback_{metric}{labels}_pool=_={name}_=_")
        };
        let counter = |metric: &str| host.counter(&full(metric, ""));
        let histogram = |metric: &str| host.histogram(&full(metric, ""));
        let outcome = |outcome: &Outcome| {
            let label = format!("_outcome=_={}_=_", outcome.as_str());
            host.counter(&full("responses_total", &label))
        };
        Self {
            name: Rc::clone(name),
            outcomes: Outcome::ALL.iter().map(outcome).collect(),
            telling: counter("telling_total"),
            predicted_total: counter("predicted_tokens_total"),
            prompt_total: counter("prompt_tokens_total"),
            cached_total: counter("cached_tokens_total"),
            over_total: counter("over_tokens_total"),
            under_total: counter("under_tokens_total"),
            predicted: histogram("predicted_tokens"),
            cached: histogram("cached_tokens"),
            error: histogram("error_tokens"),
            over: histogram("over_tokens"),
            under: histogram("under_tokens"),
        }
    }

    fn count(&self, host: &impl Host, expected: &Expected, judged: &Judged) {
        let at = Outcome::ALL.iter().position(|&o| o == judged.outcome);
        if let Some(&id) = at.and_then(|at| self.outcomes.get(at)) {
            host.add(id, 1);
        }
        let predicted = u64::from(expected.tokens);
        host.add(self.predicted_total, predicted);
        host.add(self.prompt_total, judged.prompt_tokens);
        let Some(cached) = judged.cached else { return };
        host.add(self.telling, u64::from(judged.telling));
        host.add(self.cached_total, cached);
        host.record(self.predicted, predicted);
        host.record(self.cached, cached);
        if judged.outcome == Outcome::Early {
            return;
        }
        let error = predicted.abs_diff(cached);
        host.record(self.error, error);
        if predicted > cached {
            host.add(self.over_total, error);
            host.record(self.over, error);
        } else if predicted < cached {
            host.add(self.under_total, error);
            host.record(self.under, error);
        }
    }

    fn totals(&self, host: &impl Host) -> PoolFeedback {
        let outcome = |outcome: Outcome| {
            let at = Outcome::ALL.iter().position(|&o| o == outcome);
            let id = at.and_then(|at| self.outcomes.get(at));
            id.map_or(0, |&id| host.metric_value(id))
        };
        PoolFeedback {
            pool: self.name.to_string(),
            exact: outcome(Outcome::Exact),
            over: outcome(Outcome::Over),
            under: outcome(Outcome::Under),
            early: outcome(Outcome::Early),
            missing: [Outcome::NoUsage, Outcome::NoFigure, Outcome::Null]
                .into_iter()
                .chain([Outcome::Unreadable])
                .map(outcome)
                .sum(),
            apart: outcome(Outcome::Apart),
            telling: host.metric_value(self.telling),
            predicted_tokens: host.metric_value(self.predicted_total),
            prompt_tokens: host.metric_value(self.prompt_total),
            cached_tokens: host.metric_value(self.cached_total),
            over_tokens: host.metric_value(self.over_total),
            under_tokens: host.metric_value(self.under_total),
        }
    }
}

/// All pools' figures, defined in a VM as the pools turn up.
#[derive(Debug, Default)]
pub struct Figures {
    pools: Vec<Pool>,
}

impl Figures {
    fn pool(&mut self, host: &impl Host, name: &str) -> Option<&Pool> {
        let known = self.pools.iter().position(|pool| *pool.name == *name);
        let at = match known {
            Some(at) => at,
            None if self.pools.len() < POOLS_MAX => {
                self.pools.push(Pool::define(host, &Rc::from(name)));
                self.pools.len() - 1
            }
            None => return None,
        };
        self.pools.get(at)
    }

    /// A pool's name, shared.
    pub fn name(&mut self, host: &impl Host, name: &str) -> Option<Rc<str>> {
        self.pool(host, name).map(|pool| Rc::clone(&pool.name))
    }

    /// Counts one response.
    pub fn count(&mut self, host: &impl Host, expected: &Expected, judged: &Judged) {
        if let Some(pool) = self.pool(host, &expected.pool) {
            pool.count(host, expected, judged);
        }
    }

    /// Totals of these pools since the process started, all workers together; pools without a
    /// response are left out.
    pub fn totals<'a>(
        &mut self,
        host: &impl Host,
        pools: impl Iterator<Item = &'a str>,
    ) -> Vec<PoolFeedback> {
        let totals = pools.filter_map(|name| Some(self.pool(host, name)?.totals(host)));
        totals.filter(|totals| totals.answered() > 0).collect()
    }
}
