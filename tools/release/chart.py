#!/usr/bin/env python3
"""usage: chart.py OUT --created EPOCH

Packs the Helm chart, as `helm package` does, but so that the same input gives the same bytes: in a fixed order,
with no date but EPOCH (seconds since 1970).
"""

import argparse
import gzip
from pathlib import Path

import oci

CHART = Path(__file__).resolve().parents[2] / "envoy/helm"
# Not all of the folder: values of one's own may lie there, with tokens.
FILES = ("Chart.yaml", "example.yaml", "templates/*", "values.schema.json", "values.yaml")


def packed(epoch):
    files = [file for pattern in FILES for file in sorted(CHART.glob(pattern))]
    entries = [(f"prefix-picker/{f.relative_to(CHART)}", 0o644, 0, f.read_bytes()) for f in files]
    return gzip.compress(oci.tar(entries, epoch), 9, mtime=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--created", required=True, type=int)
    arguments = parser.parse_args()
    arguments.out.write_bytes(packed(arguments.created))


if __name__ == "__main__":
    main()
