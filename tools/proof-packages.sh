#!/usr/bin/env bash
# Prints the packages with long tests, which import internal/test/proof.
set -euo pipefail
cd "$(dirname "$0")/.."

grep -rlF --include='*_test.go' --exclude-dir=integration 'spotworker/internal/test/proof"' -- * |
  while read -r file; do echo "./$(dirname "$file")"; done | sort -u
