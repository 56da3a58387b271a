//! One fault of a gateway each: the pages of a real Envoy (tests/vectors/envoy-admin), changed as a
//! wrong configuration would change them.

use prefix_picker::config::Config;
pub(crate) use prefix_picker::doctor::envoy::Pages;
use prefix_picker::doctor::envoy::{ControlPlanes, judge};
use prefix_picker::doctor::{Report, Status, Status::Fail, Status::Ok, Status::Warn};
use serde_json::{Value, json};

use super::fleet::expect;

const HCM: &str = "/configs/1/static_listeners/0/listener/filter_chains/0/filters/0/typed_config";
const POOL: &str = "/configs/0/static_clusters/0/cluster";

pub(crate) fn pages() -> Pages {
    let read = |name: &str| {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/envoy-admin/");
        std::fs::read_to_string(format!("{file}{name}")).unwrap()
    };
    let json = |name| serde_json::from_str(&read(name)).unwrap();
    let mut pages = Pages {
        config_dump: json("config_dump.json"),
        clusters: json("clusters.json"),
        server_info: json("server_info.json"),
        stats: read("stats.txt"),
        later: None,
    };
    // Old enough that what it has not done is a fault.
    pages.server_info["uptime_current_epoch"] = json!("90s");
    pages
}

/// That of envoy/prefix-picker.yaml, which those pages belong to.
pub(crate) fn config() -> Config {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../envoy/prefix-picker.yaml");
    Config::load(file.as_ref()).unwrap()
}

fn at<'a>(value: &'a mut Value, path: &str) -> &'a mut Value {
    value
        .pointer_mut(path)
        .unwrap_or_else(|| panic!("no {path}"))
}

fn hcm(pages: &mut Pages) -> &mut Value {
    at(&mut pages.config_dump, HCM)
}

pub(crate) fn plugin(pages: &mut Pages) -> &mut Value {
    at(hcm(pages), "/http_filters/0/typed_config/config")
}

fn pool(pages: &mut Pages) -> &mut Value {
    at(&mut pages.config_dump, POOL)
}

pub(crate) fn remove(value: &mut Value, name: &str) {
    assert!(
        value.as_object_mut().unwrap().remove(name).is_some(),
        "no {name}"
    );
}

/// The filter's own settings, edited.
pub(crate) fn settings(pages: &mut Pages, edit: impl FnOnce(&mut Value)) {
    let text = at(plugin(pages), "/configuration/value");
    let mut settings: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    edit(&mut settings);
    *text = json!(settings.to_string());
}

pub(crate) fn look(edit: impl FnOnce(&mut Pages)) -> Report {
    let mut pages = pages();
    edit(&mut pages);
    let report = Report {
        items: judge(&config(), "gw", &pages, ControlPlanes::default()),
        ..Report::default()
    };
    super::fleet::well_formed(&report);
    report
}

/// One fault, and all else is well.
pub(crate) fn check(
    edit: impl FnOnce(&mut Pages),
    id: &str,
    status: Status,
    fault: &str,
    cure: &str,
) {
    let report = look(edit);
    let item = report.items.iter().find(|item| item.id == id).unwrap();
    let subject = item.subject.clone();
    expect(
        &report,
        &["gateway."],
        &[(id, &subject, status, fault, cure)],
    );
}

#[test]
fn all_is_well() {
    let report = look(|_| {});
    let bad: Vec<_> = report
        .items
        .iter()
        .filter(|item| item.status != Ok)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(report.items.len() >= 14, "{}", report.text(false));
}

#[test]
fn nothing_secret_is_shown() {
    for pages in [
        look(|_| {}),
        look(|pages| {
            settings(pages, |s| {
                s["control_plane"]["token"] = json!("another-secret")
            })
        }),
    ] {
        let text = pages.json().to_string();
        assert!(
            !text.contains("change-me") && !text.contains("another-secret"),
            "{text}"
        );
    }
}

#[test]
fn filter_missing() {
    check(
        |pages| {
            *at(hcm(pages), "/http_filters/0/typed_config/@type") =
                json!("type.googleapis.com/x.Other")
        },
        "gateway.filter",
        Fail,
        "in none of the listeners",
        "root_id prefix_picker",
    );
}

#[test]
fn a_listener_without_the_filter() {
    check(
        |pages| {
            let listeners = at(&mut pages.config_dump, "/configs/1/static_listeners");
            let mut second = listeners[0].clone();
            second["listener"]["name"] = json!("plain");
            *second
                .pointer_mut("/listener/filter_chains/0/filters/0/typed_config/http_filters")
                .unwrap() = json!([]);
            listeners.as_array_mut().unwrap().push(second);
        },
        "gateway.filter",
        Warn,
        "listener plain",
        "add it there too",
    );
}

#[test]
fn flag_missing() {
    let gone = |pages: &mut Pages| remove(plugin(pages), "allow_on_headers_stop_iteration");
    check(
        gone,
        "gateway.flag",
        Fail,
        "requests with a body hang",
        "allow_on_headers_stop_iteration: true",
    );
    let off = |pages: &mut Pages| plugin(pages)["allow_on_headers_stop_iteration"] = json!(false);
    check(off, "gateway.flag", Fail, "is not set", "hold_headers");
}

#[test]
fn without_the_flag_a_buffer_filter_does() {
    let sandwich = |pages: &mut Pages| {
        remove(plugin(pages), "allow_on_headers_stop_iteration");
        settings(pages, |s| s["hold_headers"] = json!(false));
    };
    check(
        sandwich,
        "gateway.flag",
        Fail,
        "no buffer filter follows",
        "envoy.filters.http.buffer",
    );
    let buffer = json!({"name": "buffer", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer", "max_request_bytes": 33554432}});
    let whole = |pages: &mut Pages, bytes: u64| {
        sandwich(pages);
        let mut buffer = buffer.clone();
        buffer["typed_config"]["max_request_bytes"] = json!(bytes);
        at(hcm(pages), "/http_filters")
            .as_array_mut()
            .unwrap()
            .insert(1, buffer);
    };
    expect(&look(|pages| whole(pages, 33_554_432)), &["gateway."], &[]);
    check(
        |pages| whole(pages, 1 << 20),
        "gateway.buffer_limit",
        Fail,
        "max_request_bytes is 1048576",
        "max_body_bytes",
    );
}

#[test]
fn failure_policy() {
    let gone = |pages: &mut Pages| remove(plugin(pages), "failure_policy");
    check(
        gone,
        "gateway.failure_policy",
        Warn,
        "not set",
        "FAIL_RELOAD",
    );
    let open = |pages: &mut Pages| plugin(pages)["failure_policy"] = json!("FAIL_OPEN");
    check(
        open,
        "gateway.failure_policy",
        Warn,
        "FAIL_OPEN",
        "FAIL_RELOAD",
    );
}

#[test]
fn body_limit_too_low() {
    let limit = "request_body_buffer_limit";
    // Envoy's own limit of 1 MiB counts.
    check(
        |pages| remove(at(hcm(pages), "/route_config/virtual_hosts/0"), limit),
        "gateway.buffer_limit",
        Fail,
        "per_connection_buffer_limit_bytes is 1048576",
        "request_body_buffer_limit: 33554432",
    );
    // Envoy Gateway's limits, and the filter's defaults.
    let envoy_gateway = |pages: &mut Pages| {
        remove(at(hcm(pages), "/route_config/virtual_hosts/0"), limit);
        let listener = at(
            &mut pages.config_dump,
            "/configs/1/static_listeners/0/listener",
        );
        listener["per_connection_buffer_limit_bytes"] = json!(32768);
        settings(pages, |s| {
            remove(s, "max_body_bytes");
            remove(s, "max_chunked_body_bytes");
        });
    };
    check(
        envoy_gateway,
        "gateway.buffer_limit",
        Fail,
        "is 32768",
        "connection.bufferLimit",
    );
    // HTTP/2's window is the least.
    let window = |pages: &mut Pages| {
        envoy_gateway(pages);
        let listener = at(
            &mut pages.config_dump,
            "/configs/1/static_listeners/0/listener",
        );
        listener["per_connection_buffer_limit_bytes"] = json!(2 << 20);
        hcm(pages)["http2_protocol_options"] = json!({"initial_stream_window_size": 65536});
    };
    check(
        window,
        "gateway.buffer_limit",
        Fail,
        "initial_stream_window_size is 65536",
        "http2.initialStreamWindowSize",
    );
    // A filter that wants no more than there is sees few prompts.
    check(
        |pages| {
            envoy_gateway(pages);
            settings(pages, |s| s["max_body_bytes"] = json!(32_000));
        },
        "gateway.buffer_limit",
        Warn,
        "above 32000 bytes",
        "raise `max_body_bytes`",
    );
    check(
        |pages| settings(pages, |s| s["max_chunked_body_bytes"] = json!(33_554_432)),
        "gateway.buffer_limit",
        Fail,
        "max_chunked_body_bytes is 33554432",
        "32505856",
    );
}

#[test]
fn clients_choose() {
    check(
        |pages| remove(hcm(pages), "early_header_mutation_extensions"),
        "gateway.destination_header",
        Warn,
        "by the filter only",
        "early_header_mutation_extensions",
    );
}

#[test]
fn override_host_missing() {
    check(
        |pages| {
            remove(pool(pages), "load_balancing_policy");
            pool(pages)["lb_policy"] = json!("LEAST_REQUEST");
        },
        "gateway.override_host",
        Fail,
        "cluster pool balances by LEAST_REQUEST",
        "override_host_sources",
    );
    let sources = "/load_balancing_policy/policies/0/typed_extension_config/typed_config/override_host_sources";
    check(
        |pages| *at(pool(pages), sources) = json!([{"header": "x-other"}]),
        "gateway.override_host",
        Fail,
        "reads x-other",
        "x-gateway-destination-endpoint",
    );
    check(
        |pages| *at(pool(pages), sources) = json!([{"metadata": {"key": "envoy.lb"}}]),
        "gateway.override_host",
        Fail,
        "reads metadata",
        "x-gateway-destination-endpoint",
    );
}

#[test]
fn cluster_missing() {
    check(
        |pages| pool(pages)["name"] = json!("outbound|8000||vllm"),
        "gateway.clusters",
        Fail,
        "none of the pool's clusters",
        "outbound|8000||vllm",
    );
    check(
        |pages| settings(pages, |s| s["control_plane"]["cluster"] = json!("nowhere")),
        "gateway.control_plane_cluster",
        Fail,
        "\"nowhere\"",
        "control_plane.cluster",
    );
}

#[test]
fn cluster_lacks_a_replica() {
    let hosts = "/cluster_statuses/0/host_statuses";
    check(
        |pages| {
            at(&mut pages.clusters, hosts)
                .as_array_mut()
                .unwrap()
                .remove(1);
        },
        "gateway.endpoints",
        Fail,
        "lacks the replicas 127.0.0.1:8102",
        "the same addresses",
    );
    check(
        |pages| {
            let other =
                json!({"address": {"socket_address": {"address": "fd00::7", "port_value": 8000}}});
            at(&mut pages.clusters, hosts)
                .as_array_mut()
                .unwrap()
                .push(other);
        },
        "gateway.endpoints",
        Warn,
        "[fd00::7]:8000",
        "`replicas`",
    );
}

#[test]
fn old_envoy() {
    check(
        |pages| pages.server_info["version"] = json!("abc/1.34.2/Clean/RELEASE/BoringSSL"),
        "gateway.version",
        Fail,
        "Envoy 1.34.2",
        "1.35",
    );
}

#[test]
fn what_came_by_discovery_is_found() {
    let discovered = |pages: &mut Pages| {
        // Routes by RDS, the filter by ECDS, the listener and the cluster dynamic, the policy wrapped as Istio does.
        let routes = hcm(pages)
            .as_object_mut()
            .unwrap()
            .remove("route_config")
            .unwrap();
        hcm(pages)["rds"] = json!({"route_config_name": "http.80"});
        let filter = at(hcm(pages), "/http_filters/0/typed_config").take();
        let wrapped = json!({"@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
            "type_url": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm", "value": filter});
        *at(hcm(pages), "/http_filters/0") = json!({"name": "picker", "config_discovery": {}});
        let mut routes = routes;
        routes["name"] = json!("http.80");
        let configs = pages.config_dump["configs"].as_array_mut().unwrap();
        configs.push(json!({"dynamic_route_configs": [{"route_config": routes}]}));
        configs.push(
            json!({"ecds_filters": [{"ecds_filter": {"name": "picker", "typed_config": wrapped}}]}),
        );
        let listener = at(
            &mut pages.config_dump,
            "/configs/1/static_listeners/0/listener",
        )
        .take();
        pages.config_dump["configs"][1] =
            json!({"dynamic_listeners": [{"name": "x", "active_state": {"listener": listener}}]});
        let clusters = at(&mut pages.config_dump, "/configs/0/static_clusters").take();
        pages.config_dump["configs"][0] = json!({"dynamic_active_clusters": clusters});
    };
    let report = look(discovered);
    let bad: Vec<_> = report
        .items
        .iter()
        .filter(|item| item.status != Ok)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn rubbish_is_no_gateway() {
    let report = Report {
        items: judge(&config(), "gw", &Pages::default(), ControlPlanes::default()),
        ..Report::default()
    };
    assert!(report.has_failed());
    super::fleet::well_formed(&report);
}

#[test]
fn a_buffer_filter_that_takes_less() {
    check(
        |pages| {
            let kind = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer";
            let buffer =
                json!({"name": "b", "typed_config": {"@type": kind, "max_request_bytes": 1000}});
            let filters = at(hcm(pages), "/http_filters");
            filters.as_array_mut().unwrap().insert(0, buffer);
        },
        "gateway.buffer_limit",
        Fail,
        "a buffer filter's max_request_bytes is 1000",
        "`max_body_bytes` to 1000",
    );
}
