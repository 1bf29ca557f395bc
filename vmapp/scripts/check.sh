# shellcheck shell=sh
# Checks that run before anything is changed.

# check_machine: fail unless this VM can run the worker.
check_machine() {
  [ "$(id -u)" -eq 0 ] || fail "run this as root"
  case $(uname -m) in
    x86_64) machine=amd64 ;;
    aarch64) machine=arm64 ;;
    *) machine=$(uname -m) ;;
  esac
  [ "$machine" = "$ARCHITECTURE" ] ||
    fail "this package is for $ARCHITECTURE and this VM is $machine: publish the package for $machine, as a separate application"
  [ -d /run/systemd/system ] || fail "this VM was not booted with systemd, which runs the worker: use another image"
  [ ! -d "$CURRENT" ] || [ -L "$CURRENT" ] || fail "the .deb or .rpm package of spotworker is installed on this VM: remove it first"
  for command in systemctl systemd-sysusers sha256sum; do
    command -v "$command" >/dev/null || fail "$command is missing on this VM: use an image that has it"
  done
}

# check_package: fail if the package is damaged. An installed one whose files were
# removed is in its release.
check_package() {
  [ -d payload ] || [ ! -d "$RELEASES/$RELEASE" ] || return 0
  sha256sum --check --quiet SHA256SUMS >&2 || fail "the package is damaged: publish it again, as a new version"
}

# The last line of every worker.env. A truncated file does not have it.
LAST_LINE='# end of worker.env'

# check_configuration: choose worker.env, check that systemd can read each line, and
# read the number of workers. Sets configuration and wanted. The worker itself
# checks the values.
check_configuration() {
  configuration=worker.env
  if [ ! -f "$configuration" ]; then
    configuration=$CONFIGURATION
    [ -f "$configuration" ] || fail "no worker.env came with this version: publish one, with configFileName worker.env" 78
    say "no worker.env came with this version: $configuration stays as it is"
  else
    # The platform runs the command even if it could not fetch the file.
    [ -s "$configuration" ] || fail "worker.env arrived empty: publish it again, as a new version" 78
    [ "$(tail -n 1 "$configuration" | tr -d '\r')" = "$LAST_LINE" ] ||
      fail "worker.env is cut off: its last line must be '$LAST_LINE'. Publish it again, as a new version" 78
  fi
  line=$(grep -n -v -E '^[[:space:]]*([#;].*)?$|^[[:space:]]*[A-Za-z_][A-Za-z0-9_]*=' "$configuration" | head -n 1 | cut -d : -f 1)
  [ -z "$line" ] || fail "line $line of worker.env is not NAME=VALUE: correct it, and publish it as a new version" 78
  workers=$(setting SPOTWORKER_INSTANCES "$configuration")
  case ${workers:-1} in
    1) wanted="spotworker.service" ;;
    2) wanted="spotworker@0.service spotworker@1.service" ;;
    3) wanted="spotworker@0.service spotworker@1.service spotworker@2.service" ;;
    4) wanted="spotworker@0.service spotworker@1.service spotworker@2.service spotworker@3.service" ;;
    *) fail "SPOTWORKER_INSTANCES in worker.env is $workers: give 1 to 4; the metadata service answers no more workers on one VM" 78 ;;
  esac
  snapshots=$(setting SPOTWORKER_SNAPSHOTS "$configuration")
  case ${snapshots:-none} in
    none) ;;
    criu) await_criu ;;
    *) fail "SPOTWORKER_SNAPSHOTS in worker.env is $snapshots: give criu, or leave it out" 78 ;;
  esac
}

# Seconds that the installation of criu may take, and a boot that installs it.
CRIU_PATIENCE=600

# await_criu: fail unless there is criu. An image may have it, or cloud-init install it, which
# may still be at work; otherwise it is installed from the distribution.
await_criu() {
  if ! command -v criu >/dev/null && command -v cloud-init >/dev/null; then
    say "waiting for cloud-init, which may install criu"
    timeout "$CRIU_PATIENCE" cloud-init status --wait >/dev/null 2>&1 || true
  fi
  command -v criu >/dev/null || install_criu >&2 || true
  command -v criu >/dev/null ||
    fail "SPOTWORKER_SNAPSHOTS in worker.env is criu, and criu is neither on this VM nor could it be installed, for the reason above: \
use an image of a distribution with a package criu (Debian 13), and let the VM reach its mirror" 78
}

install_criu() {
  say "installing criu from the distribution"
  if command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    timeout "$CRIU_PATIENCE" apt-get -q -o DPkg::Lock::Timeout="$CRIU_PATIENCE" update &&
      timeout "$CRIU_PATIENCE" apt-get -q -o DPkg::Lock::Timeout="$CRIU_PATIENCE" install --yes --no-install-recommends criu
  elif command -v dnf >/dev/null; then
    timeout "$CRIU_PATIENCE" dnf --quiet --assumeyes install criu
  fi
}
