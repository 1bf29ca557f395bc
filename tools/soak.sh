#!/usr/bin/env bash
# Goes through random histories: soak.sh NUMBER FIRST_SEED. It says how each went
# that failed, with what repeats it, and what happened in all of them together.
set -euo pipefail
cd "$(dirname "$0")/.."

go test -count=1 -v -timeout 6h -run '^TestHistories$' ./internal/worker -histories "$1" -seed "$2" |
  grep -Ev '^=== |^ *--- PASS'
