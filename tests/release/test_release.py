"""What `make release` writes, made of any files: layouts read again independently, the same bytes twice, and
other people's tools where they are installed.

RELEASE=FOLDER checks a finished release instead, its binaries too.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the image indexes of both images call the two architectures, and what ELF files do.
MACHINES = {"amd64": 62, "arm64": 183}


def elf(machine):
    """The beginning of a program for a machine; enough for what is looked at here."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + machine.to_bytes(2, "little") + bytes(300_000)


def release(folder, epoch):
    """A release of stand-ins for what takes long to build."""
    made = Path(folder) / "built"
    made.mkdir()
    for architecture, machine in MACHINES.items():
        (made / f"prefix-picker-linux-{architecture}").write_bytes(elf(machine))
    (made / "prefix-picker-filter.wasm").write_bytes(b"\0asm\x01\0\0\0" + bytes(range(256)) * 1000)
    out = Path(folder) / "dist"
    environment = {**os.environ, "BIN_DIR": str(made), "OUT": str(out), "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(["tools/release/release.sh"], cwd=ROOT, check=True, env=environment, stdout=subprocess.DEVNULL)
    return out


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Blobs:
    """An image layout in a tar file, every reference checked as it is followed."""

    def __init__(self, path):
        with tarfile.open(path) as archive:
            members = archive.getmembers()
            self.files = {one.name: archive.extractfile(one).read() for one in members if one.isfile()}
        self.used = set()
        assert json.loads(self.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
        (self.root,) = json.loads(self.files["index.json"])["manifests"]

    def follow(self, descriptor):
        algorithm, digest = descriptor["digest"].split(":")
        assert algorithm == "sha256"
        content = self.files[f"blobs/sha256/{digest}"]
        assert sha256(content) == digest and len(content) == descriptor["size"], descriptor
        self.used.add(f"blobs/sha256/{digest}")
        return content

    def json(self, descriptor):
        value = json.loads(self.follow(descriptor))
        assert value.get("mediaType", descriptor["mediaType"]) == descriptor["mediaType"], value
        return value

    def image(self, descriptor):
        """The configuration, and the entries of the one layer with their contents."""
        manifest = self.json(descriptor)
        config = json.loads(self.follow(manifest["config"]))
        (layer,) = manifest["layers"]
        assert layer["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip", layer
        unpacked = gzip.decompress(self.follow(layer))
        assert config["rootfs"]["diff_ids"] == [f"sha256:{sha256(unpacked)}"]
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
            entries = {one.name: (one, archive.extractfile(one).read() if one.isfile() else None) for one in archive}
        return config, entries


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        given = os.environ.get("RELEASE")
        cls.real = bool(given)
        cls.out = Path(given).resolve() if given else release(cls.folder, 1_700_000_000)
        cls.version = subprocess.run(
            ["sed", "-n", 's/^version = "\\(.*\\)"/\\1/p;T;q', ROOT / "Cargo.toml"], capture_output=True, text=True, check=True
        ).stdout.strip()

    def test_every_file_is_in_the_checksums(self):
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=self.out, check=True)
        listed = {line.split("  ")[1] for line in (self.out / "SHA256SUMS").read_text().splitlines()}
        self.assertEqual(listed | {"SHA256SUMS"}, {one.name for one in self.out.iterdir()})

    def test_the_control_planes_image(self):
        layout = Blobs(self.out / "prefix-picker.oci.tar")
        self.assertEqual(layout.root["annotations"], {"org.opencontainers.image.ref.name": self.version})
        images = layout.json(layout.root)["manifests"]
        self.assertEqual([one["platform"] for one in images], [{"architecture": a, "os": "linux"} for a in MACHINES])
        for image, (architecture, machine) in zip(images, MACHINES.items()):
            config, entries = layout.image(image)
            self.assertEqual((config["architecture"], config["os"]), (architecture, "linux"))
            run = config["config"]
            self.assertEqual(run["User"], "65532:65532")
            binary, content = entries[run["Entrypoint"][0].lstrip("/")]
            self.assertEqual(stat.S_IMODE(binary.mode), 0o755)
            self.assertEqual(content, (self.out / f"prefix-picker-linux-{architecture}").read_bytes())
            self.assertEqual((content[:4], int.from_bytes(content[18:20], "little")), (b"\x7fELF", machine))
            state, _ = entries[run["WorkingDir"].lstrip("/")]
            self.assertEqual((state.uid, state.gid), (65532, 65532))
            # Every folder is there before what is in it, and nothing is writable for others.
            for name, (entry, _) in entries.items():
                parent = str(Path(name).parent)
                self.assertIn(parent, [*entries, "."])
                self.assertEqual(entry.mode & 0o022, 0, name)
        self.assertEqual(layout.used, {name for name in layout.files if name.startswith("blobs/")}, "all are referred to")

    def test_the_filters_image_is_what_gateways_fetch(self):
        """Istio's and Envoy Gateway's fetchers: a manifest of the OCI type, no index; the last layer is
        tar+gzip and holds plugin.wasm."""
        layout = Blobs(self.out / "prefix-picker-filter.oci.tar")
        self.assertEqual(layout.root["mediaType"], "application/vnd.oci.image.manifest.v1+json")
        _, entries = layout.image(layout.root)
        self.assertEqual(list(entries), ["plugin.wasm"])
        self.assertEqual(entries["plugin.wasm"][1], (self.out / "prefix-picker-filter.wasm").read_bytes())
        self.assertEqual(entries["plugin.wasm"][1][:4], b"\0asm")
        self.assertEqual(layout.used, {name for name in layout.files if name.startswith("blobs/")})

    def test_helm_takes_the_chart(self):
        """That it renders what the folder does."""
        packed = self.out / "prefix-picker-chart.tgz"
        with tarfile.open(packed) as archive:
            names = {one.name.removeprefix("prefix-picker/") for one in archive}
        self.assertEqual({name for name in names if "/" not in name}, {"Chart.yaml", "example.yaml", "values.schema.json", "values.yaml"})
        self.assertIn("templates/NOTES.txt", names)
        helm = subprocess.run([ROOT / "tools/helm.sh"], capture_output=True, text=True)
        if helm.returncode:
            self.skipTest("Helm cannot be installed: " + helm.stderr.strip().splitlines()[-1])
        rendered = [
            self.run_tool(helm.stdout.strip(), "template", "prefix-picker", str(chart), "-f", str(ROOT / "envoy/helm/example.yaml"))
            for chart in (packed, ROOT / "envoy/helm")
        ]
        self.assertIn(f"registry.example/prefix-picker:{self.version}".encode(), rendered[0])
        self.assertEqual(rendered[0], rendered[1])

    def test_the_digests_to_pin_are_those_of_the_images(self):
        told = dict(line.split("@") for line in (self.out / "image-digests.txt").read_text().splitlines())
        for name in ("prefix-picker", "prefix-picker-filter"):
            self.assertEqual(told[f"{name}:{self.version}"], Blobs(self.out / f"{name}.oci.tar").root["digest"])

    def test_the_same_input_gives_the_same_bytes(self):
        if self.real:
            self.skipTest("a finished release is checked")
        with tempfile.TemporaryDirectory() as folder:
            again = release(folder, 1_700_000_000)
            for one in sorted(self.out.iterdir()):
                self.assertEqual(sha256(one.read_bytes()), sha256((again / one.name).read_bytes()), one.name)

    def test_the_bills_of_materials_name_what_is_linked(self):
        for name, in_it, not_in_it in (
            ("prefix-picker", {"tokio", "axum", "zeromq", "prefix-picker-core"}, {"proxy-wasm", "proptest", "engine-sim"}),
            ("prefix-picker-filter", {"proxy-wasm", "prefix-picker-core", "minijinja"}, {"tokio", "axum", "serde_derive"}),
        ):
            bom = json.loads((self.out / f"{name}.cdx.json").read_text())
            self.assertEqual((bom["bomFormat"], bom["specVersion"]), ("CycloneDX", "1.5"))
            self.assertEqual(bom["metadata"]["component"]["name"], name)
            self.assertEqual(bom["metadata"]["component"]["version"], self.version)
            names = {one["name"] for one in bom["components"]}
            self.assertLessEqual(in_it, names)
            self.assertFalse(names & not_in_it)
            # The compiler brings it, with crates of its own in it; advisories count by its version.
            (std,) = [one for one in bom["components"] if one["name"] == "rust-std"]
            compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout
            self.assertEqual(std["version"], compiler.split()[1])
            self.assertIn(f":rust:{std['version']}:", std["cpe"])
            refs = {one["bom-ref"] for one in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
            self.assertEqual(len(refs), len(bom["components"]) + 1, "no reference twice")
            self.assertEqual({one["ref"] for one in bom["dependencies"]}, refs)
            self.assertLessEqual({on for one in bom["dependencies"] for on in one["dependsOn"]}, refs)
            for one in bom["components"]:
                self.assertTrue(one["licenses"], one)
                if one is not std and not one["name"].startswith("prefix-picker"):
                    self.assertEqual(len(one["hashes"][0]["content"]), 64, one)

    def test_skopeo_and_umoci_take_the_images(self):
        """What a registry would get, and what a container engine would unpack."""
        if not shutil.which("skopeo"):
            self.skipTest("skopeo is not installed")
        with tempfile.TemporaryDirectory() as folder:
            for name in ("prefix-picker", "prefix-picker-filter"):
                source = f"oci-archive:{self.out / name}.oci.tar:{self.version}"
                copied = f"{folder}/{name}"
                self.run_tool("skopeo", "copy", "--all", "-q", source, f"oci:{copied}:copy")
                raw = self.run_tool("skopeo", "inspect", "--raw", f"oci:{copied}:copy")
                self.assertEqual("sha256:" + sha256(raw), Blobs(self.out / f"{name}.oci.tar").root["digest"])
            config = json.loads(self.run_tool("skopeo", "--override-arch", "arm64", "--override-os", "linux", "inspect",
                                              "--config", f"oci:{folder}/prefix-picker:copy"))
            self.assertEqual(config["architecture"], "arm64")
            if not shutil.which("umoci"):
                self.skipTest("umoci is not installed")
            self.run_tool("umoci", "raw", "unpack", "--rootless", "--image", f"{folder}/prefix-picker-filter:copy",
                          f"{folder}/unpacked")
            unpacked = (Path(folder) / "unpacked/plugin.wasm").read_bytes()
            self.assertEqual(unpacked, (self.out / "prefix-picker-filter.wasm").read_bytes())

    def test_the_containerfile_makes_the_same_image(self):
        if not shutil.which("buildah"):
            self.skipTest("buildah is not installed")
        with tempfile.TemporaryDirectory() as folder:
            # The files that it copies, in a context of their own.
            shutil.copytree(ROOT / "tools/release/state", f"{folder}/tools/release/state")
            (Path(folder) / "dist").mkdir()
            shutil.copy(self.out / "prefix-picker-linux-arm64", f"{folder}/dist/")
            store = ["buildah", "--storage-driver", "vfs", "--root", f"{folder}/root", "--runroot", f"{folder}/run"]
            self.run_tool(*store, "bud", "-q", "--isolation", "chroot", "--platform", "linux/arm64", "-t", "made",
                          "-f", str(ROOT / "Containerfile"), folder)
            self.run_tool(*store, "push", "-q", "made", f"oci:{folder}/made:made")
            made = json.loads(self.run_tool("skopeo", "inspect", "--config", f"oci:{folder}/made:made"))
        layout = Blobs(self.out / "prefix-picker.oci.tar")
        ours, _ = layout.image(layout.json(layout.root)["manifests"][1])
        self.assertEqual(made["architecture"], ours["architecture"])
        for field in ("User", "Env", "Entrypoint", "Cmd", "WorkingDir", "ExposedPorts"):
            self.assertEqual(made["config"][field], ours["config"][field], field)

    def run_tool(self, *command):
        done = subprocess.run(command, capture_output=True)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stderr.decode()}")
        return done.stdout

    def test_the_binaries_run_and_need_no_library(self):
        if not self.real:
            self.skipTest("RELEASE names no finished release")
        for architecture, emulator in (("amd64", "qemu-x86_64-static"), ("arm64", "qemu-aarch64-static")):
            binary = str(self.out / f"prefix-picker-linux-{architecture}")
            here = os.uname().machine == {"amd64": "x86_64", "arm64": "aarch64"}[architecture]
            if not here and not shutil.which(emulator):
                self.skipTest(f"{emulator} is not installed")
            command = [binary] if here else [emulator, binary]
            self.assertIn(f"prefix-picker {self.version}", self.run_tool(*command, "--version").decode())
            subprocess.run([*command, "check", "--config", "envoy/prefix-picker.yaml"], cwd=ROOT, check=True)
            headers = self.run_tool("readelf", "--program-headers", "--wide", binary).decode()
            self.assertNotIn("INTERP", headers, "linked statically")


if __name__ == "__main__":
    unittest.main()
