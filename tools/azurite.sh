#!/usr/bin/env bash
# Installs Azurite, Microsoft's storage emulator, into .tools/azurite, in the
# versions that the lock file in tools/azurite names. It does nothing where
# that was done before: the lock file is copied last, so that an installation
# that was cut off is not taken for a whole one.
set -euo pipefail
cd "$(dirname "$0")/.."

target=.tools/azurite
main=$target/node_modules/azurite/dist/src/azurite.js
lock=tools/azurite/package-lock.json

if [ -f "$main" ] && cmp -s "$lock" "$target/installed-lock.json"; then
  exit 0
fi
if ! command -v npm >/dev/null; then
  echo "azurite not installed: it needs node and npm, and npm is not in PATH" >&2
  [ "${CI:-}" != true ]
  exit
fi

echo "installing azurite into $target" >&2
mkdir -p "$target"
rm -f "$target/installed-lock.json"
cp tools/azurite/package.json "$lock" "$target/"
npm ci --prefix "$target" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
[ -f "$main" ] || { echo "npm ci succeeded, and yet there is no $main" >&2; exit 1; }
cp "$lock" "$target/installed-lock.json"
