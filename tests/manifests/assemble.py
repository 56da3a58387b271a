#!/usr/bin/env python3
"""usage: assemble.py GATEWAY --wasm FILE

Prints, as YAML, an Envoy bootstrap made of what the manifests of a gateway say about Envoy: the filter, its cluster,
listener and route settings. On the ports of envoy/envoy.yaml, so that what runs with that one runs with this one.
GATEWAY: see GATEWAYS below. FILE takes the place of the image or address that the manifests name.
"""

import argparse
import pathlib
import sys

import yaml

import envoy_gateway
import istio
from patches import found

ENVOY = pathlib.Path(__file__).resolve().parents[2] / "envoy"
EG = "envoy-gateway/"
GATEWAYS = {
    "istio": (istio, ["istio/oci/gateway.yaml", "istio/oci/filter.yaml"]),
    "envoy-gateway": (envoy_gateway, [EG + "common.yaml", EG + "with-patches.yaml"]),
    "envoy-gateway-without-patches": (envoy_gateway, [EG + "common.yaml", EG + "without-patches.yaml"]),
    "ai-gateway": (envoy_gateway, [EG + "common.yaml", EG + "with-patches.yaml", "ai-gateway/route.yaml"]),
}
# The engines of envoy/envoy.yaml.
ENGINES = [("127.0.0.1", port) for port in (8101, 8102, 8103)]
# Pods' names, and where they are here: the second control plane does not run.
PODS = {
    "prefix-picker-0.prefix-picker.inference.svc.cluster.local": ("127.0.0.1", 9400),
    "prefix-picker-1.prefix-picker.inference.svc.cluster.local": ("127.0.0.1", 1),
}


def documents(files):
    """All documents of manifests."""
    texts = [(ENVOY / file).read_text() for file in files]
    return [d for text in texts for d in yaml.safe_load_all(text) if d]


def assembled(gateway, wasm, resources=None):
    """The bootstrap of one of GATEWAYS."""
    maker, files = GATEWAYS[gateway]
    resources = resources or documents(files)
    if gateway == "ai-gateway":
        # Its controller makes the HTTPRoute, in place of the one that is there.
        resources = [r for r in resources if r["kind"] != "HTTPRoute"]
    bootstrap = maker.gateway(resources, ENGINES)
    for code in found(bootstrap, "code"):
        code.clear()
        code["local"] = {"filename": str(wasm)}
    for place in found(bootstrap, "socket_address"):
        if place["address"] in PODS:
            place["address"], place["port_value"] = PODS[place["address"]]
    return bootstrap


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("gateway", choices=GATEWAYS)
    parser.add_argument("--wasm", required=True)
    args = parser.parse_args()
    yaml.safe_dump(assembled(args.gateway, args.wasm), sys.stdout, sort_keys=False, width=10_000)


if __name__ == "__main__":
    main()
