#!/usr/bin/env python3
"""The manifests, dashboards and alert rules under envoy/: `make test-manifests`. What a machine lacks is skipped, said.

Schemas of custom resources are in ../shared/data/crds beside a checkout, or where CRDS points. The schemas of
Kubernetes' own kinds come with kubernetes-validate, kustomize with kubectl, promtool with Prometheus, Helm from PyPI.
"""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

import assemble
import chart
import istio
import promql
from patches import found

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVOY = ROOT / "envoy"
CRDS = pathlib.Path(os.environ.get("CRDS", ROOT.parent / "shared/data/crds"))
KUSTOMIZATIONS = sorted(f.parent for f in ENVOY.rglob("kustomization.yaml"))
MANIFESTS = sorted(
    file
    for folder in ("kubernetes", "istio", "envoy-gateway", "ai-gateway")
    for file in (ENVOY / folder).rglob("*.yaml")
    if file.name not in ("kustomization.yaml", "prefix-picker.yaml")
)
# Of Kubernetes itself.
OWN = ("v1", "apps/v1", "policy/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1")
# Of Prometheus' operator; nobody here has its schemas.
UNCHECKED = "monitoring.coreos.com/"


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)


def documents(text):
    return [d for d in yaml.safe_load_all(text) if d]


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not there")


@functools.cache
def custom_kinds():
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    texts = [f.read_text() for f in CRDS.rglob("*.yaml") if "experimental" not in f.parts]
    crds = [d for text in texts for d in yaml.load_all(text, loader) if d]
    return {
        (f"{d['spec']['group']}/{v['name']}", d["spec"]["names"]["kind"])
        for d in crds
        if d["kind"] == "CustomResourceDefinition"
        for v in d["spec"]["versions"]
    }


@functools.cache
def kustomized(folder):
    out = run("kubectl", "kustomize", folder)
    assert out.returncode == 0, out.stderr
    return out.stdout


def shipped():
    """Name and documents of every manifest, as a cluster gets it."""
    for file in MANIFESTS:
        yield str(file.relative_to(ENVOY)), documents(file.read_text())
    if shutil.which("kubectl"):
        for folder in KUSTOMIZATIONS:
            yield f"-k {folder.relative_to(ENVOY)}", documents(kustomized(folder))
    if not chart.missing():
        for name, values in chart.VALUES.items():
            yield f"helm {name}", chart.rendered(values)


class Schemas(unittest.TestCase):
    def check(self, wanted, more, *command):
        """Runs a validator once, over the wanted documents of all manifests and more of them, by name."""
        with tempfile.TemporaryDirectory() as folder:
            for name, all_of_it in (*shipped(), *more.items()):
                chosen = [d for d in all_of_it if wanted(d)]
                if chosen:
                    file = pathlib.Path(folder) / f"{name.replace('/', '-')}.yaml"
                    file.write_text(yaml.safe_dump_all(chosen))
            return run(*command, *sorted(pathlib.Path(folder).iterdir()))

    @unittest.skipUnless(CRDS.is_dir(), f"no schemas of custom resources in {CRDS}")
    def test_custom_resources(self):
        is_custom = lambda d: (d["apiVersion"], d["kind"]) in custom_kinds()
        text = (ENVOY / "envoy-gateway/with-patches.yaml").read_text()
        wrong = {"wrong": documents(text.replace("endpointOverride", "endpointOveride"))}
        out = self.check(is_custom, wrong, sys.executable, CRDS / "validate.py")
        refused = [line for line in out.stdout.splitlines() if not line.endswith(" OK")]
        self.assertEqual(len(refused), 1, out.stdout + out.stderr)
        self.assertIn("endpointOveride: unknown field", refused[0])

    def test_kubernetes_own_kinds(self):
        python = run(ROOT / "tools/python.sh", "--kubernetes")
        if python.returncode:
            self.skipTest("kubernetes-validate cannot be installed: " + python.stderr.strip().splitlines()[-1])
        validate = pathlib.Path(python.stdout.strip()).parent / "kubernetes-validate"
        own = lambda d: d["apiVersion"] in OWN
        out = self.check(own, {}, validate, "--strict", "--quiet")
        self.assertEqual(out.returncode, 0, out.stdout + out.stderr)

    @unittest.skipUnless(CRDS.is_dir(), f"no schemas of custom resources in {CRDS}")
    def test_nothing_goes_unchecked(self):
        for name, all_of_it in shipped():
            for d in all_of_it:
                known = (d["apiVersion"], d["kind"]) in custom_kinds() or d["apiVersion"] in OWN
                self.assertTrue(known or d["apiVersion"].startswith(UNCHECKED), f"{name}: {d['kind']}")

    @needs("kubectl")
    def test_kustomizations(self):
        for folder in KUSTOMIZATIONS:
            with self.subTest(folder.relative_to(ENVOY)):
                self.assertTrue(documents(kustomized(folder)))


class Same(unittest.TestCase):
    """What several files must say alike."""

    def setUp(self):
        self.reference = yaml.safe_load((ENVOY / "envoy.yaml").read_text())

    def bootstraps(self):
        yield "standalone", yaml.safe_load((ENVOY / "standalone.yaml").read_text())
        for gateway in assemble.GATEWAYS:
            yield gateway, assemble.assembled(gateway, "filter.wasm")

    def test_labels_of_metrics(self):
        for name, bootstrap in self.bootstraps():
            self.assertEqual(bootstrap["stats_config"], self.reference["stats_config"], name)

    def test_access_log(self):
        fields = lambda bootstrap: list(found(bootstrap, "json_format"))
        for name, bootstrap in self.bootstraps():
            self.assertEqual(fields(bootstrap), fields(self.reference), name)

    def test_clients_choose_no_endpoint(self):
        for name, bootstrap in self.bootstraps():
            removed = [m["remove"] for ms in found(bootstrap, "mutations") for m in ms]
            self.assertEqual(removed, ["x-gateway-destination-endpoint"], name)

    def test_an_engine_that_dies_or_is_busy_is_tried_elsewhere(self):
        for name, bootstrap in self.bootstraps():
            policies = [p for hosts in found(bootstrap, "virtual_hosts") for p in found(hosts, "retry_policy")]
            self.assertTrue(policies, name)
            for policy in policies:
                wanted = {"connect-failure", "refused-stream", "reset", "retriable-status-codes"}
                self.assertLessEqual(wanted, set(policy["retry_on"].split(",")), name)
                self.assertEqual((policy["retriable_status_codes"], policy["num_retries"]), ([503], 2), name)

    def test_the_plugin_s_name_is_in_metrics(self):
        for name, bootstrap in self.bootstraps():
            plugins = [c for c in found(bootstrap, "config") if "vm_config" in c]
            self.assertEqual([p["name"] for p in plugins], ["prefix_picker"], name)

    def test_the_rule_of_the_operator_is_the_file(self):
        rule = yaml.safe_load((ENVOY / "kubernetes/monitoring/prometheus-rule.yaml").read_text())
        rules = yaml.safe_load((ENVOY / "dashboards/alerts.yaml").read_text())
        self.assertEqual(rule["spec"], rules, "run tests/manifests/prometheus_rule.py")


@unittest.skipUnless(os.environ.get("ENVOY"), "ENVOY names no Envoy")
class InEnvoy(unittest.TestCase):
    """What manifests say about Envoy, put together, is accepted by it, and by the filter."""

    wasm = os.environ.get("WASM", "")

    def validate(self, bootstrap):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(bootstrap, file)
            file.flush()
            out = run(os.environ["ENVOY"], "--mode", "validate", "--concurrency", "1", "--log-level", "error", "-c", file.name)
            return out.returncode, out.stdout + out.stderr

    def test_assembled_bootstraps(self):
        for gateway in assemble.GATEWAYS:
            with self.subTest(gateway):
                code, said = self.validate(assemble.assembled(gateway, self.wasm))
                self.assertEqual(code, 0, said)

    def test_istio_needs_the_destination_rule(self):
        files = assemble.GATEWAYS["istio"][1]
        resources = [r for r in assemble.documents(files) if r["kind"] != "DestinationRule"]
        code, said = self.validate(istio.gateway(resources, assemble.ENGINES))
        self.assertNotEqual(code, 0)
        self.assertIn("locality", said)

    def test_a_misspelt_field_of_the_filter_is_found(self):
        bootstrap = assemble.assembled("envoy-gateway", self.wasm)
        (plugin,) = [c for c in found(bootstrap, "config") if "vm_config" in c]
        text = plugin["configuration"]["value"]
        plugin["configuration"]["value"] = text.replace("max_body_bytes", "max_body_byte", 1)
        code, said = self.validate(bootstrap)
        self.assertNotEqual(code, 0)
        self.assertIn("max_body_byte", said)


@needs("promtool")
class Prometheus(unittest.TestCase):
    def promtool(self, what, document):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "file.yaml"
            file.write_text(yaml.safe_dump(document))
            out = run("promtool", *what, file)
            self.assertEqual(out.returncode, 0, out.stdout + out.stderr)

    def test_rules(self):
        out = run("promtool", "check", "rules", ENVOY / "dashboards/alerts.yaml")
        self.assertEqual(out.returncode, 0, out.stdout + out.stderr)

    def test_queries_of_dashboards(self):
        rules = [
            {"record": f"query_{n}", "expr": promql.plain(expression)}
            for n, (_, expression, _) in enumerate(promql.panels())
        ]
        self.assertGreater(len(rules), 30)
        self.promtool(("check", "rules"), {"groups": [{"name": "queries", "rules": rules}]})

    def test_alerts(self):
        rules = yaml.safe_load((ENVOY / "dashboards/alerts.yaml").read_text())
        rules = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
        cases = yaml.safe_load((pathlib.Path(__file__).parent / "alerts.yaml").read_text())
        quiet = cases.pop("quiet")
        self.assertEqual(sorted(cases), sorted(rules), "each alert has a case")
        tests = [raised(name, case, rules[name]) for name, case in cases.items()]
        nothing = [{"eval_time": at, "alertname": name, "exp_alerts": []} for at in quiet["at"] for name in rules]
        tests.append({"interval": "1m", "input_series": series(quiet["series"]), "alert_rule_test": nothing})
        document = {"rule_files": [str(ENVOY / "dashboards/alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
        self.promtool(("test", "rules"), document)


def series(by_name):
    # Unquoted, 0x20 is a number to YAML.
    assert all(isinstance(values, str) for values in by_name.values()), by_name
    return [{"series": name, "values": values} for name, values in by_name.items()]


def raised(name, case, rule):
    """A unit test of promtool's: this alert, with these labels."""
    labels = {**case["labels"], **rule["labels"]}
    alert = {"exp_labels": labels, "exp_annotations": rule["annotations"]}
    expected = {"eval_time": case.get("at", "15m"), "alertname": name, "exp_alerts": [alert]}
    return {"interval": "1m", "input_series": series(case["raised"]), "alert_rule_test": [expected]}


@unittest.skipUnless(os.environ.get("PREFIX_PICKER"), "PREFIX_PICKER names no control plane")
class ControlPlane(unittest.TestCase):
    def test_its_configuration(self):
        self.check((ENVOY / "kubernetes/prefix-picker.yaml").read_text())

    @chart.needed
    def test_that_of_the_chart(self):
        for name, values in chart.VALUES.items():
            with self.subTest(name):
                self.check(chart.configuration(chart.rendered(values)))

    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            secrets = yaml.safe_load((ENVOY / "kubernetes/secret.example.yaml").read_text())["stringData"]
            for name, value in secrets.items():
                (pathlib.Path(folder) / name).write_text(value)
            text = text.replace("/etc/prefix-picker/secrets", folder)
            # The hub is not asked here.
            text = text.replace("model: Qwen/Qwen3-8B", f"model_dir: {ROOT / 'tests/engine-sim/model'}")
            file = pathlib.Path(folder) / "prefix-picker.yaml"
            file.write_text(text)
            out = run(os.environ["PREFIX_PICKER"], "check", "--config", file)
            self.assertEqual(out.returncode, 0, out.stdout + out.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
