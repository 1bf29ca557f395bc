#!/usr/bin/env bash
# Prints the path of GoReleaser at the pinned version, and installs it into .tools/bin first
# where that directory does not have it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v2.15.1
module=github.com/goreleaser/goreleaser/v2
local=$PWD/.tools/bin/goreleaser

about=$([ ! -x "$local" ] || go version -m "$local" 2>/dev/null || true)
case $about in
  *"$module"*"$version"*) ;;
  *)
    echo "installing GoReleaser $version into .tools/bin" >&2
    GOBIN=$PWD/.tools/bin GOFLAGS= go install -trimpath "$module@$version" >&2
    ;;
esac
echo "$local"
