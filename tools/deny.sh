#!/bin/bash
# cargo-deny by deny.toml. usage: deny.sh VERSION
# The advisory database is a git repository; where it cannot be reached the rest is still
# checked and that is said.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(tools/cargo-tool.sh cargo-deny "$1")
"$bin/cargo-deny" check bans licenses sources
if timeout 120 "$bin/cargo-deny" fetch db >/dev/null 2>&1; then
  "$bin/cargo-deny" check --disable-fetch advisories
else
  echo "NOTE: the advisory database could not be fetched; advisories were NOT checked" >&2
fi
