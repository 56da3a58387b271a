//! `GET /v1/status` and the page at `/`, which shows it.
//!
//! Both are for whoever may read metrics, without a token: they tell the same kind of facts. What is
//! served is fixed or JSON, nothing of it is to be kept, and no other site's page may read or frame it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;

use super::{Shared, gzip};
use crate::status::{DecisionStatus, Overview, decisions, overview};

/// All but the decisions are made anew no more often than this, however many look.
const FRESH: Duration = Duration::from_millis(500);

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// The overview as it was a moment ago.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Option<(Instant, Arc<Overview>)>>);

impl Kept {
    /// Whoever comes while it is made waits for it.
    fn get(&self, make: impl FnOnce() -> Overview) -> Arc<Overview> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, overview)) = &*kept
            && made.elapsed() < FRESH
        {
            return overview.clone();
        }
        let fresh = Arc::new(make());
        *kept = Some((Instant::now(), fresh.clone()));
        fresh
    }
}

/// The routes.
pub(super) fn routes() -> Router<Arc<Shared>> {
    const HTML: &str = "text/html; charset=utf-8";
    const JS: &str = "text/javascript; charset=utf-8";
    const CSS: &str = "text/css; charset=utf-8";
    const SVG: &str = "image/svg+xml";
    let file = |kind, text| get(move || async move { fixed(kind, text) });
    Router::new()
        .route("/v1/status", get(answer))
        .route("/", file(HTML, include_str!("../page/index.html")))
        .route("/page.js", file(JS, include_str!("../page/page.js")))
        .route("/page.css", file(CSS, include_str!("../page/page.css")))
        .route("/icon.svg", file(SVG, include_str!("../page/icon.svg")))
}

fn fixed(kind: &'static str, text: &'static str) -> Response {
    (HEADERS, [(header::CONTENT_TYPE, kind)], text).into_response()
}

/// What is asked for.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Decisions after this number only.
    #[serde(default)]
    decisions_after: u64,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    overview: &'a Overview,
    decisions: Vec<DecisionStatus>,
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(error) => {
            let text = format!(
                "expected ?decisions_after=NUMBER or nothing: {}\n",
                error.body_text()
            );
            return (StatusCode::BAD_REQUEST, HEADERS, text).into_response();
        }
    };
    let packs = gzip::is_accepted(&headers);
    // It looks at every replica's index, which polls need not wait for.
    let work = move || -> anyhow::Result<gzip::Packed> {
        let (engine, config) = (&shared.engine, &shared.config);
        let refused = shared.refused.last(Instant::now());
        let overview = shared.status.get(|| overview(engine, config, refused));
        let decisions = decisions(engine, asked.decisions_after);
        let json = serde_json::to_vec(&Answer {
            overview: &overview,
            decisions,
        })?;
        Ok(gzip::packed(json, packs)?)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(json)) => {
            (HEADERS, [(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
