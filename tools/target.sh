#!/bin/bash
# Makes sure that rustc can build for a target. usage: target.sh TARGET
set -euo pipefail
[ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] && exit 0
if ! command -v rustup >/dev/null; then
  echo "rustc cannot build for $1 and there is no rustup to add it: install that target's standard library" >&2
  exit 1
fi
rustup target add "$1"
