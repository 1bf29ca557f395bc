#!/usr/bin/env bash
# Installs those of the named Debian packages that are missing. That takes
# root and apt; without them it names what is missing, and fails only in CI.
set -euo pipefail

missing=()
for package in "$@"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed, since that takes root and apt-get: ${missing[*]}" >&2
  [ "${CI:-}" != true ]
  exit
fi
echo "installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >&2
apt-get install -q -y --no-install-recommends "${missing[@]}" >&2
