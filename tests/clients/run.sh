#!/bin/bash
# `make test-clients`: what people have in front of vLLM, in front of Envoy with the filter: the OpenAI and the
# Anthropic client, and the LiteLLM proxy. Where PyPI cannot be reached this says so and skips.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! python=$(tools/clients.sh clients) || ! litellm=$(tools/clients.sh litellm); then
  echo "SKIPPED: the clients' packages could not be fetched from PyPI" >&2
  exit 0
fi
ENVOY=$(tools/envoy.sh)
export ENVOY LITELLM=$litellm/litellm
mkdir -p .run
exec "$python/python" -m unittest discover -s tests/clients -v "$@"
