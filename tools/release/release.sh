#!/bin/bash
# `make release`: everything that is published, in dist/: static binaries, the filter, images, the chart,
# bills of materials, checksums. Needs no container engine and no root.
# BIN_DIR=FOLDER takes binaries from there instead of building them.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-dist}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
revision=$(git rev-parse HEAD 2>/dev/null || true)
if [ -n "$(git status --porcelain 2>/dev/null)" ]; then
  echo "NOTE: there are changes that are not committed; the images name no revision" >&2
  revision=
fi

rm -rf "$out"
mkdir -p "$out"
if [ -n "${BIN_DIR:-}" ]; then
  cp "$BIN_DIR"/prefix-picker-linux-{amd64,arm64} "$BIN_DIR/prefix-picker-filter.wasm" "$out/"
else
  tools/release/build.sh "$out"
fi

tools/release/sbom.py prefix-picker x86_64-unknown-linux-musl aarch64-unknown-linux-musl >"$out/prefix-picker.cdx.json"
tools/release/sbom.py prefix-picker-filter wasm32-wasip1 >"$out/prefix-picker-filter.cdx.json"

image() { # NAME ARGUMENTS...
  local name=$1 digest
  shift
  digest=$(tools/release/oci.py "$out/$name.oci.tar" --version "$version" --created "$SOURCE_DATE_EPOCH" \
    --revision "$revision" "$@")
  echo "$name:$version@$digest" >>"$out/image-digests.txt"
}
image prefix-picker control-plane "amd64=$out/prefix-picker-linux-amd64" "arm64=$out/prefix-picker-linux-arm64"
image prefix-picker-filter filter "$out/prefix-picker-filter.wasm"
tools/release/chart.py "$out/prefix-picker-chart.tgz" --created "$SOURCE_DATE_EPOCH"

(cd "$out" && sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
echo "version $version in $out/:"
(cd "$out" && ls -l | awk 'NR > 1 {printf "  %10d  %s\n", $5, $9}')
