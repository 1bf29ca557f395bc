#!/usr/bin/env bash
# Installs packages of npm for tests: tools/npm.sh NAME FILE. NAME is a folder
# in tools/ with a lock file; the packages go into .tools/NAME, where FILE is
# one of their files. It does nothing where that was done before: the lock file
# is copied last, so that an installation that was cut off is not taken for a
# whole one.
set -euo pipefail
cd "$(dirname "$0")/.."

name=$1
target=.tools/$name
main=$target/node_modules/$2
lock=tools/$name/package-lock.json

if [ -f "$main" ] && cmp -s "$lock" "$target/installed-lock.json"; then
  exit 0
fi
if ! command -v npm >/dev/null; then
  echo "$name not installed: it needs node and npm, and npm is not in PATH" >&2
  [ "${CI:-}" != true ]
  exit
fi

echo "installing $name into $target" >&2
mkdir -p "$target"
rm -f "$target/installed-lock.json"
cp "tools/$name/package.json" "$lock" "$target/"
npm ci --prefix "$target" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
[ -f "$main" ] || { echo "npm ci succeeded, and yet there is no $main" >&2; exit 1; }
cp "$lock" "$target/installed-lock.json"
