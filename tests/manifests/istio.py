"""What istiod makes of EnvoyFilters and the DestinationRule, on the gateway that it would make anyway.

The listener, route and clusters that patches meet are in the form of Istio 1.28 and later as far as patches can
see it. No istiod is asked.
"""

import envoy
from patches import merged

HCM = "envoy.filters.network.http_connection_manager"


def gateway(resources, endpoints):
    """A bootstrap, from the manifests' documents and the engines' `(address, port)`."""
    route = of_kind(resources, "HTTPRoute")[0]
    backend = route["spec"]["rules"][0]["backendRefs"][0]
    host = f"{backend['name']}.{route['metadata']['namespace']}.svc.cluster.local"
    cluster = f"outbound|{backend['port']}||{host}"
    pool = envoy.cluster(cluster, endpoints)
    if not locality_off(resources, host):
        pool["common_lb_config"] = {"locality_weighted_lb_config": {}}
    bootstrap = envoy.bootstrap(
        envoy.manager([envoy.route("/v1", cluster, retry="connect-failure,refused-stream,unavailable,cancelled")]),
        [pool],
    )
    filters = of_kind(resources, "EnvoyFilter")
    filters.sort(key=lambda f: f["spec"].get("priority", 0))
    patches = [patch for f in filters for patch in f["spec"]["configPatches"]]
    extensions = {}
    for patch in patches:
        if patch["applyTo"] == "EXTENSION_CONFIG":
            value = patch["patch"]["value"]
            extensions[value["name"]] = value["typed_config"]
    for patch in patches:
        apply(bootstrap, patch, extensions)
    return bootstrap


def of_kind(resources, kind):
    return [r for r in resources if r["kind"] == kind]


def locality_off(resources, host):
    rules = [r["spec"] for r in of_kind(resources, "DestinationRule") if r["spec"]["host"] == host]
    settings = [r["trafficPolicy"]["loadBalancer"]["localityLbSetting"] for r in rules]
    return any(s.get("enabled") is False for s in settings)


def apply(bootstrap, patch, extensions):
    kind, operation = patch["applyTo"], patch["patch"]["operation"]
    value, match = patch["patch"]["value"], patch.get("match", {})
    static = bootstrap["static_resources"]
    listener = static["listeners"][0]
    network = listener["filter_chains"][0]["filters"][0]
    match (kind, operation):
        case ("EXTENSION_CONFIG", "ADD"):
            pass
        case ("BOOTSTRAP", "MERGE"):
            bootstrap.update(merged(bootstrap, value))
        case ("LISTENER", "MERGE"):
            listener.update(merged(listener, value))
        case ("NETWORK_FILTER", "MERGE"):
            assert match["listener"]["filterChain"]["filter"]["name"] == HCM
            network.update(merged(network, value))
        case ("HTTP_FILTER", "INSERT_BEFORE"):
            before = match["listener"]["filterChain"]["filter"]["subFilter"]["name"]
            chain = network["typed_config"]["http_filters"]
            at = [f["name"] for f in chain].index(before)
            # Discovery needs istiod; what it would bring is put in its place.
            assert "config_discovery" in value, value
            chain.insert(at, {"name": value["name"], "typed_config": extensions[value["name"]]})
        case ("HTTP_ROUTE", "MERGE"):
            assert match["routeConfiguration"] == {"vhost": {"route": {"action": "ROUTE"}}}
            for host in network["typed_config"]["route_config"]["virtual_hosts"]:
                host["routes"] = [merged(route, value) if "route" in route else route for route in host["routes"]]
        case ("CLUSTER", "ADD"):
            static["clusters"].append(value)
        case ("CLUSTER", "MERGE"):
            wanted = match["cluster"]
            name = f"outbound|{wanted['portNumber']}||{wanted['service']}"
            (cluster,) = [c for c in static["clusters"] if c["name"] == name]
            cluster.update(merged(cluster, value))
        case _:
            raise ValueError(f"a patch that this tool does not know: {kind} {operation}")
