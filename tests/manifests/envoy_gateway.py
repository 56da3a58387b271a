"""What Envoy Gateway's translator makes of the manifests, as of its 1.9 and for the fields that they use.

Field by field as its source has it; a field that is not known here is an error. Envoy Gateway itself is not asked.
"""

import json
import re

import envoy
from patches import found, json_patch

# Its own limits, where the manifests say nothing.
BUFFER_LIMIT = 32768
STREAM_WINDOW = 65536
CONNECTION_WINDOW = 1048576
# http_filters by the translator's numbers.
ORDER = ["envoy.filters.http.buffer", "envoy.filters.http.wasm", "envoy.filters.http.router"]
WASM = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"
PATCHED = re.compile(r"^\.\.http_filters\[\?\(@\.name=='([^']+)'\)\]\.typed_config\.config$")


def one(resources, kind):
    found = [r for r in resources if r["kind"] == kind]
    assert len(found) == 1, f"{kind}: {len(found)}"
    return found[0]


def gateway(resources, endpoints):
    """A bootstrap, from the manifests' documents and the engines' `(address, port)`."""
    gw, proxy = one(resources, "Gateway"), one(resources, "EnvoyProxy")
    assert gw["spec"]["infrastructure"]["parametersRef"]["name"] == proxy["metadata"]["name"]
    assert proxy["spec"]["routingType"] == "Endpoint"
    route, pool, address = routed(resources, endpoints)
    traffic = one(resources, "BackendTrafficPolicy")["spec"]
    balanced(pool, traffic)
    route["route"]["timeout"] = traffic["timeout"]["http"]["requestTimeout"]
    route["route"]["retry_policy"] = retry(traffic["retry"])
    chain = [
        {"name": "envoy.filters.http.router", "typed_config": {"@type": envoy.ROUTER}},
    ]
    chain += wasm(one(resources, "EnvoyExtensionPolicy"), address, route)
    if "requestBuffer" in traffic:
        chain.append(buffer(traffic["requestBuffer"], route))
    manager = envoy.manager([route])
    manager["http_filters"] = ordered(chain, proxy["spec"]["filterOrder"])
    manager["access_log"] = access_log(proxy["spec"]["telemetry"]["accessLog"])
    limit = client_traffic(manager, one(resources, "ClientTrafficPolicy")["spec"], gw)
    bootstrap = envoy.bootstrap(manager, [pool])
    listener = bootstrap["static_resources"]["listeners"][0]
    meta = gw["metadata"]
    listener["name"] = f"{meta['namespace']}/{meta['name']}/{gw['spec']['listeners'][0]['name']}"
    listener["per_connection_buffer_limit_bytes"] = limit
    # The list is in Envoy Gateway's own bootstrap, which patches add to.
    bootstrap["stats_config"] = {"stats_tags": []}
    for operation in proxy["spec"]["bootstrap"]["jsonPatches"]:
        json_patch(bootstrap, operation)
    for policy in (r for r in resources if r["kind"] == "EnvoyPatchPolicy"):
        patched(listener, policy["spec"])
    return bootstrap


def routed(resources, endpoints):
    """The route, its cluster, and what policies attach to."""
    kinds = {r["kind"] for r in resources}
    kind = "AIGatewayRoute" if "AIGatewayRoute" in kinds else "HTTPRoute"
    source = one(resources, kind)
    meta = source["metadata"]
    (rule,) = source["spec"]["rules"]
    name = f"httproute/{meta['namespace']}/{meta['name']}/rule/0"
    if kind == "AIGatewayRoute":
        ai = one(resources, "AIServiceBackend")
        assert rule["backendRefs"][0]["name"] == ai["metadata"]["name"]
        backend = one(resources, "Backend")
        assert ai["spec"]["backendRef"]["name"] == backend["metadata"]["name"]
        hosts = [(e["fqdn"]["hostname"], e["fqdn"]["port"]) for e in backend["spec"]["endpoints"]]
        pool = envoy.cluster(name, hosts, type="STRICT_DNS")
        route = envoy.route("/v1", name)
    else:
        pool = envoy.cluster(name, endpoints)
        route = envoy.route(rule["matches"][0]["path"]["value"], name)
        for one_filter in rule.get("filters", []):
            modifier = one_filter["requestHeaderModifier"]
            assert set(modifier) == {"set"}
            route["request_headers_to_add"] = [
                {"header": {"key": h["name"], "value": h["value"]}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
                for h in modifier["set"]
            ]
    return route, pool, ("HTTPRoute", meta["name"])


def balanced(pool, traffic):
    balancer = traffic["loadBalancer"]
    assert balancer["type"] == "LeastRequest"
    headers = [s["header"] for s in balancer["endpointOverride"]["extractFrom"]]
    pool["load_balancing_policy"] = envoy.override_host(headers)
    breaker = traffic["circuitBreaker"]
    names = {
        "maxConnections": "max_connections",
        "maxPendingRequests": "max_pending_requests",
        "maxParallelRequests": "max_requests",
        "maxParallelRetries": "max_retries",
    }
    pool["circuit_breakers"] = {"thresholds": [{names[k]: v for k, v in breaker.items()}]}


def retry(policy):
    return {
        "num_retries": policy["numRetries"],
        "retry_on": ",".join(policy["retryOn"]["triggers"]),
        "retriable_status_codes": policy["retryOn"]["httpStatusCodes"],
        "retry_host_predicate": [envoy.PREVIOUS_HOSTS],
        "host_selection_retry_max_attempts": 5,
    }


def enabled_on(route, name, config):
    route.setdefault("typed_per_filter_config", {})[name] = config


def wasm(policy, target, route):
    """Filters are there for all routes, disabled, and enabled for those that have the policy."""
    refs = [(r["kind"], r["name"]) for r in policy["spec"]["targetRefs"]]
    assert target in refs, f"the policy is for {refs}, not {target}"
    meta = policy["metadata"]
    for number, module in enumerate(policy["spec"]["wasm"]):
        name = f"envoy.filters.http.wasm/envoyextensionpolicy/{meta['namespace']}/{meta['name']}/wasm/{number}"
        config = {
            "name": module["name"],
            "root_id": module["rootID"],
            "fail_open": module.get("failOpen", False),
            "configuration": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": json.dumps(module["config"]),
            },
            "vm_config": {
                "vm_id": name.split("/", 1)[1],
                "runtime": "envoy.wasm.runtime.v8",
                "code": {"remote": module["code"]},
            },
        }
        enabled_on(route, name, {"@type": envoy.FILTER_CONFIG, "config": {}})
        yield {"name": name, "disabled": True, "typed_config": {"@type": WASM, "config": config}}


def buffer(request_buffer, route):
    limit = {"max_request_bytes": size(request_buffer["limit"])}
    kind = "type.googleapis.com/envoy.extensions.filters.http.buffer.v3."
    enabled_on(route, ORDER[0], {"@type": kind + "BufferPerRoute", "buffer": limit})
    return {"name": ORDER[0], "disabled": True, "typed_config": {"@type": kind + "Buffer", **limit}}


def ordered(chain, positions):
    kind = lambda f: f["name"].split("/")[0]
    chain = sorted(chain, key=lambda f: ORDER.index(kind(f)))
    for position in positions:
        moved = [f for f in chain if kind(f) == position["name"]]
        others = [f for f in chain if f not in moved]
        last = max((i for i, f in enumerate(others) if kind(f) == position["after"]), default=None)
        if last is not None:
            chain = others[: last + 1] + moved + others[last + 1 :]
    return chain


def access_log(settings):
    (setting,) = settings["settings"]
    path = setting["sinks"][0]["file"]["path"]
    return [envoy.access_log(path, setting["format"]["json"])]


def client_traffic(manager, policy, gw):
    assert policy["targetRefs"][0]["name"] == gw["metadata"]["name"]
    http2 = policy.get("http2", {})
    manager["http2_protocol_options"] = {
        "initial_stream_window_size": size(http2.get("initialStreamWindowSize", STREAM_WINDOW)),
        "initial_connection_window_size": size(http2.get("initialConnectionWindowSize", CONNECTION_WINDOW)),
    }
    manager["stream_idle_timeout"] = policy["timeout"]["http"]["streamIdleTimeout"]
    removed = policy["headers"]["earlyRequestHeaders"]["remove"]
    manager["early_header_mutation_extensions"] = [envoy.early_removal(removed)]
    return size(policy.get("connection", {}).get("bufferLimit", BUFFER_LIMIT))


def patched(listener, policy):
    for patch in policy["jsonPatches"]:
        assert patch["type"] == "type.googleapis.com/envoy.config.listener.v3.Listener"
        assert patch["name"] == listener["name"], f"no listener {patch['name']}, but {listener['name']}"
        operation = patch["operation"]
        name = PATCHED.match(operation["jsonPath"]).group(1)
        places = [f for chain in found(listener, "http_filters") for f in chain if f["name"] == name]
        assert places, f"no filter {name}"
        for place in places:
            json_patch(place["typed_config"]["config"], {**operation, "path": "/" + operation["path"]})


def size(quantity):
    """Bytes of a Kubernetes quantity."""
    if isinstance(quantity, int):
        return quantity
    number, unit = re.match(r"^(\d+)(Ki|Mi|Gi|)$", quantity).groups()
    return int(number) << {"": 0, "Ki": 10, "Mi": 20, "Gi": 30}[unit]
