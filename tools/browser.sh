#!/bin/bash
# Prints what the page's test needs: Chromium's path, and the folder with playwright-core, which drives it.
# Fetches playwright-core into .tools/page once; it brings no browser of its own. Fails, and says why, where
# one of them is not to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
version=1.65.1
tools=.tools/page

command -v node >/dev/null || { echo "node is not installed" >&2; exit 1; }
browser=${CHROMIUM:-}
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  [ -n "$browser" ] || browser=$(command -v "$name" || true)
done
[ -n "$browser" ] || { echo "no Chromium: install the package chromium, or set CHROMIUM to its path" >&2; exit 1; }
if [ "$(cat "$tools/version" 2>/dev/null)" != "$version" ]; then
  rm -rf "$tools"
  mkdir -p "$tools"
  npm install --prefix "$tools" --no-audit --no-fund --silent "playwright-core@$version" >&2 ||
    { echo "playwright-core $version cannot be fetched from npm" >&2; exit 1; }
  echo "$version" >"$tools/version"
fi
echo "$browser"
echo "$PWD/$tools/node_modules/playwright-core"
