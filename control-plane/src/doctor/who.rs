//! Who answers at an address that should be another's.

use std::time::Duration;

use super::page::{Page, fetch};

/// How long each of its pages may take.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Most characters of a version that are told.
const VERSION_CHARS: usize = 40;

/// What forms of `/v1/status` begin with.
const STATUS: &str = "prefix-picker.status/";

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A control plane of prefix-picker.
    ControlPlane,
    /// Envoy's admin pages.
    EnvoyAdmin,
    /// One of Envoy's listeners.
    Envoy,
    /// An engine, and its version.
    Engine(String),
    /// Somebody else.
    Other,
}

impl Who {
    /// For people: what answers there.
    pub(super) fn told(&self) -> String {
        match self {
            Self::ControlPlane => "a prefix-picker control plane answers there".to_owned(),
            Self::EnvoyAdmin => "Envoy's admin pages answer there".to_owned(),
            Self::Envoy => "one of Envoy's listeners answers there".to_owned(),
            Self::Engine(version) if version.is_empty() => "an engine answers there".to_owned(),
            Self::Engine(version) => format!("an engine answers there (version {version})"),
            Self::Other => "something else answers there".to_owned(),
        }
    }

    /// For people: what to do with its address, then what the argument is for that it was given to.
    pub(super) fn cure(&self, argument: &str) -> String {
        let belongs = match self {
            Self::ControlPlane => "pass that address as --url; ",
            Self::EnvoyAdmin => "pass that address as --envoy-admin; ",
            Self::Engine(_) => "an engine is no argument here, engines are those of --config; ",
            Self::Envoy | Self::Other => "",
        };
        format!("{belongs}{argument}")
    }
}

/// Whether a `/v1/status` is a control plane's.
pub(super) fn is_control_plane(status: &Page) -> bool {
    let json = status.json();
    let schema = json.get("schema").and_then(serde_json::Value::as_str);
    status.status == 200 && schema.is_some_and(|schema| schema.starts_with(STATUS))
}

/// Looks who answers.
pub(super) async fn who(client: &reqwest::Client, url: &str) -> Who {
    let page = async |path: &str| -> Page {
        let at = format!("{url}{path}");
        fetch(client, &at, TIMEOUT).await.unwrap_or_default()
    };
    let (status, info, version, models) = tokio::join!(
        page("/v1/status"),
        page("/server_info"),
        page("/version"),
        page("/v1/models"),
    );
    let has = |page: &Page, name: &str| page.json().get(name).is_some();
    if is_control_plane(&status) {
        return Who::ControlPlane;
    }
    if has(&info, "version") && has(&info, "state") {
        return Who::EnvoyAdmin;
    }
    // An engine behind it looks like one.
    if [&status, &models].iter().any(|page| page.server == "envoy") {
        return Who::Envoy;
    }
    let told = version.json();
    let told = told.get("version").and_then(serde_json::Value::as_str);
    match told {
        Some(version) => Who::Engine(version.chars().take(VERSION_CHARS).collect()),
        None if has(&models, "data") => Who::Engine(String::new()),
        None => Who::Other,
    }
}
