#!/usr/bin/env bash
# Makes folders with a Debian each, for integration tests:
#   .tools/debian            small, to be booted in a container: systemd, Python for the
#                            example, logrotate, nftables
#   .tools/debian-azure-cli  a newer release's Azure CLI, run by chroot
# It does nothing where that was done before; the mark is made last, so that an unfinished
# root is made again. That takes root and debootstrap; without them it prints that, and
# fails only in CI.
set -euo pipefail
cd "$(dirname "$0")/.."

# root TARGET SUITE PACKAGES: make one, with packages and what they depend on.
root() {
  local target=$1 suite=$2 packages=$3 mark="$2 $3"
  [ "$(cat "$target.mark" 2>/dev/null)" != "$mark" ] || return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "no Debian $suite with $packages made in $target, since that takes root and debootstrap" >&2
    [ "${CI:-}" != true ]
    return
  fi

  echo "making a Debian $suite in $target" >&2
  rm -rf "$target" "$target.mark"
  debootstrap --force-check-gpg --variant=minbase --include="$packages" "$suite" "$PWD/$target" >&2
  rm -rf "$target"/var/cache/apt/archives/*.deb "$target"/var/lib/apt/lists/*
  echo "$mark" >"$target.mark"
}

root .tools/debian bookworm systemd,systemd-sysv,dbus,python3,logrotate,nftables
root .tools/debian-azure-cli trixie azure-cli
