#!/usr/bin/env python3
"""Writes envoy/kubernetes/monitoring/prometheus-rule.yaml: envoy/dashboards/alerts.yaml for Prometheus' operator."""

import pathlib

ENVOY = pathlib.Path(__file__).resolve().parents[2] / "envoy"
HEAD = """\
# Made of envoy/dashboards/alerts.yaml by tests/manifests/prometheus_rule.py.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: prefix-picker}
spec:
"""

if __name__ == "__main__":
    lines = (ENVOY / "dashboards/alerts.yaml").read_text().splitlines()
    rules = "".join(f"  {line}\n" for line in lines if not line.startswith("#"))
    (ENVOY / "kubernetes/monitoring/prometheus-rule.yaml").write_text(HEAD + rules)
