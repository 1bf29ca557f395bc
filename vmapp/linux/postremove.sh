#!/bin/sh
# After the files are removed. Purging (deb) also removes settings, logs, scratch files and
# the user; otherwise they stay for the next installation.
set -eu
case ${1:-} in
  remove | purge | 0) ;;
  *) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  systemctl reset-failed 'spotworker*' 2>/dev/null || true
fi
[ "${1:-}" = purge ] || exit 0
rm -rf /etc/spotworker /var/log/spotworker /var/cache/spotworker /run/spotworker /run/spotworker-logrotate.state*
if getent passwd spotworker >/dev/null; then
  userdel spotworker || true
fi
