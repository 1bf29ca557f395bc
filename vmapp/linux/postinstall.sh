#!/bin/sh
# After the files are unpacked: makes the user, and restarts workers that run. They hand their
# jobs over first. After a first installation nothing runs: worker.env has to be filled in.
set -eu
systemd-sysusers /usr/lib/sysusers.d/spotworker.conf
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl --quiet enable --now spotworker-logrotate.timer || true
  systemctl try-restart spotworker.service 'spotworker@*.service' || true
fi
