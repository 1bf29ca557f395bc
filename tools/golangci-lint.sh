#!/usr/bin/env bash
# Prints the path of the linter at the pinned version, and installs it into
# .tools/bin first where neither that directory nor PATH has it.
#
# A linter that an older Go built refuses a module that names a newer one, so
# one in .tools/bin that another Go built is built again.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v2.15.0
module=github.com/golangci/golangci-lint/v2
local=$PWD/.tools/bin/golangci-lint

# usable BINARY: is it the pinned version, built by the Go that is in use?
usable() {
  local about
  [ -x "$1" ] || return 1
  about=$(go version -m "$1" 2>/dev/null) || return 1
  case $about in "$1: $(go env GOVERSION)"*"$module"*"$version"*) return 0 ;; esac
  return 1
}

for candidate in "$local" "$(command -v golangci-lint || true)"; do
  if [ -n "$candidate" ] && usable "$candidate"; then
    echo "$candidate"
    exit 0
  fi
done

echo "installing golangci-lint $version into .tools/bin" >&2
GOBIN=$PWD/.tools/bin GOFLAGS= go install "$module/cmd/golangci-lint@$version" >&2
echo "$local"
