//! Every metric of the filter, by its full name.
//!
//! Proxy-wasm metrics have no labels: a label is written into the name as `_<tag>=_=<value>_=_`, at
//! the end, and cut out by `stats_tags` in Envoy's bootstrap (see envoy/envoy.yaml). All names are
//! fixed: metrics never expire in Envoy, so no label carries anything that can grow.

use crate::health::record::Signal;
use crate::host::{Host, MetricId};
use crate::reason::Reason;

/// What a request's filter time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Copying the body out of Envoy.
    Copy,
    /// JSON to values.
    Parse,
    /// Values to prompt text.
    Render,
    /// Text to block hashes.
    Hash,
    /// Pages read and matched.
    Lookup,
    /// Load, choice, header.
    Pick,
    /// All of it.
    Total,
}

impl Phase {
    const ALL: [Self; 7] = [
        Self::Copy,
        Self::Parse,
        Self::Render,
        Self::Hash,
        Self::Lookup,
        Self::Pick,
        Self::Total,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Parse => "parse",
            Self::Render => "render",
            Self::Hash => "hash",
            Self::Lookup => "lookup",
            Self::Pick => "pick",
            Self::Total => "total",
        }
    }
}

/// How a poll of the control plane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollResult {
    /// An answer, understood.
    Ok,
    /// Envoy would not send it.
    Refused,
    /// No answer came.
    Reset,
    /// 401 or 403: the token.
    Unauthorized,
    /// Any other status than 200.
    Status,
    /// An answer that could not be understood.
    BadAnswer,
    /// The lease had moved on by the time the answer came.
    LeaseLost,
}

impl PollResult {
    const ALL: [Self; 7] = [
        Self::Ok,
        Self::Refused,
        Self::Reset,
        Self::Unauthorized,
        Self::Status,
        Self::BadAnswer,
        Self::LeaseLost,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Unauthorized => "unauthorized",
            Self::Status => "status",
            Self::BadAnswer => "bad_answer",
            Self::LeaseLost => "lease_lost",
        }
    }
}

/// Attempts that came to nothing, by kind.
const FAILURES: [(Signal, &str); 3] = [
    (Signal::Unreached, "unreached"),
    (Signal::Error, "error"),
    (Signal::Busy, "busy"),
];

/// Ids of all metrics, defined once per VM.
#[derive(Debug)]
pub struct Metrics {
    requests: Vec<(Reason, MetricId)>,
    polls: Vec<MetricId>,
    phases: Vec<MetricId>,
    /// Requests for which an endpoint was named.
    pub named: MetricId,
    /// Requests for which an endpoint was chosen but not named: in shadow.
    pub shadowed: MetricId,
    /// Of those, served by the endpoint that was chosen all the same.
    pub shadow_agreed: MetricId,
    /// Of requests in shadow whose response told: prompt tokens that the chosen replicas hold, by the
    /// table.
    pub shadow_predicted: MetricId,
    /// Of the same: prompt tokens found cached where Envoy sent them.
    pub shadow_cached: MetricId,
    /// Prompt tokens that the table said the chosen replicas hold.
    pub matched_tokens: MetricId,
    /// Estimated prompt tokens of all requests whose prompt was looked up.
    pub prompt_tokens: MetricId,
    /// Pages read by look-ups.
    pub page_reads: MetricId,
    /// Requests served by another endpoint than the one named for that attempt.
    pub missed_override: MetricId,
    /// Requests that took more than one attempt.
    pub retried: MetricId,
    upstream: Vec<(Signal, MetricId)>,
    /// Endpoints ejected, each time.
    pub ejections: MetricId,
    /// Endpoints that came back.
    pub restorations: MetricId,
    /// Endpoints that are ejected now.
    pub ejected: MetricId,
    /// Requests placed among ejected endpoints, since all were.
    pub all_ejected: MetricId,
    /// Requests that were made to ask the engine for a full report.
    pub full_reports: MetricId,
    /// Bytes of answers from the control plane.
    pub sync_bytes: MetricId,
    /// Pages written.
    pub sync_pages: MetricId,
    /// Complete loads of a table.
    pub sync_loads: MetricId,
    /// Pages that could not be applied, each making the table load anew.
    pub sync_page_errors: MetricId,
    /// Sequence number up to which the table holds all changes.
    pub table_seq: MetricId,
    /// Pages of the table in use.
    pub table_pages: MetricId,
    /// Time since the control plane last answered, in seconds.
    pub table_age: MetricId,
    /// Other gateways that are heard of.
    pub other_gateways: MetricId,
    /// Position of the control plane that is asked, from 0.
    pub control_plane: MetricId,
    /// Claims heard of other gateways.
    pub news_claims: MetricId,
    /// News that could not be told or heard.
    pub news_failures: MetricId,
    /// Requests that the control plane's report lacks.
    pub decisions_lost: MetricId,
    /// Longest work of one slice of an answer, in microseconds.
    pub slice: MetricId,
}

impl Metrics {
    /// Defines all metrics, so that each is there, at zero, from the start.
    #[must_use]
    pub fn define(host: &impl Host) -> Self {
        let tagged = |name: &str, tag: &str, value: &str| {
            format!("prefix_picker_filter_{name}_{tag}=_={value}_=_")
        };
        let counter = |name: &str| host.counter(&format!("prefix_picker_filter_{name}"));
        let gauge = |name: &str| host.gauge(&format!("prefix_picker_filter_{name}"));
        let histogram = |name: &str| host.histogram(&format!("prefix_picker_filter_{name}"));
        Self {
            requests: Reason::all()
                .map(|r| {
                    (
                        r,
                        host.counter(&tagged("requests_total", "reason", r.as_str())),
                    )
                })
                .collect(),
            polls: PollResult::ALL
                .iter()
                .map(|r| host.counter(&tagged("sync_polls_total", "result", r.as_str())))
                .collect(),
            phases: Phase::ALL
                .iter()
                .map(|p| host.histogram(&tagged("phase_microseconds", "phase", p.as_str())))
                .collect(),
            named: counter("named_total"),
            shadowed: counter("shadow_total"),
            shadow_agreed: counter("shadow_agreed_total"),
            shadow_predicted: counter("shadow_predicted_tokens_total"),
            shadow_cached: counter("shadow_cached_tokens_total"),
            matched_tokens: counter("matched_tokens_total"),
            prompt_tokens: counter("prompt_tokens_total"),
            page_reads: counter("page_reads_total"),
            missed_override: counter("missed_override_total"),
            retried: counter("retried_total"),
            upstream: FAILURES
                .iter()
                .map(|&(signal, kind)| {
                    (
                        signal,
                        host.counter(&tagged("upstream_failures_total", "kind", kind)),
                    )
                })
                .collect(),
            ejections: counter("ejections_total"),
            restorations: counter("restorations_total"),
            ejected: gauge("ejected_endpoints"),
            all_ejected: counter("all_ejected_total"),
            full_reports: counter("full_reports_total"),
            sync_bytes: counter("sync_bytes_total"),
            sync_pages: counter("sync_pages_total"),
            sync_loads: counter("sync_loads_total"),
            sync_page_errors: counter("sync_page_errors_total"),
            table_seq: gauge("table_seq"),
            table_pages: gauge("table_pages"),
            table_age: gauge("table_age_seconds"),
            other_gateways: gauge("other_gateways"),
            control_plane: gauge("control_plane_in_use"),
            news_claims: counter("news_claims_total"),
            news_failures: counter("news_failures_total"),
            decisions_lost: counter("decisions_lost_total"),
            slice: histogram("sync_slice_microseconds"),
        }
    }

    /// Counts one request.
    pub fn request(&self, host: &impl Host, reason: Reason) {
        if let Some(&(_, id)) = self.requests.iter().find(|&&(r, _)| r == reason) {
            host.add(id, 1);
        }
    }

    /// Counts what became of one attempt, if it came to nothing.
    pub fn upstream(&self, host: &impl Host, signal: Signal) {
        if let Some(&(_, id)) = self.upstream.iter().find(|&&(s, _)| s == signal) {
            host.add(id, 1);
        }
    }

    /// Counts one poll.
    pub fn poll(&self, host: &impl Host, result: PollResult) {
        let at = PollResult::ALL.iter().position(|&r| r == result);
        if let Some(&id) = at.and_then(|at| self.polls.get(at)) {
            host.add(id, 1);
        }
    }

    /// Records the time of one phase of one request.
    pub fn phase(&self, host: &impl Host, phase: Phase, us: u64) {
        let at = Phase::ALL.iter().position(|&p| p == phase);
        if let Some(&id) = at.and_then(|at| self.phases.get(at)) {
            host.record(id, us);
        }
    }
}

/// Measures the phases of one request, or nothing at no cost.
#[derive(Debug)]
pub struct Timer {
    /// When it began and when the last phase ended, in microseconds; `None`: not measured.
    at_us: Option<(u64, u64)>,
}

impl Timer {
    /// Starts to measure if `on`.
    #[must_use]
    pub fn start(host: &impl Host, on: bool) -> Self {
        let now = on.then(|| host.monotonic_us());
        Self {
            at_us: now.map(|now| (now, now)),
        }
    }

    /// The phase that ends now.
    pub fn lap(&mut self, host: &impl Host, metrics: &Metrics, phase: Phase) {
        if let Some((_, last)) = &mut self.at_us {
            let now = host.monotonic_us();
            metrics.phase(host, phase, now.saturating_sub(*last));
            *last = now;
        }
    }

    /// The end of the request's work.
    pub fn stop(self, host: &impl Host, metrics: &Metrics) {
        if let Some((start, _)) = self.at_us {
            let us = host.monotonic_us().saturating_sub(start);
            metrics.phase(host, Phase::Total, us);
        }
    }
}
