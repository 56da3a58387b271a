//! The filter in a gateway: is it there, and is it set up as it must be?

use serde_json::Value;

use super::HEADER;
use super::dump::{Dump, clusters_of, list, number, text};
use super::polls::Now;
use crate::config::Config;
use crate::doctor::item::Item;
use crate::server::auth::Tokens;

/// Longest body held, unless the filter's configuration says otherwise.
const MAX_BODY_BYTES: u64 = 1_048_000;

/// One place where the filter is.
pub(super) struct Found<'a> {
    /// The listener's name.
    pub(super) name: &'a str,
    /// The listener.
    pub(super) listener: &'a Value,
    /// The connection manager.
    pub(super) manager: &'a Value,
    /// The filter's settings.
    pub(super) plugin: Plugin,
}

/// The filter's settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Plugin {
    pub(super) standalone: bool,
    pub(super) max_body_bytes: u64,
    pub(super) max_chunked_body_bytes: u64,
    token: Option<String>,
    pub(super) clusters: Vec<String>,
    stops_at_headers: bool,
    /// `hold_headers`: the flag is needed.
    holds_headers: bool,
    failure_policy: String,
    /// `enforce`, `shadow` or `off`.
    mode: String,
    percent: u64,
    path_prefixes: Vec<String>,
}

/// Reads a Wasm filter's configuration; `None`: it is another filter.
fn plugin(wasm: &Value) -> Option<Plugin> {
    let config = wasm.get("config")?;
    let configuration = config.pointer("/configuration/value")?;
    let parsed;
    let settings = match configuration {
        Value::String(json) => {
            parsed = serde_json::from_str::<Value>(json).ok()?;
            &parsed
        }
        other => other,
    };
    let control_plane = settings.get("control_plane");
    let standalone = settings.get("standalone").is_some();
    if text(config, "root_id") != Some("prefix_picker") && control_plane.is_none() && !standalone {
        return None;
    }
    let several = control_plane.map_or(&[][..], |plane| list(plane, "clusters"));
    let several = several.iter().filter_map(Value::as_str);
    let one = control_plane.and_then(|plane| text(plane, "cluster"));
    Some(Plugin {
        standalone,
        max_body_bytes: number(settings, "max_body_bytes").unwrap_or(MAX_BODY_BYTES),
        max_chunked_body_bytes: number(settings, "max_chunked_body_bytes").unwrap_or(0),
        token: control_plane
            .and_then(|plane| text(plane, "token"))
            .map(str::to_owned),
        clusters: one.into_iter().chain(several).map(str::to_owned).collect(),
        stops_at_headers: config.get("allow_on_headers_stop_iteration") == Some(&Value::Bool(true)),
        holds_headers: settings.get("hold_headers") != Some(&Value::Bool(false)),
        failure_policy: text(config, "failure_policy")
            .unwrap_or_default()
            .to_owned(),
        mode: text(settings, "mode").unwrap_or("enforce").to_owned(),
        percent: number(settings, "percent").unwrap_or(100),
        path_prefixes: list(settings, "path_prefixes")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    })
}

impl Plugin {
    /// What it does with requests, and whether that is less than it could.
    fn doing(&self) -> (String, bool) {
        let (mut text, less) = match (self.mode.as_str(), self.percent) {
            ("enforce", 100) => ("mode enforce".to_owned(), false),
            ("enforce", 0) => (
                "mode enforce of 0 percent: all are in shadow".to_owned(),
                true,
            ),
            ("enforce", percent) => (format!("mode enforce of {percent} percent"), false),
            ("off", _) => ("mode off: requests are left alone".to_owned(), true),
            (mode, _) => (
                format!("mode {mode}: endpoints are chosen and not named"),
                true,
            ),
        };
        if !self.path_prefixes.is_empty() && !self.path_prefixes.iter().any(String::is_empty) {
            text.push_str(", only paths below ");
            text.push_str(&self.path_prefixes.join(", "));
        }
        (text, less)
    }
}

/// All places where the filter is.
pub(super) fn find<'a>(dump: &Dump<'a>) -> Vec<Found<'a>> {
    let mut all = Vec::new();
    for (name, listener) in &dump.listeners {
        for manager in dump.managers(listener) {
            let filters = dump.http_filters(manager);
            let wasm = filters.iter().filter(|(kind, _)| *kind == "Wasm");
            if let Some(plugin) = wasm.filter_map(|(_, wasm)| plugin(wasm)).next() {
                all.push(Found {
                    name,
                    listener,
                    manager,
                    plugin,
                });
            }
        }
    }
    all
}

pub(super) fn judge(
    config: &Config,
    subject: &str,
    dump: &Dump<'_>,
    found: &[Found<'_>],
) -> Vec<Item> {
    const ID: &str = "gateway.filter";
    if found.is_empty() {
        let mut clusters = config.pools.iter().flat_map(|pool| &pool.clusters);
        let is_another = !clusters.any(|name| dump.clusters.contains_key(name.as_str()));
        return vec![Item::fail(
            ID,
            subject,
            if is_another {
                "the filter is in none of the listeners, and none of the pools' clusters is there"
            } else {
                "the filter is in none of the listeners"
            },
            "is this the Envoy that requests to the pools go through? If not, give --envoy-admin the address of the right \
             one. If it is, add the Wasm filter with root_id prefix_picker before the router, as in envoy/envoy.yaml; \
             where it is configured, Envoy's log says why it was not taken",
        )];
    }
    let mut names: Vec<&str> = found.iter().map(|found| found.name).collect();
    names.dedup();
    let mut items = vec![doing(ID, subject, &names.join(", "), found)];
    if let Some(past) = listener_past_it(config, dump, found) {
        items = vec![Item::warn(
            ID,
            subject,
            format!("listener {past} leads to the pools' clusters, but has not the filter"),
            "add it there too, or its requests are balanced without regard to prefixes",
        )];
    }
    items.push(flag(subject, dump, found));
    items.push(failure_policy(subject, found));
    items.push(removal(subject, found));
    items.push(control_plane_cluster(subject, dump, found));
    items
}

/// Where the filter is and what it is told to do there. In shadow on purpose is no fault, but one that is
/// forgotten costs all that the filter is for.
fn doing(id: &'static str, subject: &str, names: &str, found: &[Found<'_>]) -> Item {
    let mut does: Vec<(String, bool)> = found.iter().map(|one| one.plugin.doing()).collect();
    does.dedup();
    let less = does.iter().any(|(_, less)| *less);
    let texts: Vec<String> = does.into_iter().map(|(text, _)| text).collect();
    let text = format!("in {names}; {}", texts.join("; "));
    if less {
        let fix = "if that is not what you want: the filter's `mode` and `percent` (docs/configuration.md)";
        Item::warn(id, subject, text, fix)
    } else {
        Item::ok(id, subject, text)
    }
}

/// A listener that leads to a pool without the filter.
fn listener_past_it<'a>(config: &Config, dump: &Dump<'a>, found: &[Found<'_>]) -> Option<&'a str> {
    let is_pool = |name: &str| {
        let clusters = config.pools.iter().flat_map(|pool| &pool.clusters);
        clusters.into_iter().any(|cluster| cluster == name)
    };
    let leads = |manager| {
        let hosts = dump.virtual_hosts(manager).iter();
        let mut routes = hosts.flat_map(|host| list(host, "routes"));
        routes.any(|route| clusters_of(route).into_iter().any(is_pool))
    };
    let listener = dump.listeners.iter().find(|(_, listener)| {
        let managers = dump.managers(listener);
        let mut without = managers.into_iter().filter(|manager| {
            !found
                .iter()
                .any(|found| std::ptr::eq(found.manager, *manager))
        });
        without.any(leads)
    });
    listener.map(|(name, _)| *name)
}

/// What buffer filters beside ours hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Buffers {
    /// The first one behind ours, where ours does not hold headers itself.
    pub(super) behind: Option<u64>,
    /// The least one wherever it stands: Envoy answers 413 beyond it.
    pub(super) least: Option<u64>,
}

/// Looks through a connection manager's filters.
pub(super) fn buffers(dump: &Dump<'_>, found: &Found<'_>) -> Buffers {
    let mut buffers = Buffers::default();
    let mut past_ours = false;
    for (kind, config) in dump.http_filters(found.manager) {
        past_ours |= kind == "Wasm" && plugin(config).is_some();
        let bytes = number(config, "max_request_bytes").filter(|_| kind == "Buffer");
        if let Some(bytes) = bytes {
            buffers.least = Some(buffers.least.map_or(bytes, |least| least.min(bytes)));
            if past_ours && !found.plugin.holds_headers {
                buffers.behind = buffers.behind.or(Some(bytes));
            }
        }
    }
    buffers
}

fn flag(subject: &str, dump: &Dump<'_>, found: &[Found<'_>]) -> Item {
    const ID: &str = "gateway.flag";
    let without = found.iter().find(|found| !found.plugin.stops_at_headers);
    let Some(without) = without else {
        return Item::ok(ID, subject, "allow_on_headers_stop_iteration is set");
    };
    if buffers(dump, without).behind.is_some() {
        let found = "not set; hold_headers is false, and a buffer filter holds them";
        return Item::ok(ID, subject, found);
    }
    let place = without.name;
    if !without.plugin.holds_headers {
        return Item::fail(
            ID,
            subject,
            format!(
                "listener {place}: hold_headers is false, but no buffer filter follows: picks come too late"
            ),
            "put envoy.filters.http.buffer right behind the filter, as docs/operations.md says under \"Without \
             allow_on_headers_stop_iteration\"",
        );
    }
    Item::fail(
        ID,
        subject,
        format!(
            "listener {place}: allow_on_headers_stop_iteration is not set: requests with a body hang"
        ),
        "set `allow_on_headers_stop_iteration: true` in the Wasm plugin's config (Envoy 1.35 or later; on Envoy Gateway by \
         an EnvoyPatchPolicy, on Istio by an EnvoyFilter), or where that cannot be, `\"hold_headers\": false` with a buffer \
         filter behind (docs/operations.md)",
    )
}

fn failure_policy(subject: &str, found: &[Found<'_>]) -> Item {
    const ID: &str = "gateway.failure_policy";
    match found
        .iter()
        .find(|found| found.plugin.failure_policy != "FAIL_RELOAD")
    {
        None => Item::ok(ID, subject, "FAIL_RELOAD"),
        Some(other) => {
            let policy = match other.plugin.failure_policy.as_str() {
                "" | "UNSPECIFIED" => "not set",
                policy => policy,
            };
            Item::warn(
                ID,
                subject,
                format!("listener {}: failure_policy is {policy}", other.name),
                "set `failure_policy: FAIL_RELOAD`: with any other a trap leaves its worker without the filter, or answering 503, for good",
            )
        }
    }
}

/// Clients that name an endpoint themselves.
fn removal(subject: &str, found: &[Found<'_>]) -> Item {
    const ID: &str = "gateway.destination_header";
    let removes = |found: &Found<'_>| {
        let extensions = list(found.manager, "early_header_mutation_extensions").iter();
        let mut mutations = extensions.flat_map(|extension| {
            let config = extension.get("typed_config");
            config.map_or(&[][..], |config| list(config, "mutations"))
        });
        mutations.any(|mutation| {
            text(mutation, "remove").is_some_and(|name| name.eq_ignore_ascii_case(HEADER))
        })
    };
    match found.iter().find(|found| !removes(found)) {
        None => Item::ok(ID, subject, format!("{HEADER} of clients is removed early")),
        Some(other) => Item::warn(
            ID,
            subject,
            format!(
                "listener {}: {HEADER} of clients is removed by the filter only",
                other.name
            ),
            format!(
                "remove {HEADER} by early_header_mutation_extensions too: while Envoy reloads the filter a client could \
                 choose its endpoint"
            ),
        ),
    }
}

fn control_plane_cluster(subject: &str, dump: &Dump<'_>, found: &[Found<'_>]) -> Item {
    const ID: &str = "gateway.control_plane_cluster";
    let mut clusters = found.iter().flat_map(|found| &found.plugin.clusters);
    let all_standalone = found.iter().all(|found| found.plugin.standalone);
    if all_standalone {
        return Item::skipped(ID, subject, "standalone: there is no control plane");
    }
    match clusters.find(|name| !dump.clusters.contains_key(name.as_str())) {
        None => Item::ok(ID, subject, "the control plane's cluster exists"),
        Some(missing) => Item::fail(
            ID,
            subject,
            format!(
                "Envoy has no cluster {missing:?}, where the filter looks for the control plane"
            ),
            "add the cluster, or correct `control_plane.cluster` in the filter's configuration",
        ),
    }
}

/// Is the filter's token one that the control plane takes? `known`: `None` where its files cannot be read. Where polls
/// are answered the token is right, and the file is another than the control plane's.
pub(super) fn token(subject: &str, found: &[Found<'_>], known: Option<&Tokens>, now: &Now) -> Item {
    const ID: &str = "gateway.token";
    const FIX: &str = "let `control_plane.token` in the filter's configuration be one of the control plane's `tokens` or \
        `token_files`";
    let mut tokens = found.iter().filter_map(|found| found.plugin.token.as_ref());
    let Some(first) = tokens.next() else {
        return Item::skipped(ID, subject, "the filter has no token: standalone");
    };
    let Some(known) = known else {
        return Item::skipped(ID, subject, "the token files cannot be read here");
    };
    let is_known = |token: &String| known.allow(Some(format!("Bearer {token}").as_bytes()));
    if std::iter::once(first).chain(tokens).all(is_known) {
        return Item::ok(ID, subject, "the filter's token is one of this file's");
    }
    match now {
        Now::Answered | Now::NoTable => Item::warn(
            ID,
            subject,
            "the filter's token is none of this file's, and yet its polls are answered: the control plane that runs has \
             other tokens than this file",
            "leave the filter as it is for now. Let `tokens` or `token_files` have its token and the new one, restart the \
             control plane with that file, and only then give the filter the new one (docs/operations.md, \"Token rotation\")",
        ),
        Now::Unanswered => Item::fail(
            ID,
            subject,
            "the filter's token is none of the control plane's: a poll that comes there is refused",
            FIX,
        ),
        Now::Refused | Now::Unknown(_) => Item::fail(
            ID,
            subject,
            "the filter's token is none of the control plane's: its polls are refused, and it gets no table",
            FIX,
        ),
    }
}
