"""The commands of docs/delivery.md, run against a registry (Debian's docker-registry), and the filter fetched
from there as gateways do."""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

from test_release import ROOT, release

DOC = ROOT / "docs/delivery.md"


def commands(word):
    """The document's commands that begin so, comments cut off."""
    lines = (line.strip() for line in DOC.read_text().splitlines() if line.startswith("    "))
    found = [re.sub(r"\s+#.*", "", line) for line in lines if line.startswith(word)]
    assert found, f"{DOC} has no command {word}"
    return found


class Registry(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for tool in ("skopeo", "docker-registry"):
            if not shutil.which(tool):
                raise unittest.SkipTest(f"{tool} is not installed")
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        given = os.environ.get("RELEASE")
        cls.out = Path(given).resolve() if given else release(cls.folder, 1_700_000_000)
        # Nobody else gets the port while it is bound; SO_REUSEADDR, set after that, lets the registry listen there.
        held = socket.socket()
        cls.addClassCleanup(held.close)
        held.bind(("", 0))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        cls.registry = f"127.0.0.1:{held.getsockname()[1]}"
        config = {"version": 0.1, "log": {"level": "error"}, "http": {"addr": cls.registry},
                  "storage": {"filesystem": {"rootdirectory": str(cls.folder / "registry")}}}
        (cls.folder / "registry.yml").write_text(json.dumps(config))
        process = subprocess.Popen(["docker-registry", "serve", cls.folder / "registry.yml"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.terminate)
        # Where skopeo looks for the user's settings: this registry speaks plain HTTP.
        (cls.folder / ".config/containers").mkdir(parents=True)
        (cls.folder / ".config/containers/registries.conf").write_text(f'[[registry]]\nlocation = "{cls.registry}"\ninsecure = true\n')
        told = (cls.out / "image-digests.txt").read_text().split()
        cls.digests = {line.split(":")[0]: line.split("@")[1] for line in told}
        cls.version = told[0].split(":")[1].split("@")[0]
        for _ in range(100):
            try:
                return urllib.request.urlopen(f"http://{cls.registry}/v2/", timeout=5).close()
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the registry does not answer")

    def sh(self, command):
        command = command.replace("REGISTRY", self.registry).replace("VERSION", self.version)
        environment = {**os.environ, "HOME": str(self.folder)}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.out, env=environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}")
        return done.stdout

    def get(self, path, accept):
        request = urllib.request.Request(f"http://{self.registry}/v2/{path}", headers={"accept": accept})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def test_the_documented_checks(self):
        for command in commands("sha256sum"):
            self.sh(command)
        for command in commands("skopeo inspect"):
            self.assertEqual("sha256:" + self.sh(command).split()[0], self.digests["prefix-picker-filter"])

    def test_images_are_pushed_and_the_filter_is_fetched(self):
        for command in commands("skopeo copy"):
            self.sh(command)
        oci = "application/vnd.oci.image."
        for name, kind in (("prefix-picker", "index"), ("prefix-picker-filter", "manifest")):
            by_tag = self.get(f"{name}/manifests/{self.version}", f"{oci}{kind}.v1+json")
            self.assertEqual("sha256:" + hashlib.sha256(by_tag).hexdigest(), self.digests[name], "as told")
            # Pinned: name@sha256:...
            self.assertEqual(by_tag, self.get(f"{name}/manifests/{self.digests[name]}", f"{oci}{kind}.v1+json"))
        layer = json.loads(by_tag)["layers"][-1]
        self.assertEqual(layer["mediaType"], f"{oci}layer.v1.tar+gzip")
        blob = self.get(f"prefix-picker-filter/blobs/{layer['digest']}", "*/*")
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob))) as archive:
            module = archive.extractfile("plugin.wasm").read()
        self.assertEqual(module, (self.out / "prefix-picker-filter.wasm").read_bytes())


if __name__ == "__main__":
    unittest.main()
