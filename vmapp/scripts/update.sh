#!/bin/sh
# Replaces the version before by this one, which may be an older one. The jobs in
# hand are handed over and go on, here or on another VM. If this version does not
# start, the one before is put back. Otherwise as install.sh.
set -eu
cd "$(dirname "$0")"
. ./lib.sh
. ./check.sh
. ./deploy.sh

deploy updated
