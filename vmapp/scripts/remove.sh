#!/bin/sh
# Stops the worker, which hands its jobs over, and removes all that any version
# put on the VM: units, releases, configuration, logs, scratch files, the user.
# It continues after a failed step, and then exits with 1.
set -u
cd "$(dirname "$0")" || exit 1
. ./lib.sh

failures=0
# try COMMAND...: run it, and count a failure.
try() {
  "$@" || {
    say "this failed: $*" >&2
    failures=$((failures + 1))
  }
}

alone
# shellcheck disable=SC2046 # one word for each unit
set -- $(workers_there)
[ $# -eq 0 ] || try systemctl --quiet --now disable "$@"
systemctl --quiet --now disable spotworker-logrotate.timer "$UNFINISHED" 2>/dev/null || true
systemctl --quiet stop spotworker-logrotate.service 2>/dev/null || true # a rotation under way would leave its state
try rm -f "$UNITS/spotworker.service" "$UNITS/spotworker@.service" "$UNITS/spotworker-logs.service" \
  "$UNITS/spotworker-logrotate.service" "$UNITS/spotworker-logrotate.timer" "$UNITS/$UNFINISHED" \
  /etc/logrotate.d/spotworker /run/spotworker-logrotate.state* "$LOCK"
try remove_snapshots
try systemctl daemon-reload
try sh ./firewall.sh down
systemctl reset-failed 'spotworker*' 2>/dev/null || true
try rm -rf "$RELEASES" "${CONFIGURATION%/*}" "$LOGS" /var/cache/spotworker /run/spotworker
if getent passwd spotworker >/dev/null; then
  try userdel spotworker
fi

[ "$failures" -eq 0 ] || fail "some of the worker is left on this VM, for the reasons above"
say "removed; nothing of the worker is left on this VM"
