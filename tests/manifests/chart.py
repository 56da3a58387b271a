"""The Helm chart, rendered without a cluster."""

import copy
import functools
import pathlib
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "envoy/helm"
EXAMPLE = yaml.safe_load((CHART / "example.yaml").read_text())
TOKENS = {name: f"of-a-test-{name}" for name in ("gateway-token", "gateway-token-next", "admin-token", "fleet-secret")}


def everything():
    """Values with all that example.yaml leaves as it is, engines in several namespaces among it."""
    pools = copy.deepcopy(EXAMPLE["config"]["pools"])
    pools[0]["memory_budget_bytes"] = 2147483648
    for name, kubernetes in (("other", {"namespace": "other"}), ("here", {})):
        discovery = {"kubernetes": {"label_selector": f"app={name}", **kubernetes}}
        pools.append({**pools[0], "name": name, "models": [name], "clusters": [name], "discovery": discovery})
    fixed = [{"endpoint": "192.0.2.1:8000", "events": "tcp://192.0.2.1:5557", "replay": "tcp://192.0.2.1:5558"}]
    pools.append({"name": "fixed", "model": "Qwen/Qwen3-8B", "models": ["fixed"], "clusters": ["fixed"], "replicas": fixed})
    return {
        "image": {"repository": "registry.example/prefix-picker", "digest": "sha256:" + 64 * "a"},
        "imagePullSecrets": [{"name": "pull"}],
        "replicas": 3,
        "secret": {"values": TOKENS},
        "config": {"log_format": "text", "pools": pools},
        "storage": {"size": "20Gi", "className": "fast"},
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}],
        "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "tolerations": [{"key": "control", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}}},
        "networkPolicy": {"clients": []},
        "serviceMonitor": {"enabled": True, "interval": "30s", "labels": {"release": "prometheus"}},
    }


# By name, what the tests of schemas and configurations look at.
VALUES = {"example": EXAMPLE, "everything": everything()}


@functools.cache
def helm():
    """Helm's path, and why there is none."""
    out = subprocess.run([ROOT / "tools/helm.sh"], capture_output=True, text=True)
    if out.returncode:
        return None, "Helm cannot be installed: " + out.stderr.strip().splitlines()[-1]
    return out.stdout.strip(), None


def missing():
    """Why nothing can be rendered here, if so."""
    return helm()[1]


def needed(test):
    """A test's decorator. Asks at the run, not at the import: it may install Helm."""
    @functools.wraps(test)
    def wrapped(self, *arguments):
        if missing():
            raise unittest.SkipTest(missing())
        return test(self, *arguments)
    return wrapped


def run(*command, values=None):
    """Helm's answer; the values by a file, which stands at the end."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values or {}, file)
        file.flush()
        return subprocess.run([helm()[0], *command, "--values", file.name], capture_output=True, text=True)


def rendered(values, release="prefix-picker", namespace="inference"):
    out = run("template", release, str(CHART), "--namespace", namespace, values=values)
    assert out.returncode == 0, out.stderr
    return [d for d in yaml.safe_load_all(out.stdout) if d]


def one(documents, kind, name="prefix-picker", namespace="inference"):
    (found,) = [d for d in documents if (d["kind"], d["metadata"]["name"], d["metadata"]["namespace"]) == (kind, name, namespace)]
    return found


def configuration(documents):
    return one(documents, "ConfigMap")["data"]["prefix-picker.yaml"]
