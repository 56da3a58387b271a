//! Can Envoy hold as much of a body as the filter wants to?

use serde_json::Value;

use super::dump::{Dump, clusters_of, list, number};
use super::filter::{Found, buffers};
use crate::config::Config;
use crate::doctor::item::Item;

const ID: &str = "gateway.buffer_limit";
/// Envoy's limit of a listener that does not say one.
const LISTENER_LIMIT: u64 = 1 << 20;
/// HTTP/2's window of a listener that does not say one (Envoy 1.36 and later).
const WINDOW: u64 = 16 << 20;
/// Bodies up to here are common: prompts of 50,000 tokens.
const COMMON_BYTES: u64 = 256 << 10;

/// What a route can hold, and what says so.
#[derive(Clone)]
struct Limit {
    bytes: u64,
    what: &'static str,
}

pub(super) fn judge(
    config: &Config,
    subject: &str,
    dump: &Dump<'_>,
    found: &[Found<'_>],
) -> Vec<Item> {
    let is_pool = |name: &&str| {
        let mut clusters = config.pools.iter().flat_map(|pool| &pool.clusters);
        clusters.any(|cluster| cluster == name)
    };
    let mut items: Vec<Item> = Vec::new();
    for one in found {
        let hosts = dump.virtual_hosts(one.manager).iter();
        let routes =
            hosts.flat_map(|host| list(host, "routes").iter().map(move |route| (host, route)));
        let to_pools = routes.filter(|(_, route)| clusters_of(route).iter().any(is_pool));
        let buffers = buffers(dump, one);
        let behind = buffers.behind.map(|bytes| Limit {
            bytes,
            what: "the buffer filter's max_request_bytes",
        });
        let limits = to_pools.map(|(host, route)| limit(one, host, route));
        let limits = limits.map(|limit| behind.as_ref().map_or(limit, Limit::clone));
        let any = buffers.least.map(|bytes| Limit {
            bytes,
            what: "a buffer filter's max_request_bytes",
        });
        let limits = limits.map(|limit| match &any {
            Some(any) if any.bytes < limit.bytes => any.clone(),
            _ => limit,
        });
        if let Some(least) = limits.min_by_key(|limit| limit.bytes) {
            items.push(judge_one(subject, one, &least));
        }
    }
    if items.is_empty() {
        let why = "no route of the filter's listeners leads to the pools' clusters";
        return vec![Item::skipped(ID, subject, why)];
    }
    // The worst of them.
    items.sort_by_key(|item| item.status);
    items.truncate(1);
    items
}

/// The route's own limit counts for all; else the listener's does, and HTTP/2's window.
fn limit(found: &Found<'_>, host: &Value, route: &Value) -> Limit {
    let names = [
        "request_body_buffer_limit",
        "per_request_buffer_limit_bytes",
    ];
    let of = |value: &Value| names.iter().find_map(|name| number(value, name));
    if let Some(bytes) = of(route).or_else(|| of(host)) {
        return Limit {
            bytes,
            what: "the route's request_body_buffer_limit",
        };
    }
    let listener = number(found.listener, "per_connection_buffer_limit_bytes");
    let options = found.manager.get("http2_protocol_options");
    let window = options.and_then(|options| number(options, "initial_stream_window_size"));
    let (listener, window) = (listener.unwrap_or(LISTENER_LIMIT), window.unwrap_or(WINDOW));
    if window < listener {
        Limit {
            bytes: window,
            what: "HTTP/2's initial_stream_window_size",
        }
    } else {
        Limit {
            bytes: listener,
            what: "the listener's per_connection_buffer_limit_bytes",
        }
    }
}

fn judge_one(subject: &str, found: &Found<'_>, limit: &Limit) -> Item {
    let (most, chunked) = (
        found.plugin.max_body_bytes,
        found.plugin.max_chunked_body_bytes,
    );
    let Limit { bytes, what } = limit;
    let place = found.name;
    if most > *bytes {
        return Item::fail(
            ID,
            subject,
            format!(
                "listener {place}: the filter holds bodies of {most} bytes, {what} is {bytes}: Envoy answers 413 to those between"
            ),
            format!(
                "set `request_body_buffer_limit: {most}` on the route or virtual host, or raise the listener's limit and \
                 HTTP/2's window (Envoy Gateway: ClientTrafficPolicy `connection.bufferLimit` and \
                 `http2.initialStreamWindowSize`); or lower the filter's `max_body_bytes` to {bytes}"
            ),
        );
    }
    if chunked > 0 && chunked.saturating_add(LISTENER_LIMIT) > *bytes {
        return Item::fail(
            ID,
            subject,
            format!(
                "listener {place}: max_chunked_body_bytes is {chunked}, {what} is {bytes}: no room for one read of a connection"
            ),
            format!(
                "lower `max_chunked_body_bytes` to {} at most, or raise the route's limit",
                bytes.saturating_sub(LISTENER_LIMIT)
            ),
        );
    }
    if most < COMMON_BYTES {
        return Item::warn(
            ID,
            subject,
            format!("listener {place}: bodies above {most} bytes are placed by load only"),
            "raise `max_body_bytes`, and the route's `request_body_buffer_limit` with it",
        );
    }
    Item::ok(
        ID,
        subject,
        format!("bodies up to {most} bytes are held, {what} is {bytes}"),
    )
}
