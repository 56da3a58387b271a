#!/bin/bash
# Installs a command-line tool from the Rust crate registry into .tools/, once, and prints its folder.
# usage: cargo-tool.sh CRATE VERSION
# Not --locked (old lock files pin crates that no longer build), lightly optimised (it runs for seconds).
set -euo pipefail
crate=$1 version=$2
root=$(cd "$(dirname "$0")/.." && pwd)/.tools/$crate-$version
if [ ! -e "$root/.crates.toml" ]; then
  echo "installing $crate $version into $root" >&2
  env -u CARGO_BUILD_TARGET CARGO_TARGET_DIR="$root/build" CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false \
    cargo install --quiet --root "$root" --version "$version" "$crate" >&2
  rm -rf "$root/build"
fi
echo "$root/bin"
