#!/usr/bin/env bash
# Runs random histories: soak.sh NUMBER FIRST_SEED. It prints each failure with the
# command that repeats it, and totals.
set -euo pipefail
cd "$(dirname "$0")/.."

go test -count=1 -v -timeout 6h -run '^TestHistories$' ./internal/test/worker/histories -histories "$1" -seed "$2" |
  grep -Ev '^=== |^ *--- PASS'
