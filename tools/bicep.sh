#!/usr/bin/env bash
# Checks infra/bicep: with the Bicep compiler where there is one (bicep in
# PATH, or what "az bicep install" installed), and with the checker that
# BICEPCHECK names, a command. A warning fails as an error does, since most
# warnings here are deployments that Azure would refuse. Where there is neither
# it prints that, and fails in CI.
#
# With the checker it also compares infra/policy/testdata/dump.json, which the
# policy tests read, with the files that it was made from. "tools/bicep.sh
# update" writes it again.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=infra/bicep
dump=infra/policy/testdata/dump.json

# strictly COMMAND...: run it, and fail if it fails or warns.
strictly() {
  local said status=0
  said=$("$@" 2>&1 >/dev/null) || status=$?
  [ -z "$said" ] || echo "$said" >&2
  if [ "$status" -ne 0 ] || grep -q ' : Warning ' <<<"$said"; then
    echo "bicep: $* FAILED" >&2
    return 1
  fi
}

compile() {
  local file
  "$1" --version
  for file in "$folder"/*.bicep; do
    strictly "$1" build --stdout "$file"
    strictly "$1" lint "$file"
  done
  for file in "$folder"/*.bicepparam; do
    strictly "$1" build-params --stdout "$file"
  done
}

# BICEPCHECK may hold a command with arguments: no quotes on purpose.
# shellcheck disable=SC2086
check() {
  local fresh
  $BICEPCHECK "$folder"
  fresh=$($BICEPCHECK --dump "$folder" 2>/dev/null)
  if [ "$1" = update ]; then
    printf '%s\n' "$fresh" >"$dump"
    echo "wrote $dump"
  elif ! diff -u "$dump" <(printf '%s\n' "$fresh") >&2; then
    echo "bicep: $dump is not what $folder says; update it with tools/bicep.sh update" >&2
    return 1
  fi
}

compiler=
for candidate in "$(command -v bicep || true)" "${AZURE_CONFIG_DIR:-$HOME/.azure}/bin/bicep"; do
  if [ -n "$candidate" ] && [ -x "$candidate" ]; then
    compiler=$candidate
    break
  fi
done

if [ -z "$compiler" ] && [ -z "${BICEPCHECK:-}" ]; then
  echo "bicep: $folder not checked: there is neither a bicep compiler (bicep in PATH, or az bicep install) nor a checker in BICEPCHECK" >&2
  [ "${CI:-}" != true ]
  exit
fi
[ -z "$compiler" ] || compile "$compiler"
[ -z "${BICEPCHECK:-}" ] || check "${1:-compare}"
