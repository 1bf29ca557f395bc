#!/bin/sh
# Replaces the installed version by this one, which may be older. The worker hands
# its active jobs over; they continue here or on another VM. If this version does
# not start, the previous one is restored. Otherwise as install.sh.
set -eu
cd "$(dirname "$0")"
. ./lib.sh
. ./check.sh
. ./deploy.sh

deploy updated
