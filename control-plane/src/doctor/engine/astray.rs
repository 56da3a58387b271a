//! Addresses that do not lead to the engine: names that do not resolve, redirects, web pages.

use super::Subject;
use crate::doctor::item::Item;
use crate::doctor::probe::{Failed, Seen, is_page};
use crate::doctor::samples::samples;

/// What the names of engines' metrics begin with.
const METRICS: [&str; 2] = ["vllm:", "sglang:"];

/// How an address leads astray.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    NoName,
    Moved,
    Page,
}

/// One address, and where it led.
struct Look<'a> {
    /// The field that says it.
    field: &'static str,
    url: String,
    /// What was added to the field's address.
    path: &'static str,
    failed: Option<&'a Failed>,
}

impl Look<'_> {
    fn way(&self) -> Option<Way> {
        match self.failed? {
            Failed::NoName(_) => Some(Way::NoName),
            Failed::Moved(..) => Some(Way::Moved),
            Failed::Page => Some(Way::Page),
            _ => None,
        }
    }

    fn is_api(&self) -> bool {
        self.path == "/v1/models"
    }
}

/// What is said of addresses that lead astray.
#[derive(Default)]
pub(super) struct Astray {
    /// In place of `engine.reachable`.
    pub(super) reachable: Option<Item>,
    /// In place of `engine.models`.
    pub(super) models: Option<Item>,
    /// Nothing leads to the engine: one fault, said once.
    pub(super) is_all: bool,
}

pub(super) fn judge(subject: &Subject<'_>, seen: &Seen) -> Astray {
    let name = &subject.replica.name;
    let looks = looks(subject, seen);
    for way in [Way::NoName, Way::Moved, Way::Page] {
        let (api, pages): (Vec<_>, Vec<_>) = looks
            .iter()
            .filter(|look| look.way() == Some(way))
            .partition(|look| look.is_api());
        let is_all = !api.is_empty() && !pages.is_empty();
        let models = (!api.is_empty() && !is_all).then(|| item("engine.models", name, way, &api));
        let all: Vec<_> = pages.iter().chain(&api).copied().collect();
        let reachable = (!pages.is_empty()).then(|| item("engine.reachable", name, way, &all));
        if reachable.is_some() || models.is_some() {
            return Astray {
                reachable,
                models,
                is_all,
            };
        }
    }
    Astray {
        reachable: no_metrics(subject, seen).or_else(|| no_request(subject, seen)),
        ..Astray::default()
    }
}

fn looks<'a>(subject: &Subject<'_>, seen: &'a Seen) -> [Look<'a>; 3] {
    let replica = subject.replica;
    let own = format!("http://{}", replica.endpoint);
    let look = |field, configured: &str, path, failed| Look {
        // What is not configured follows from `endpoint`.
        field: if configured == format!("{own}{path}") {
            "`endpoint`"
        } else {
            field
        },
        url: configured.to_owned(),
        path,
        failed,
    };
    let metrics = match &seen.metrics {
        Ok(text) if is_page(text) => Some(&Failed::Page),
        Ok(_) => None,
        Err(failed) => Some(failed),
    };
    let api = format!("{}/v1/models", replica.api);
    [
        look(
            "`health`",
            &replica.health,
            "/health",
            seen.health.as_ref().err(),
        ),
        look("`metrics`", &replica.metrics, "/metrics", metrics),
        look("`api`", &api, "/v1/models", seen.models.as_ref().err()),
    ]
}

fn item(id: &'static str, name: &str, way: Way, looks: &[&Look<'_>]) -> Item {
    let fields = and(looks.iter().map(|look| look.field.to_owned()));
    let (found, fix) = match way {
        Way::NoName => {
            let lost = looks
                .iter()
                .filter_map(|look| Some(look.failed?.to_string()));
            (
                format!("{fields}: {}", and(lost)),
                "correct the name, or run doctor where it resolves: the control plane asks there too, so its pod is a \
                 good place"
                    .to_owned(),
            )
        }
        Way::Moved => moved(&fields, looks),
        Way::Page => {
            let urls = and(looks.iter().map(|look| look.url.clone()));
            // Of metrics alone, it is what lacks there that matters.
            let lacks = match looks {
                [one] if !one.is_api() => "no vLLM metric (`vllm:`) is there, but ",
                _ => "not the engine answers, but ",
            };
            (
                format!("{urls}: {lacks}a web page (HTML)"),
                match looks {
                    [one] if !one.is_api() => own_metrics(one.field),
                    _ => format!(
                        "let {fields} be the engine's own, not what stands in front of it (a login page, a dashboard)"
                    ),
                },
            )
        }
    };
    Item::fail(id, name, found, fix)
}

fn moved(fields: &str, looks: &[&Look<'_>]) -> (String, String) {
    let destinations = looks.iter().filter_map(|look| match look.failed? {
        Failed::Moved(_, to) if look.field == "`api`" || look.field == "`endpoint`" => {
            Some(to.strip_suffix(look.path).unwrap_or(to).to_owned())
        }
        Failed::Moved(_, to) => Some(to.clone()),
        _ => None,
    });
    let to = and(destinations);
    let asked = looks.iter().filter_map(|look| match look.failed? {
        Failed::Moved(status, _) => Some(format!("{}: status {status}", look.url)),
        _ => None,
    });
    let asked = asked.collect::<Vec<_>>().join(", ");
    let redirect = if fields.contains(" and ") {
        "redirect"
    } else {
        "redirects"
    };
    let fix = if to.starts_with("http://") {
        format!("name {to} itself in {fields}, if that is the engine: no redirect is followed")
    } else {
        format!("let {fields} name the engine itself (http://): no redirect is followed")
    };
    (format!("{fields} {redirect} to {to} ({asked})"), fix)
}

/// A page of metrics that are none of an engine's.
fn no_metrics(subject: &Subject<'_>, seen: &Seen) -> Option<Item> {
    let text = seen.metrics.as_deref().ok()?;
    // A health check that fails says more.
    seen.health.as_ref().ok()?;
    let mut names = samples(text).map(|sample| sample.name);
    if names.any(|name| METRICS.iter().any(|of| name.starts_with(of))) {
        return None;
    }
    let field = looks(subject, seen)[1].field;
    Some(Item::fail(
        "engine.reachable",
        &subject.replica.name,
        format!(
            "{}: no vLLM metric (`vllm:`) is there",
            subject.replica.metrics
        ),
        format!(
            "{}, and start it without --disable-log-stats",
            own_metrics(field)
        ),
    ))
}

fn own_metrics(field: &str) -> String {
    if field == "`metrics`" {
        "let `metrics` be the engine's own /metrics".to_owned()
    } else {
        "let `endpoint` be the engine's own, or `metrics` its own /metrics".to_owned()
    }
}

/// Its pages are there, and requests are sent elsewhere.
fn no_request(subject: &Subject<'_>, seen: &Seen) -> Option<Item> {
    let first = seen.requests.as_ref()?.first.as_ref()?;
    let Err(Failed::Moved(status, to)) = first else {
        return None;
    };
    Some(Item::fail(
        "engine.reachable",
        &subject.replica.name,
        format!("a request is answered with a redirect to {to} (status {status})"),
        "let `api` and `endpoint` name the engine itself: no redirect is followed",
    ))
}

/// Each once: `a`, `b` and `c`.
fn and(parts: impl Iterator<Item = String>) -> String {
    let mut told: Vec<String> = Vec::new();
    for part in parts {
        if !told.contains(&part) {
            told.push(part);
        }
    }
    match told.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}
