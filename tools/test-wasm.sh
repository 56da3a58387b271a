#!/bin/bash
# Runs core's tests as wasm, twice: on wasm32-unknown-unknown under node (wasm-bindgen-test) and
# on wasm32-wasip1 under node:wasi.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v node >/dev/null || { echo "test-wasm needs node (20 or newer) on PATH" >&2; exit 1; }
tools/target.sh wasm32-unknown-unknown
tools/target.sh wasm32-wasip1
# The runner must be of the very version of wasm-bindgen in the lock file.
version=$(grep -A1 '^name = "wasm-bindgen"$' Cargo.lock | sed -n 's/^version = "\(.*\)"/\1/p')
bin=$(tools/cargo-tool.sh wasm-bindgen-cli "$version")
echo "core on wasm32-wasip1"
# Without the flag node 20 and 22 crash on exit: their fast calls into node:wasi.
CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings --no-turbo-fast-api-calls $PWD/tools/wasi-run.mjs" \
  cargo test -p prefix-picker-core --target wasm32-wasip1
echo "core on wasm32-unknown-unknown"
CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER="$bin/wasm-bindgen-test-runner" \
  cargo test -p prefix-picker-core --target wasm32-unknown-unknown
