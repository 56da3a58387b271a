#!/usr/bin/env python3
"""Prints the bill of materials (CycloneDX 1.5, JSON) of a package of this workspace: every crate that is in
what is shipped, with its version, licence and checksum, and who needs whom; and Rust's standard library.

usage: sbom.py PACKAGE TARGET [TARGET...]      SOURCE_DATE_EPOCH: its date

By `cargo tree` (which crates, with the features as built) and `cargo metadata` (what they are). Build scripts
and procedural macros run when building, and are not in.
"""

import json
import os
import subprocess
import sys
import tomllib
from datetime import datetime, timezone


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], check=True, capture_output=True, text=True).stdout


def shipped(package, target):
    """(name, version) of every crate in the package as built for the target."""
    tree = cargo("tree", "--locked", "-p", package, "-e", "normal,no-proc-macro", "--target", target, "--prefix", "none",
                 "--no-dedupe", "-f", "{p}")
    lines = {line.split(" (")[0] for line in tree.splitlines() if line}
    return {tuple(line.split(" v", 1)) for line in lines}


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    key = (package["name"], package["version"])
    out = {"type": "library", "bom-ref": purl(package), "name": key[0], "version": key[1], "purl": purl(package)}
    if package.get("license"):
        # Cargo's older way to write OR.
        out["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if key in checksums:
        out["hashes"] = [{"alg": "SHA-256", "content": checksums[key]}]
    if package.get("repository"):
        out["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return out


def standard_library():
    """What the compiler brings. Its own crates (gimli, miniz_oxide and others) are fixed by its version, and not listed."""
    compiler = subprocess.run([os.environ.get("RUSTC", "rustc"), "--version"], check=True, capture_output=True, text=True)
    version = compiler.stdout.split()[1]
    return {
        "type": "library",
        "bom-ref": f"rust-std@{version}",
        "name": "rust-std",
        "version": version,
        "description": "Rust's standard library with the crates in it",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
        # By which advisories name it.
        "cpe": f"cpe:2.3:a:rust-lang:rust:{version}:*:*:*:*:*:*:*",
        "purl": f"pkg:github/rust-lang/rust@{version}",
        "externalReferences": [{"type": "vcs", "url": "https://github.com/rust-lang/rust"}],
    }


def main():
    name, targets = sys.argv[1], sys.argv[2:]
    wanted = set().union(*(shipped(name, target) for target in targets))
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1"))
    with open("Cargo.lock", "rb") as lock:
        locked = tomllib.load(lock)["package"]
    checksums = {(one["name"], one["version"]): one["checksum"] for one in locked if "checksum" in one}
    packages = {one["id"]: one for one in metadata["packages"] if (one["name"], one["version"]) in wanted}
    missing = wanted - {(one["name"], one["version"]) for one in packages.values()}
    if missing:
        sys.exit(f"cargo metadata does not know {sorted(missing)}")
    by_purl = sorted(packages.values(), key=purl)
    (root,) = [one for one in by_purl if one["name"] == name]
    needs = []
    for node in metadata["resolve"]["nodes"]:
        if node["id"] in packages:
            kinds = ((dep["pkg"], {kind["kind"] for kind in dep["dep_kinds"]}) for dep in node["deps"])
            on = sorted({purl(packages[id]) for id, kind in kinds if None in kind and id in packages})
            needs.append({"ref": purl(packages[node["id"]]), "dependsOn": on})
    std = standard_library()
    for one in needs:
        one["dependsOn"].append(std["bom-ref"])
    needs.append({"ref": std["bom-ref"], "dependsOn": []})
    date = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {**component(root, checksums), "type": "application"},
            "properties": [{"name": "cargo:target", "value": target} for target in targets],
        },
        "components": [*(component(one, checksums) for one in by_purl if one is not root), std],
        "dependencies": sorted(needs, key=lambda one: one["ref"]),
    }
    json.dump(bom, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
