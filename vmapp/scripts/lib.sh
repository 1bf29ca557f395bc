# shellcheck shell=sh
# Shared by the scripts of the package. They run under /bin/sh, any POSIX shell.

RELEASES=/opt/spotworker
CURRENT=$RELEASES/current
CONFIGURATION=/etc/spotworker/worker.env
LOGS=/var/log/spotworker
UNITS=/etc/systemd/system

# The unit that repeats an installation that a reboot interrupted.
UNFINISHED=spotworker-install.service

LOCK=/run/spotworker-install.lock

umask 022

# ARCHITECTURE, as Go calls it, and RELEASE: version and digest of the package.
# shellcheck source=/dev/null
. ./release

say() { echo "spotworker: $*"; }

# fail MESSAGE [EXIT CODE]: print the reason and exit.
fail() {
  say "$1" >&2
  exit "${2:-1}"
}

# alone: waits until no other script of the package runs. After a reboot there may
# be two, the platform's and the unit's.
alone() {
  if command -v flock >/dev/null; then
    exec 9>"$LOCK" && flock 9
  fi
}

# setting NAME FILE: the value of a line of worker.env, without quotes.
setting() {
  sed -n "s/^[[:space:]]*$1=//p" "$2" | tail -n 1 | tr -d "\"'[:space:]"
}

# The units' drop-ins that let programs be frozen.
SNAPSHOTS="$UNITS/spotworker.service.d/spotworker-snapshots.conf $UNITS/spotworker@.service.d/spotworker-snapshots.conf"

# remove_snapshots: remove the drop-ins, and their folders if nothing else is in them.
remove_snapshots() {
  for file in $SNAPSHOTS; do
    rm -f "$file" || return
    rmdir "${file%/*}" 2>/dev/null || true
  done
}

# workers_there: the units of workers that are enabled, running or trying to.
workers_there() {
  for unit in spotworker.service spotworker@0.service spotworker@1.service spotworker@2.service spotworker@3.service; do
    if systemctl --quiet is-enabled "$unit" 2>/dev/null ||
      [ "$(systemctl show --property ActiveState --value "$unit")" != inactive ]; then
      echo "$unit"
    fi
  done
}
