#!/bin/bash
# Prints the path of a Python that has what tests/manifests needs: the one on PATH, if it has PyYAML, else one in a
# venv under .tools/. usage: python.sh [--kubernetes] (with the schemas of Kubernetes' own kinds; never that on PATH)
set -euo pipefail
yaml=6.0.4 kubernetes=1.37.0
venv=$(cd "$(dirname "$0")/.." && pwd)/.tools/python-$yaml-$kubernetes
if [ "${1:-}" != --kubernetes ] && python3 -c 'import yaml' 2>/dev/null; then command -v python3; exit; fi
if [ ! -e "$venv/complete" ]; then
  echo "installing PyYAML $yaml and kubernetes-validate $kubernetes into $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install -q --disable-pip-version-check "PyYAML==$yaml" "kubernetes-validate==$kubernetes" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python"
