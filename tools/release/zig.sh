#!/bin/bash
# Prints the folder with cargo-zigbuild and zig (pinned, from PyPI), which compile and link for musl on
# any host. They are installed into .tools/ the first time.
set -euo pipefail
zig=0.17.1 zigbuild=0.24.1
venv=$(cd "$(dirname "$0")/../.." && pwd)/.tools/zig-$zig-$zigbuild
if [ ! -x "$venv/bin/cargo-zigbuild" ]; then
  echo "fetching ziglang $zig and cargo-zigbuild $zigbuild into $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install -q --disable-pip-version-check "ziglang==$zig" "cargo-zigbuild==$zigbuild" >&2
fi
echo "$venv/bin"
