"""Parts of Envoy's configuration that every gateway makes alike."""

ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
FILTER_CONFIG = "type.googleapis.com/envoy.config.route.v3.FilterConfig"
PREVIOUS_HOSTS = {
    "name": "envoy.retry_host_predicates.previous_hosts",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    },
}


def address(host, port):
    return {"socket_address": {"address": host, "port_value": port}}


def cluster(name, hosts, **more):
    endpoints = [{"endpoint": {"address": address(host, port)}} for host, port in hosts]
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        **more,
    }


def route(prefix, cluster, retry=None):
    action = {"cluster": cluster, "timeout": "0s"}
    if retry:
        action["retry_policy"] = {
            "num_retries": 2,
            "retry_on": retry,
            "retry_host_predicate": [PREVIOUS_HOSTS],
            "host_selection_retry_max_attempts": 5,
        }
    return {"match": {"prefix": prefix}, "route": action}


def manager(routes):
    host = {"name": "all", "domains": ["*"], "routes": routes}
    return {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        "codec_type": "AUTO",
        "route_config": {"virtual_hosts": [host]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
    }


def bootstrap(manager, clusters):
    """One listener, on the ports of envoy/envoy.yaml."""
    network = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    listener = {
        "name": "main",
        "address": address("127.0.0.1", 10000),
        "filter_chains": [{"filters": [network]}],
    }
    return {
        "admin": {"address": address("127.0.0.1", 9901)},
        "static_resources": {"listeners": [listener], "clusters": clusters},
    }


def override_host(headers):
    kind = "type.googleapis.com/envoy.extensions.load_balancing_policies."
    fallback = {
        "name": "envoy.load_balancing_policies.least_request",
        "typed_config": {"@type": kind + "least_request.v3.LeastRequest"},
    }
    policy = {
        "@type": kind + "override_host.v3.OverrideHost",
        "override_host_sources": [{"header": header} for header in headers],
        "fallback_policy": {"policies": [{"typed_extension_config": fallback}]},
    }
    name = "envoy.load_balancing_policies.override_host"
    return {"policies": [{"typed_extension_config": {"name": name, "typed_config": policy}}]}


def access_log(path, fields):
    kind = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
    config = {"@type": kind, "path": path, "log_format": {"json_format": fields}}
    return {"name": "envoy.access_loggers.file", "typed_config": config}


def early_removal(headers):
    kind = "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
    config = {"@type": kind, "mutations": [{"remove": header} for header in headers]}
    return {"name": "early", "typed_config": config}
