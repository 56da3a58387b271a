# prefix-picker: bare `make` lists what there is. Everything fetched goes to .tools/, everything
# that runs leaves its logs in .run/; both are ignored by git.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export CARGO_TARGET_DIR := $(CURDIR)/target
# Real tokenizers that tests find (tools/tokenizers.sh fetches them).
export PREFIX_PICKER_TOKENIZERS ?= $(CURDIR)/.tools/tokenizers
WASM := target/wasm32-wasip1/wasm/prefix_picker_filter.wasm
CARGO_DENY := 0.20.2
CASE ?=
MODE ?= enforce

.PHONY: help build native wasm run mode traffic stop test test-walk test-native test-page tokenizers test-wasm test-filter test-manifests e2e e2e-short test-vllm soak-discovery lint lab bench clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

build: native wasm ## the control plane and the engine simulator (release), and the filter (wasm)

native:
	cargo build --release --bins -p prefix-picker -p engine-sim

wasm:
	@tools/target.sh wasm32-wasip1
	cargo build --profile wasm --target wasm32-wasip1 -p prefix-picker-filter
	@ls -l $(WASM) | awk '{print $$NF ": " $$5 " bytes"}'

run: build ## three simulated engines, the control plane and Envoy, in the background; prints a curl to try (MODE=shadow)
	@tools/run.sh start $(MODE)

mode: ## starts Envoy of `make run` anew with MODE=shadow, enforce or off
	@tools/run.sh mode $(MODE)

traffic: ## 12 conversations of 5 turns through what `make run` started
	@tools/traffic.py

stop: ## ends what `make run` started
	@tools/run.sh stop

test: test-native test-filter test-wasm test-manifests test-release e2e-short test-clients test-walk ## everything: native tests, the wasm tests, a short end-to-end run in real Envoy, manifests, clients, README's commands

test-native: tokenizers
	cargo test --no-fail-fast
	cargo test --test discovery -- --ignored heap

tokenizers: # real tokenizers for the tests, once; what cannot be fetched is said, and its tests skip
	@tools/tokenizers.sh

test-page: ## the control plane's page in a headless Chromium; screenshots go to .run/page/
	cargo test -p prefix-picker --test page

test-filter: # the filter's pure parts; its host calls only link as wasm
	cargo test -p prefix-picker-filter

test-wasm: ## core's tests as wasm: wasm32-unknown-unknown under node, wasm32-wasip1 under node:wasi
	@tools/test-wasm.sh

test-manifests: build ## manifests, dashboards and alerts: schemas, promtool, and what they say about Envoy in `envoy --mode validate`
	ENVOY=$$(tools/envoy.sh) WASM=$(WASM) PREFIX_PICKER=target/release/prefix-picker $$(tools/python.sh) -m unittest discover -v -s tests/manifests

e2e: build ## the whole end-to-end suite in real Envoy (CASE=name for one case; CASE=list lists them)
	ENVOY=$$(tools/envoy.sh) cargo test --test e2e -- $(CASE)

e2e-short: build
	ENVOY=$$(tools/envoy.sh) cargo test --test e2e -- --short

test-walk: build ## runs the commands of README.md, from the first to the last, and looks at what they print
	tests/walk.py

.PHONY: test-clients
test-clients: build ## the OpenAI and Anthropic clients and the LiteLLM proxy, from PyPI, in front of Envoy
	tests/clients/run.sh

.PHONY: release test-release
test-release: ## what `make release` writes, made of stand-ins for the binaries
	python3 -m unittest discover -s tests/release

soak-discovery: ## 200 pods that come and go once a second for five minutes: nothing may be left of those that are gone
	cargo test --test discovery -- --ignored --nocapture --test-threads 1

test-vllm: build ## the accuracy case on two real vLLM engines (installs 2.6 GB into .tools/vllm the first time)
	tests/vllm/run.sh

release: ## static binaries (x86-64, aarch64), the filter, images, bills of materials and checksums, in dist/
	tools/release/release.sh
	RELEASE=dist python3 -m unittest discover -s tests/release

lint: ## formatting, clippy with warnings denied (native and wasm), cargo-deny
	cargo fmt --all --check
	cargo clippy --all-targets -- -D warnings
	@tools/target.sh wasm32-wasip1
	cargo clippy -p prefix-picker-filter -p buffer-filter --target wasm32-wasip1 -- -D warnings
	@tools/deny.sh $(CARGO_DENY)

lab: ## simulates the picker against other policies over a grid of regimes; prints the table of docs/picking.md
	cargo run --profile lab -p prefix-picker-lab -- --seeds 10 --threads $$(nproc)

bench: build ## the filter's work, added latency and requests/s in real Envoy, and the index's rate
	cargo build --profile wasm --target wasm32-wasip1 -p buffer-filter
	cargo build --release --bins -p prefix-picker-tests
	ENVOY=$$(tools/envoy.sh) target/release/bench

clean: stop ## removes what was built (not .tools/, which is slow to fetch)
	cargo clean
