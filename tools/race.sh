#!/usr/bin/env bash
# Prints -race where the race detector can be built, which takes a C compiler.
# Where it cannot it logs one line and prints nothing, and fails in CI,
# where tests without it would prove less than they claim.
set -euo pipefail

compiler=$(go env CC)
if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "${compiler%% *}" >/dev/null; then
  echo -race
  exit 0
fi
echo "no C compiler (${compiler%% *}), or CGO_ENABLED=0: the tests run without the race detector" >&2
[ "${CI:-}" != true ]
