#!/usr/bin/env bash
# Makes .tools/debian, a small Debian that integration tests boot in a container:
# systemd, Python for the example, logrotate, nftables. It does nothing where that was done
# before; the mark is made last, so that an unfinished root is made again.
# That takes root and debootstrap; without them it prints that, and fails only in CI.
set -euo pipefail
cd "$(dirname "$0")/.."

target=.tools/debian
suite=bookworm
packages=systemd,systemd-sysv,dbus,python3,logrotate,nftables
mark="$suite $packages"

[ "$(cat "$target.mark" 2>/dev/null)" != "$mark" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  echo "no Debian made in $target, since that takes root and debootstrap" >&2
  [ "${CI:-}" != true ]
  exit
fi

echo "making a Debian in $target" >&2
rm -rf "$target" "$target.mark"
debootstrap --force-check-gpg --variant=minbase --include="$packages" "$suite" "$PWD/$target" >&2
rm -rf "$target"/var/cache/apt/archives/*.deb "$target"/var/lib/apt/lists/*
echo "$mark" >"$target.mark"
