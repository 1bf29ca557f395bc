#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, each for the time
# given as the argument (as in 10s), and stops at the first that fails. Minimizing an
# input may take a second: for a message of 64 KiB it took a minute, without any new
# input.
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1
export SPOTWORKER_PROOF=full # all seeds

targets=$(grep -rEo --include='*_test.go' --exclude-dir='.tools' --exclude-dir=testdata \
  '^func Fuzz[A-Z0-9_][A-Za-z0-9_]*' . | sort || true)
if [ -z "$targets" ]; then
  echo "no fuzz targets found" >&2
  exit 1
fi

while IFS=: read -r file declaration; do
  name=${declaration#func }
  echo "== $name in $(dirname "$file"), $time"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 1s "$(dirname "$file")"
done <<<"$targets"
