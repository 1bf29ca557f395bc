#!/bin/sh
# Before the files are removed: stops the workers, which hand their jobs over. Before an update
# (deb: upgrade, rpm: 1) it does nothing: postinstall.sh restarts them.
set -eu
case ${1:-} in
  remove | deconfigure | 0) ;;
  *) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl --quiet disable --now spotworker-logrotate.timer spotworker.service spotworker@0.service spotworker@1.service \
  spotworker@2.service spotworker@3.service 2>/dev/null || true
systemctl stop 'spotworker@*.service' spotworker-logrotate.service || true
sh /opt/spotworker/current/firewall.sh down || true
