#!/usr/bin/env python3
"""The Helm chart: that it makes what the kustomize base does, and what its values do. Where neither Helm nor the
package that has it can be had, all of it is skipped, said."""

import copy
import re
import shutil
import unittest

import yaml

import chart
import test_manifests as manifests

# What Helm adds to labels and selectors. The annotation and kustomize's suffix of the name do the same: a
# changed configuration restarts the pods.
HELMS = ("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart", "checksum/config")
SUFFIXED = re.compile(r"^prefix-picker-[a-z0-9]{10}$")


def plain(value, key=None):
    """Without what the two tools add, each in its way."""
    if isinstance(value, dict):
        kept = {k: plain(v, k) for k, v in value.items() if k not in HELMS}
        # A map of labels with nothing but Helm's.
        return {k: v for k, v in kept.items() if not (k == "labels" and v == {})}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if key == "name" and SUFFIXED.match(value):
        return "prefix-picker"
    return yaml.safe_load(value) if key == "prefix-picker.yaml" else value


def by_name(documents):
    named = {(d["apiVersion"], d["kind"], d["metadata"]["namespace"], d["metadata"]["name"]): d for d in map(plain, documents)}
    assert len(named) == len(documents)
    return named


def with_example(**more):
    return {**copy.deepcopy(chart.EXAMPLE), **more}


def paths(values, before=()):
    """Of every value that values.yaml has, and of every map of them."""
    for name, value in values.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from paths(value, (*before, name))


def has_null(value):
    if isinstance(value, dict):
        return any(map(has_null, value.values()))
    return value is None or isinstance(value, list) and any(map(has_null, value))


def named(path):
    """How either the schema or the chart's own list of problems names a value that is missing, or the map it is in."""
    of = re.escape(".".join(path[:-1]) or "(root)")
    return rf"{of}: {path[-1]} is required|  ({of}|{re.escape('.'.join(path))}): is empty; give"


def with_one(path, value):
    """The example with one value more, or another."""
    values = at = copy.deepcopy(chart.EXAMPLE)
    for step in path[:-1]:
        at = at[step] if isinstance(at, list) else at.setdefault(step, {})
    at[path[-1]] = value
    return values


class Chart(unittest.TestCase):
    maxDiff = None

    @chart.needed
    def setUp(self):
        pass

    def refused(self, values, release="prefix-picker"):
        out = chart.run("template", release, str(chart.CHART), values=values)
        self.assertNotEqual(out.returncode, 0, out.stdout)
        return out.stderr

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not there")
    def test_the_example_is_the_kustomize_base(self):
        base = manifests.documents(manifests.kustomized(manifests.ENVOY / "kubernetes"))
        monitors = manifests.documents(manifests.kustomized(manifests.ENVOY / "kubernetes/monitoring"))
        base += [d for d in monitors if d["kind"] == "ServiceMonitor"]
        made = by_name(chart.rendered(with_example(serviceMonitor={"enabled": True})))
        base = by_name(base)
        self.assertEqual(sorted(made), sorted(base))
        for name in base:
            if "labels" not in base[name]["metadata"]:
                self.assertEqual(made[name]["metadata"].pop("labels"), {"app.kubernetes.io/name": "prefix-picker"})
            self.assertEqual(made[name], base[name], name)

    def test_lint(self):
        for values in ({}, *chart.VALUES.values()):
            out = chart.run("lint", "--strict", str(chart.CHART), values=values)
            self.assertEqual(out.returncode, 0, out.stdout + out.stderr)

    def test_its_version_is_the_release_s(self):
        cargo = (chart.ROOT / "Cargo.toml").read_text()
        (version,) = re.findall(r'^version = "(.*)"', cargo, re.M)
        about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
        self.assertEqual((about["version"], str(about["appVersion"])), (version, version))

    def test_all_that_has_to_be_given_is_named_at_once(self):
        said = self.refused({})
        for what in ("image.repository: is empty", "config.pools: is empty", "secret: is empty"):
            self.assertIn(what, said)

    def test_no_token_is_made_up(self):
        self.assertFalse([d for d in chart.rendered(chart.EXAMPLE) if d["kind"] == "Secret"])
        values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
        self.assertEqual(values["secret"], {"existing": "", "values": {}})

    def test_wrong_values_are_named(self):
        digest = {"repository": "r", "digest": "sha256:short"}
        both = {"existing": "prefix-picker", "values": chart.TOKENS}
        fewer = {k: v for k, v in chart.TOKENS.items() if k != "gateway-token-next"}
        config = lambda **more: with_example(config={**chart.EXAMPLE["config"], **more})
        for values, said in (
            (with_example(replica=3), "Additional property replica is not allowed"),
            (with_example(replicas="two"), "replicas: Invalid type"),
            (with_example(replicas=0), "replicas: Must be greater than or equal to 1"),
            (with_example(image={"repository": "r", "name": "n"}), "image: Additional property name is not allowed"),
            (with_example(image=digest), "image.digest: Does not match pattern"),
            (with_example(secret=both), "secret: has both existing and values"),
            (with_example(secret={"values": fewer}), "secret.values: lacks gateway-token-next, whose file config names"),
            (with_example(secret={"values": {"gateway-token": "short"}}), "secret.values.gateway-token: String length"),
            *((config(listen=f"{host}:{port}"), 'config.listen: config.listen must be one of the following: "[::]:9400", "0.0.0.0:9400"')
              for host, port in (("[::]", 9500), ("127.0.0.1", 9400), ("[::1]", 9400))),
            (config(data_dir="/data"), "config.data_dir: Does not match pattern"),
            (config(pools=[{"name": "llm"}]), "config.pools.0: models is required"),
            (with_example(networkPolicy={"enabled": "no"}), "networkPolicy.enabled: Invalid type"),
            *((with_example(storage={"size": size}), f'storage.size: "{size}" is no size of a volume; give one like 5Gi')
              for size in ("big", "", "-5Gi", "0Gi", "5", "5GB")),
        ):
            with self.subTest(said, values=values):
                self.assertIn(said, self.refused(values).replace("(root): ", ""))

    def test_what_pools_hold_is_of_the_type_that_templates_read(self):
        for path, value, said in (
            (("name",), 12, "name: Invalid type. Expected: string, given: integer"),
            (("models",), [1.10], "models.0: Invalid type. Expected: string, given: number"),
            (("models",), [True], "models.0: Invalid type. Expected: string, given: boolean"),
            (("clusters",), "llm", "clusters: Invalid type. Expected: array, given: string"),
            (("discovery",), None, "discovery: Invalid type. Expected: object, given: null"),
            (("discovery", "kubernetes"), None, "discovery.kubernetes: Invalid type. Expected: object, given: null"),
            (("discovery", "kubernetes"), "foo", "discovery.kubernetes: Invalid type. Expected: object, given: string"),
            (("discovery", "kubernetes", "namespace"), 12, "discovery.kubernetes.namespace: Invalid type"),
        ):
            with self.subTest(path=path, value=value):
                self.assertIn("config.pools.0." + said, self.refused(with_one(("config", "pools", 0, *path), value)))

    def test_a_null_takes_a_default_away_or_is_named(self):
        """`--set storage=null`: never an error that is the template's own, nor objects with a hole."""
        whole = {(d["kind"], d["metadata"]["name"]) for d in chart.rendered(with_example(serviceMonitor={"enabled": True}))}
        may_go = {("serviceMonitor",): "ServiceMonitor", ("serviceMonitor", "enabled"): "ServiceMonitor"}
        for path in paths(yaml.safe_load((chart.CHART / "values.yaml").read_text())):
            with self.subTest(path=path):
                values = with_one(path, None)
                if path[0] != "serviceMonitor":
                    values["serviceMonitor"] = {"enabled": True}
                elif path not in may_go:
                    values["serviceMonitor"]["enabled"] = True
                out = chart.run("template", "prefix-picker", str(chart.CHART), "--namespace", "inference", values=values)
                if out.returncode:
                    self.assertRegex(out.stderr, named(path))
                else:
                    made = {(d["kind"], d["metadata"]["name"]) for d in yaml.safe_load_all(out.stdout) if d}
                    self.assertFalse(any(map(has_null, yaml.safe_load_all(out.stdout))))
                    self.assertEqual({kind for kind, _ in whole - made}, {may_go[path]} if path in may_go else set())

    def test_a_release_s_name_that_kubernetes_refuses_in_a_service_s_is_refused(self):
        for release in ("my.release", "2nd"):
            with self.subTest(release):
                said = self.refused(chart.EXAMPLE, release)
                self.assertIn(f"the release's name: {release} is none that a Service may have", said)
                self.assertIn("choose another", said)

    def test_names_that_yaml_would_take_for_something_else_stay_names(self):
        values = with_one(("config", "pools", 0, "discovery", "kubernetes", "namespace"), "123")
        made = chart.rendered(values, release="true", namespace="456")
        for document in made:
            self.assertIn(document["metadata"]["namespace"], ("123", "456"))
            self.assertEqual(document["metadata"].get("labels", {})["app.kubernetes.io/instance"], "true")
        subject = chart.one(made, "RoleBinding", "true-prefix-picker", "123")["subjects"][0]
        self.assertEqual(subject["namespace"], "456")

    def test_a_changed_configuration_restarts_pods_and_a_changed_token_does_not(self):
        def template(values):
            return chart.one(chart.rendered(values), "StatefulSet")["spec"]["template"]
        first = chart.VALUES["everything"]
        config, tokens = copy.deepcopy(first), copy.deepcopy(first)
        config["config"]["pools"][0]["memory_budget_bytes"] += 1
        tokens["secret"]["values"]["gateway-token"] += "-new"
        self.assertNotEqual(template(first), template(config))
        self.assertEqual(template(first), template(tokens))

    def test_every_value_arrives(self):
        values = chart.VALUES["everything"]
        made = chart.rendered(values)
        stateful = chart.one(made, "StatefulSet")["spec"]
        pod, (claim,) = stateful["template"]["spec"], stateful["volumeClaimTemplates"]
        (container,) = pod["containers"]
        self.assertEqual(container["image"], "registry.example/prefix-picker@sha256:" + 64 * "a")
        self.assertEqual(stateful["replicas"], 3)
        for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
            self.assertEqual(pod[name], values[name])
        for name, where in (("env", container), ("volumeMounts", container), ("volumes", pod)):
            self.assertEqual(where[name][-1], values[name][0])
        self.assertEqual(claim["spec"]["storageClassName"], "fast")
        self.assertEqual(claim["spec"]["resources"], {"requests": {"storage": "20Gi"}})
        self.assertEqual(chart.one(made, "Secret")["stringData"], chart.TOKENS)
        monitor = chart.one(made, "ServiceMonitor")
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")
        self.assertEqual(monitor["spec"]["endpoints"][0]["interval"], "30s")
        config = yaml.safe_load(chart.configuration(made))
        self.assertEqual(config["pools"], values["config"]["pools"])
        # Given beside the defaults, not in place of them.
        self.assertEqual((config["log_format"], config["listen"]), ("text", "[::]:9400"))

    def test_a_default_of_the_configuration_can_be_taken_away(self):
        config = {**chart.EXAMPLE["config"], "token_files": None, "admin_token_files": None, "fleet_secret_file": None}
        secret = {"values": {"engines-key": chart.TOKENS["admin-token"]}}
        written = yaml.safe_load(chart.configuration(chart.rendered(with_example(config=config, secret=secret))))
        self.assertEqual(sorted(written), ["data_dir", "listen", "log_format", "pools"])

    def test_rights_and_ways_to_every_namespace_that_discovery_reads(self):
        made = chart.rendered(chart.VALUES["everything"])
        for kind in ("Role", "RoleBinding"):
            self.assertEqual(sorted(d["metadata"]["namespace"] for d in made if d["kind"] == kind), ["inference", "other"])
        (subject,) = chart.one(made, "RoleBinding", namespace="other")["subjects"]
        self.assertEqual(subject["namespace"], "inference")
        policy = chart.one(made, "NetworkPolicy")["spec"]
        of = lambda name: {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
        self.assertEqual(policy["egress"][0]["to"], [{"podSelector": {}}, of("inference"), of("other")])
        self.assertEqual(policy["ingress"][0]["from"], [{"podSelector": {}}])

    def test_what_is_switched_off_is_not_there(self):
        made = chart.rendered(with_example(replicas=1, networkPolicy={"enabled": False}))
        absent = {"PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "Secret"}
        self.assertFalse(absent & {d["kind"] for d in made})

    def test_two_releases_in_one_namespace_do_not_meet(self):
        one, other = (chart.rendered(chart.EXAMPLE, release=name) for name in ("prefix-picker", "second"))
        self.assertFalse(by_name(one).keys() & by_name(other).keys())
        selects = lambda made, name: chart.one(made, "Service", name)["spec"]["selector"]
        labels = lambda made, name: chart.one(made, "StatefulSet", name)["spec"]["template"]["metadata"]["labels"]
        for made, name in ((one, "prefix-picker"), (other, "second-prefix-picker")):
            self.assertEqual(selects(made, name), labels(made, name))
        self.assertNotEqual(labels(one, "prefix-picker"), labels(other, "second-prefix-picker"))
        # A StatefulSet's pods bear its name and a hash of 10 in a label, which has 63.
        names = {d["metadata"]["name"] for d in chart.rendered(chart.EXAMPLE, release=53 * "a")}
        self.assertLessEqual(max(map(len, names)), 52)


if __name__ == "__main__":
    unittest.main(verbosity=2)
