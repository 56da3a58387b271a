//! What gateways tell each other.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prefix_picker_core::sync::news::Report;
use tokio::time::Instant;

use super::{Shared, is_allowed, unauthorized};
use crate::metrics::ResultLabels;

/// The longest that a report's answer may wait, whatever it says: a silent gateway is gone soon after.
const WAIT_MAX: Duration = Duration::from_millis(1_500);
/// News that come together are one answer.
const GATHER: Duration = Duration::from_millis(5);

pub(super) async fn news(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let count = |result| {
        let labels = ResultLabels { result };
        shared.metrics.news_reports.get_or_create(&labels).inc()
    };
    if !is_allowed(&shared, &headers) {
        count("unauthorized");
        return unauthorized();
    }
    let report = match Report::decode(&body) {
        Ok(report) => report,
        Err(error) => {
            count("malformed");
            return (StatusCode::BAD_REQUEST, format!("not a report: {error}\n")).into_response();
        }
    };
    let gateways = shared.engine.gateways();
    count(if gateways.take(&report) {
        "heard"
    } else {
        "too_many"
    });
    let wait = Duration::from_millis(report.wait_ms.into()).min(WAIT_MAX);
    let mut stopping = shared.stopping.clone();
    let stopped = async {
        // An error means that nobody can stop us any more: then the wait ends all the same.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    let until = Instant::now() + wait;
    let answer = tokio::select! {
        answer = gateways.answer(&report, until, GATHER) => answer,
        () = stopped => gateways.answer(&report, Instant::now(), GATHER).await,
    };
    match answer.encode() {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "news cannot be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
