#!/usr/bin/env python3
"""Writes the release's images as OCI layouts in tar files, without a container engine.

usage: oci.py OUT --version V --created EPOCH [--revision R] control-plane amd64=FILE arm64=FILE
       oci.py OUT --version V --created EPOCH [--revision R] filter FILE.wasm

The same input gives the same bytes: nothing of the clock, of users or of the order of folders gets in (layers
are compressed by Python's zlib, whose output may differ between its versions). Prints the image's digest.
OUT can be copied to a registry by `skopeo copy --all oci-archive:OUT ...`.

Formats: opencontainers/image-spec 1.1. The filter's is the "compat" form of the Wasm image specification (one
tar+gzip layer with plugin.wasm), which Istio and Envoy Gateway fetch, and which every registry takes.
"""

import argparse
import gzip
import hashlib
import io
import json
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# As in distroless images; nobody has it elsewhere.
USER = 65532
STATE = "var/lib/prefix-picker"


def tar(entries, epoch):
    """A tar file of (path, mode, owner, content); content None makes a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, mode, owner, content in entries:
            info = tarfile.TarInfo(path)
            info.mode, info.mtime, info.uid, info.gid = mode, epoch, owner, owner
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def dump(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


class Layout:
    """Blobs by digest, and what index.json lists."""

    def __init__(self, arguments):
        self.epoch = arguments.created
        self.created = datetime.fromtimestamp(self.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.version = arguments.version
        self.blobs = {}
        self.labels = {
            "org.opencontainers.image.created": self.created,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": self.version,
        }
        if arguments.revision:
            self.labels["org.opencontainers.image.revision"] = arguments.revision

    def blob(self, content, media_type, **more):
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    def image(self, title, architecture, entries, run):
        """The descriptor of an image of one layer."""
        labels = {**self.labels, "org.opencontainers.image.title": title}
        layer = tar(entries, self.epoch)
        config = {
            "architecture": architecture,
            "os": "linux",
            "created": self.created,
            "config": {**run, "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": self.created, "created_by": "tools/release/oci.py"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(dump(config), CONFIG),
            "layers": [self.blob(gzip.compress(layer, 9, mtime=0), LAYER)],
            "annotations": labels,
        }
        return self.blob(dump(manifest), MANIFEST)

    def write(self, path, descriptor):
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": self.version}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor]}
        entries = [("blobs", 0o755, 0, None), ("blobs/sha256", 0o755, 0, None)]
        entries += [(f"blobs/sha256/{digest}", 0o644, 0, blob) for digest, blob in sorted(self.blobs.items())]
        entries += [("index.json", 0o644, 0, dump(index)), ("oci-layout", 0o644, 0, dump({"imageLayoutVersion": "1.0.0"}))]
        Path(path).write_bytes(tar(entries, self.epoch))
        return descriptor["digest"]


def control_plane(layout, binaries):
    """One image for each architecture, behind an index. No shell, and no certificates: those of public
    authorities are in the binary, that of a Kubernetes API server is mounted."""
    images = []
    for given in binaries:
        architecture, path = given.split("=", 1)
        entries = [
            ("etc", 0o755, 0, None),
            ("etc/passwd", 0o644, 0, f"nonroot:x:{USER}:{USER}::/{STATE}:/sbin/nologin\n".encode()),
            ("etc/group", 0o644, 0, f"nonroot:x:{USER}:\n".encode()),
            ("usr", 0o755, 0, None),
            ("usr/local", 0o755, 0, None),
            ("usr/local/bin", 0o755, 0, None),
            ("usr/local/bin/prefix-picker", 0o755, 0, Path(path).read_bytes()),
            ("var", 0o755, 0, None),
            ("var/lib", 0o755, 0, None),
            (STATE, 0o750, USER, None),
        ]
        run = {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/local/bin/prefix-picker"],
            "Cmd": ["serve", "--config", "/etc/prefix-picker/prefix-picker.yaml"],
            "Env": ["PATH=/usr/local/bin", f"HF_HOME=/{STATE}/hub"],
            "WorkingDir": f"/{STATE}",
            "ExposedPorts": {"9400/tcp": {}},
        }
        image = layout.image("prefix-picker", architecture, entries, run)
        images.append({**image, "platform": {"architecture": architecture, "os": "linux"}})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": images, "annotations": layout.labels}
    return layout.blob(dump(index), INDEX)


def wasm(layout, path):
    """A single image, no index: those who fetch it ask for any platform, and read one layer."""
    module = Path(path).read_bytes()
    if module[:4] != b"\0asm":
        sys.exit(f"{path}: not a WebAssembly module")
    return layout.image("prefix-picker-filter", "amd64", [("plugin.wasm", 0o644, 0, module)], {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--version", required=True)
    parser.add_argument("--created", required=True, type=int, help="seconds since 1970")
    parser.add_argument("--revision", default="")
    parser.add_argument("kind", choices=["control-plane", "filter"])
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    layout = Layout(arguments)
    if arguments.kind == "filter":
        image = wasm(layout, arguments.files[0])
    else:
        image = control_plane(layout, arguments.files)
    print(layout.write(arguments.out, image))


if __name__ == "__main__":
    main()
