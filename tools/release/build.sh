#!/bin/bash
# Builds what a release holds: the control plane as static musl binaries, and the filter.
# usage: build.sh FOLDER      writes prefix-picker-linux-{amd64,arm64} and prefix-picker-filter.wasm there
# The same sources, toolchain and lock file are to give the same bytes wherever this runs: paths of
# this machine are mapped away.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
bin=$(tools/release/zig.sh)
export PATH="$bin:$PATH"
mkdir -p "$out"

# The last map that fits counts. A registry's folder is named by a hash of the registry's address.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
maps="\"--remap-path-prefix=$cargo_home=/cargo\""
for registry in "$cargo_home"/registry/src/*/; do
  maps+=", \"--remap-path-prefix=${registry%/}=/registry\""
done
maps+=", \"--remap-path-prefix=$PWD=/prefix-picker\""

build() { # TARGET ARCHITECTURE
  tools/target.sh "$1"
  cargo zigbuild --locked --profile dist --target "$1" -p prefix-picker --bin prefix-picker \
    --config "target.$1.rustflags=[$maps]"
  install -m 755 "$target_dir/$1/dist/prefix-picker" "$out/prefix-picker-linux-$2"
}

for architecture in ${ARCHITECTURES:-amd64 arm64}; do
  case $architecture in
  amd64) build x86_64-unknown-linux-musl amd64 ;;
  arm64) build aarch64-unknown-linux-musl arm64 ;;
  *) echo "ARCHITECTURES: amd64 and arm64 are built, not $architecture" >&2; exit 2 ;;
  esac
done
tools/target.sh wasm32-wasip1
cargo build --locked --profile wasm --target wasm32-wasip1 -p prefix-picker-filter \
  --config "target.wasm32-wasip1.rustflags=[$maps]"
install -m 644 "$target_dir/wasm32-wasip1/wasm/prefix_picker_filter.wasm" "$out/prefix-picker-filter.wasm"
