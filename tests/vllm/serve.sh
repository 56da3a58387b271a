#!/bin/bash
# One real vLLM engine on CPU with KV events, in the foreground.
# usage: serve.sh FOLDER PORT EVENTS_PORT REPLAY_PORT      (FOLDER as install.sh left it)
# BLOCK: tokens a block (the CPU backend takes multiples of 32), BLOCKS: how many, LEN: longest request, in tokens.
# POOLING=1: an engine for embeddings. --enable-scale-out: with its /render, which says what it makes of a body.
set -euo pipefail
root=$1 port=$2 events=$3 replay=$4
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_SERVER_DEV_MODE=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind CUDA_VISIBLE_DEVICES=
if [ "${POOLING:-0}" = 1 ]; then kind=(--runner pooling --convert embed); else kind=(--enable-scale-out --enable-auto-tool-choice --tool-call-parser hermes); fi
exec "$root/venv/bin/vllm" serve "$root/tiny-qwen3" --host 127.0.0.1 --port "$port" --served-model-name tiny-qwen3 \
  --max-model-len "${LEN:-4096}" --enforce-eager --block-size "${BLOCK:-32}" --max-num-seqs 32 \
  --num-gpu-blocks-override "${BLOCKS:-512}" --enable-prompt-tokens-details --enable-prefix-caching "${kind[@]}" \
  --kv-events-config "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:$events\",\"replay_endpoint\":\"tcp://127.0.0.1:$replay\",\"topic\":\"kv@127.0.0.1:$port@tiny-qwen3\"}"
