#!/bin/sh
# Installs this version of the worker and starts it. The VM application
# extension runs it as root, in the folder that the package was unpacked into,
# and never again for the same version, whatever the outcome. Running it again
# by hand does no harm.
#
# Exit codes: 0 the worker runs, whether or not it reaches its storage account
# yet; 78 its configuration is wrong; 1 anything else. The last line on stderr
# says what went wrong.
set -eu
cd "$(dirname "$0")"
. ./lib.sh
. ./check.sh
. ./deploy.sh

deploy installed
