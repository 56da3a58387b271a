#!/usr/bin/env python3
"""usage: promql.py SCRAPE...

Checks that every metric and label that envoy/dashboards names is there in texts scraped from a running control plane
and a running Envoy. Prints what is missing; exit code 1 if anything is.
"""

import json
import pathlib
import re
import sys

import yaml

DASHBOARDS = pathlib.Path(__file__).resolve().parents[2] / "envoy/dashboards"
METRIC = re.compile(r"\b(?:prefix_picker|envoy)_[a-z0-9_]+")
SELECTOR = re.compile(r"\b((?:prefix_picker|envoy)_[a-z0-9_]+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
LABEL = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ")
# Labels that Prometheus itself gives.
TARGET = {"instance", "job", "pod", "namespace"}


def rules():
    """Name and expression of each alert."""
    groups = yaml.safe_load((DASHBOARDS / "alerts.yaml").read_text())["groups"]
    return [(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]


def panels():
    """Title, expression and legend of each query, variables' queries included."""
    for file in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(file.read_text())
        for variable in board["templating"]["list"]:
            query = variable.get("query", "")
            inner = re.match(r"label_values\((.*), (\w+)\)$", query if isinstance(query, str) else query["query"])
            if inner:
                yield f"{file.name}: ${variable['name']}", inner.group(1), "{{%s}}" % inner.group(2)
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{file.name}: {panel['title']}", target["expr"], target.get("legendFormat", "")


def plain(expression):
    """Without what Grafana replaces."""
    expression = expression.replace("$__rate_interval", "5m").replace("$__range", "1h")
    return re.sub(r"\$\w+", ".*", expression)


def samples(text):
    """Labels by metric."""
    seen = {}
    for line in text.splitlines():
        found = SAMPLE.match(line)
        if found:
            seen.setdefault(found.group(1), set()).update(LABEL.findall(found.group(2) or ""))
    return seen


def missing(where, expression, legend, seen):
    """What an expression names and nobody exports."""
    expression = plain(expression)
    metrics = set()
    for metric, selector in SELECTOR.findall(expression):
        metrics.add(metric)
        if metric not in seen:
            yield f"{where}: nobody exports {metric}"
            continue
        for label in set(LABEL.findall(selector)) - seen[metric] - TARGET:
            yield f"{where}: {metric} has no label {label}"
    grouped = {l.strip() for group in GROUPING.findall(expression) for l in group.split(",") if l.strip()}
    told = set(re.findall(r"\{\{(\w+)\}\}", legend))
    known = TARGET.union(*(seen.get(metric, set()) for metric in metrics))
    for label in (grouped | told) - known:
        yield f"{where}: none of its metrics has a label {label}"


def check(texts):
    """All that is missing."""
    seen = samples("\n".join(texts))
    queries = list(panels()) + [(name, expression, "") for name, expression in rules()]
    return [problem for query in queries for problem in missing(*query, seen)]


if __name__ == "__main__":
    problems = check([pathlib.Path(file).read_text() for file in sys.argv[1:]])
    print("\n".join(problems) or f"{len(list(panels()))} queries and {len(rules())} alerts name nothing that is not there")
    sys.exit(bool(problems))
