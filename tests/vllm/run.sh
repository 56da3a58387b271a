#!/bin/bash
# `make test-vllm`: real vLLM engines on CPU (two that generate, one that embeds), control plane and
# Envoy: our text against the engine's, for every interface, predictions against cached_tokens, and
# what doctor says of them.
set -euo pipefail
cd "$(dirname "$0")/../.."
vllm=.tools/vllm
tests/vllm/install.sh $vllm
mkdir -p .run/vllm
pids=()
trap 'for p in "${pids[@]}"; do kill -TERM -- -"$p" 2>/dev/null || true; done' EXIT

read -r -a p <<<"$(python3 -c 'import socket as s
held = [s.socket() for _ in range(9)]
[h.bind(("127.0.0.1", 0)) for h in held]
print(*[h.getsockname()[1] for h in held])')"
for i in 0 1 2; do
  # 255 usable blocks of 32 tokens: evictions from early on. The third engine embeds.
  BLOCKS=256 POOLING=$((i / 2)) setsid tests/vllm/serve.sh $vllm "${p[3 * i]}" "${p[3 * i + 1]}" "${p[3 * i + 2]}" \
    >".run/vllm/engine-$((i + 1)).log" 2>&1 </dev/null &
  pids+=($!)
done
echo "waiting for three vLLM engines (one to three minutes; logs in .run/vllm)"
for i in 0 1 2; do
  for _ in $(seq 600); do
    curl -fs -o /dev/null "http://127.0.0.1:${p[3 * i]}/health" && continue 2
    kill -0 "${pids[$i]}" 2>/dev/null || { tail -20 ".run/vllm/engine-$((i + 1)).log"; exit 1; }
    sleep 1
  done
  echo "engine $((i + 1)) is not ready after 10 minutes"; exit 1
done
export VLLM_PORTS="${p[0]},${p[1]},${p[2]} ${p[3]},${p[4]},${p[5]}"
export VLLM_EMBED_PORTS="${p[6]},${p[7]},${p[8]}"
ENVOY=$(tools/envoy.sh) cargo test -p prefix-picker-tests --test e2e -- ${CASE:-vllm_exact vllm_embeddings vllm vllm_doctor}
