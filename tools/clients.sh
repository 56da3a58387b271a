#!/bin/bash
# Prints the folder of programs of a Python environment that tests/clients needs, made in .tools/ the first
# time. usage: clients.sh clients|litellm      Two, since LiteLLM pins an older OpenAI client.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
pins=$root/tests/clients/requirements-$1.txt
venv=$root/.tools/$1-$(sha256sum "$pins" | cut -c1-12)
if [ ! -e "$venv/complete" ]; then
  echo "fetching the packages of $pins into $venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --no-compile --no-deps -r "$pins" >&2
  touch "$venv/complete"
fi
echo "$venv/bin"
