#!/usr/bin/env bash
# Prints the path of a tool in Go at its pinned version: tools/go-tool.sh NAME. Installs it into
# .tools/bin first where neither that directory nor PATH has it.
#
# A linter that an older Go built refuses a module that names a newer one, so a tool in
# .tools/bin that another Go built is built again.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:-}
flags=()
case $name in
  golangci-lint)
    version=v2.15.0 module=github.com/golangci/golangci-lint/v2 package=cmd/golangci-lint
    ;;
  actionlint)
    version=v1.7.12 module=github.com/rhysd/actionlint package=cmd/actionlint
    ;;
  goreleaser)
    version=v2.15.1 module=github.com/goreleaser/goreleaser/v2 package=
    # It contains the clients of many clouds. Without optimisation it takes half the time to build.
    # Compression remains optimised.
    flags=('-gcflags=all=-N -l -dwarf=false' '-gcflags=std=' '-gcflags=github.com/klauspost/...=' '-ldflags=-s -w')
    ;;
  *)
    echo "usage: tools/go-tool.sh golangci-lint|actionlint|goreleaser" >&2
    exit 64
    ;;
esac
local=$PWD/.tools/bin/$name

# usable BINARY: is it the pinned version, built by the Go that is in use?
usable() {
  local about
  [ -x "$1" ] || return 1
  about=$(go version -m "$1" 2>/dev/null) || return 1
  case $about in "$1: $(go env GOVERSION)"*"$module"*"$version"*) return 0 ;; esac
  return 1
}

for candidate in "$local" "$(command -v "$name" || true)"; do
  if [ -n "$candidate" ] && usable "$candidate"; then
    echo "$candidate"
    exit 0
  fi
done

echo "installing $name $version into .tools/bin" >&2
GOBIN=$PWD/.tools/bin GOFLAGS='' go install ${flags[@]+"${flags[@]}"} "$module${package:+/$package}@$version" >&2
echo "$local"
