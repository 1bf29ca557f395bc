#!/bin/sh
# Before the files of the .deb or .rpm package are unpacked: refuses a machine where the
# VM application installed the worker, since both would own the same folder and units.
set -eu
if [ -L /opt/spotworker/current ]; then
  echo "spotworker: the VM application has installed the worker on this machine: remove it first" >&2
  exit 1
fi
