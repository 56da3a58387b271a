#!/usr/bin/env python3
"""The commands of docs/operations.md, "By Helm", and of the chart's README, run by kubectl and Helm against a stand-in
for an API server: what is there after each, and what an uninstallation leaves."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import chart
from api_server import ApiServer

NAMESPACE = "/api/v1/namespaces/inference"
SECRET = NAMESPACE + "/secrets/prefix-picker"


def commands(text):
    """Those of a text, in its order, without comments."""
    lines = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    "))
    lines = re.sub(r"\\\n|(?<=\|)\n", " ", lines)
    return [line.split(" #")[0].strip() for line in lines.splitlines()]


def section():
    text = (chart.ROOT / "docs/operations.md").read_text()
    return re.search(r"^### By Helm$(.*?)^### ", text, re.M | re.S)[1]


@unittest.skipUnless(shutil.which("kubectl"), "kubectl is not there")
class Commands(unittest.TestCase):
    @chart.needed
    def setUp(self):
        self.server = ApiServer()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "envoy").symlink_to(chart.ROOT / "envoy")
        (self.folder / "kubeconfig").write_text(self.server.kubeconfig())
        self.environment = {
            **os.environ,
            "PATH": f"{pathlib.Path(chart.helm()[0]).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "HOME": folder.name,
        }

    def run_one(self, command):
        self.before = dict(self.server.objects)
        out = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(out.returncode, 0, f"{command}\n{out.stdout}{out.stderr}")
        return out.stdout

    def changed(self):
        """What the last command made or made otherwise, but for Helm's own records."""
        after = self.server.objects
        return {path for path in after if after[path] != self.before.get(path) and "/sh.helm.release." not in path}

    def test_from_installation_to_uninstallation(self):
        *before, install, rollback, uninstall = commands(section())
        for command, program in ((install, "helm upgrade"), (rollback, "helm rollback"), (uninstall, "helm uninstall")):
            self.assertTrue(command.startswith(program), command)
        for command in before:
            self.run_one(command)
        self.assertEqual(set(self.server.objects), {NAMESPACE, SECRET})
        own = self.server.objects[SECRET]
        self.assertEqual(sorted(own["data"]), sorted(chart.TOKENS))

        notes = self.run_one(install)
        wanted = chart.rendered(chart.EXAMPLE)
        self.assertEqual(len(self.changed()), len(wanted))
        (stateful,) = [path for path in self.server.objects if "/statefulsets/" in path]
        self.assertIn("prefix-picker-0.prefix-picker.inference.svc.cluster.local:9400", notes)
        self.assertIn("prefix-picker-1.prefix-picker.inference.svc.cluster.local:9400", notes)
        self.tokens_command_is_true(notes)

        # Another configuration: nothing but it and the pods' template changes.
        first = self.server.objects[stateful]["spec"]
        values = self.folder / "values.yaml"
        values.write_text(values.read_text().replace("label_selector: app=vllm", "label_selector: app=engines"))
        self.run_one(install)
        restarted = {stateful, NAMESPACE + "/configmaps/prefix-picker"}
        self.assertEqual(self.changed(), restarted)
        self.assertNotEqual(self.server.objects[stateful]["spec"]["template"], first["template"])
        self.run_one(rollback)
        self.assertEqual(self.changed(), restarted)
        self.assertEqual(self.server.objects[stateful]["spec"], first)

        self.run_one(uninstall)
        self.assertEqual(self.server.objects, {NAMESPACE: self.server.objects[NAMESPACE], SECRET: own})

    def test_the_configuration_to_check(self):
        write, check = commands((chart.CHART / "README.md").read_text())
        self.run_one(commands(section())[0])
        self.run_one(write)
        written = (self.folder / check.split()[-1]).read_text()
        self.assertEqual(written, chart.configuration(chart.rendered(chart.EXAMPLE)))

    def tokens_command_is_true(self, notes):
        """What the notes say of the gateway's token, run as it stands there."""
        (command,) = [line.strip() for line in notes.splitlines() if "jsonpath" in line]
        self.assertRegex(self.run_one(command), r"^[0-9a-f]{64}$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
