# shellcheck shell=sh
# Replaces one version by another.

# Seconds that a worker has to start, for instance while its port is taken.
PATIENCE=15

# Link to the release whose workers were started last with the present
# configuration. After an interrupted script that can differ from "current".
STARTED=$RELEASES/.started

# Where a release is unpacked before it appears.
unfinished=$RELEASES/.unfinished.$$

# deploy DONE: check, unpack beside the present release, switch, start. Restores the
# previous release if that fails.
deploy() {
  alone
  trap at_end EXIT
  check_machine
  again_after_a_reboot || say "a reboot during this installation would leave it unfinished, for the reason above" >&2
  check_package
  check_configuration
  before=$(readlink "$CURRENT" || true)
  wanted_before=$(workers_there | tr '\n' ' ')
  ran_before=
  # shellcheck disable=SC2086 # one word for each unit
  if [ -n "$wanted_before" ] && systemctl --quiet is-active $wanted_before; then
    ran_before=yes
  fi
  same=
  if [ "$(readlink "$STARTED")" = "$RELEASE" ] && cmp -s "$configuration" "$CONFIGURATION"; then
    same=yes
  fi
  place
  rm -f "$STARTED"
  configure
  switch_to "$RELEASE" || {
    restore_configuration
    fail "cannot switch to $RELEASE, for the reason above; no worker was stopped"
  }
  # shellcheck disable=SC2086 # one word for each unit
  start $wanted || give_up
  tidy
  [ "$before" != "$RELEASE" ] || before=
  say "$1 $RELEASE${before:+ in the place of $before}; running: $wanted"
}

# again_after_a_reboot: make a boot run this script again until it has ended. The
# platform reports success for an installation that a reboot or a power cut ended,
# and does not always repeat it.
again_after_a_reboot() {
  cat >"$UNITS/$UNFINISHED" <<END &&
[Unit]
Description=spotworker: an installation that was cut off
ConditionPathExists=$PWD/install.sh

[Service]
Type=oneshot
WorkingDirectory=$PWD
ExecStart=/bin/sh -c 'sh ./install.sh || { tar -xzf spotworker.tar.gz && sh ./install.sh; }'

[Install]
WantedBy=multi-user.target
END
    systemctl --quiet enable "$UNFINISHED" && sync
}

# at_end runs at the end of a script, after success or failure, but not if it is
# killed.
at_end() {
  rm -rf "$unfinished"
  if [ -f "$UNITS/$UNFINISHED" ]; then
    { systemctl --quiet disable "$UNFINISHED" && rm -f "$UNITS/$UNFINISHED" && systemctl daemon-reload; } 2>/dev/null || true
  fi
}

# place: unpack this release completely or not at all. Removes what an interrupted
# installation left.
place() {
  rm -rf "$RELEASES"/.unfinished.*
  [ ! -d "$RELEASES/$RELEASE" ] || return 0
  {
    mkdir -p "$unfinished" && cp -R release lib.sh remove.sh firewall.sh units etc payload/. "$unfinished/" &&
      package_settings >"$unfinished/package.env" &&
      chown -R root:root "$unfinished" && chmod -R u=rX,go=rX "$unfinished" && mv "$unfinished" "$RELEASES/$RELEASE"
  } || fail "cannot unpack into $RELEASES, for the reason above; nothing was changed"
}

# package_settings: settings that follow from the package. A path names the
# release and not "current", so that a worker has its programs to its end.
package_settings() {
  if [ -f payload/handlers/kinds.json ]; then
    echo "SPOTWORKER_KINDS_FILE=$RELEASES/$RELEASE/handlers/kinds.json"
  fi
}

# configure: install worker.env, user and log folder. Root owns the file, since it
# may hold the key of an emulator.
configure() {
  {
    mkdir -p "${CONFIGURATION%/*}" "$LOGS" && systemd-sysusers "$PWD/etc/spotworker.sysusers" &&
      { [ ! -f "$CONFIGURATION" ] || cp -p "$CONFIGURATION" "$CONFIGURATION.before"; } &&
      (umask 077 && cat "$configuration" >"$CONFIGURATION.new") && mv "$CONFIGURATION.new" "$CONFIGURATION"
  } || {
    rm -f "$CONFIGURATION.new"
    fail "cannot write $CONFIGURATION or what goes with it, for the reason above; no worker was stopped"
  }
}

# switch_to RELEASE: make the units start it. Each file is replaced atomically.
switch_to() {
  for file in "$RELEASES/$1"/units/*; do
    put "$file" "$UNITS/${file##*/}" || return
  done
  place_snapshots "$RELEASES/$1/etc/spotworker-snapshots.conf" || return
  { [ ! -d /etc/logrotate.d ] || put "$RELEASES/$1/etc/spotworker.logrotate" /etc/logrotate.d/spotworker; } &&
    ln -sfn "$1" "$CURRENT.new" && mv -T "$CURRENT.new" "$CURRENT" && systemctl daemon-reload
}

# place_snapshots FILE: put the drop-ins beside the units, or remove them, as the configuration
# in place has it. Releases before have none.
place_snapshots() {
  if [ "$(setting SPOTWORKER_SNAPSHOTS "$CONFIGURATION")" != criu ] || [ ! -f "$1" ]; then
    remove_snapshots
    return
  fi
  for file in $SNAPSHOTS; do
    mkdir -p "${file%/*}" && put "$1" "$file" || return
  done
}

restore_configuration() {
  [ ! -f "$CONFIGURATION.before" ] || mv "$CONFIGURATION.before" "$CONFIGURATION"
}

# put SOURCE TARGET: replace a file.
put() {
  if ! { cp "$1" "$2.new" && chmod 644 "$2.new" && mv "$2.new" "$2"; }; then
    rm -f "$2.new"
    return 1
  fi
}

# start UNIT...: start these workers and stop all others. A worker counts as started
# when it has read its configuration and listens on its port. It signs in later:
# roles and networks may take longer than a script should wait.
start() {
  failed=$1 status=1
  for unit in $(workers_there); do
    case " $* " in
      *" $unit "*) ;;
      *) systemctl --quiet --now disable "$unit" || return ;;
    esac
  done
  systemctl --quiet enable "$@" || return
  if [ -f "$UNITS/spotworker-logrotate.timer" ]; then
    systemctl --quiet enable --now spotworker-logrotate.timer || return
  fi
  if [ -n "$same" ]; then
    systemctl start "$@" || true
  else
    systemctl restart "$@" || true
  fi
  for unit in "$@"; do
    await "$unit" || return
  done
}

# await UNIT: wait until it runs. systemd restarts it after a failure, except for an
# invalid configuration: then the unit stays failed.
await() {
  failed=$1
  left=$PATIENCE
  while [ "$left" -gt 0 ]; do
    state=$(systemctl show --property ActiveState --value "$1")
    code=$(systemctl show --property ExecMainStatus --value "$1")
    [ "$code" = 0 ] || status=$code
    case $state in
      active) return 0 ;;
      failed) return 1 ;;
    esac
    sleep 1
    left=$((left - 1))
  done
  return 1
}

# give_up: report that this version does not start, and restore the previous one if
# it ran.
give_up() {
  reason=$(why)
  exit_code=1
  [ "$status" != 78 ] || exit_code=78
  if [ -z "$before" ] || [ -n "$same" ] || [ ! -f "$CONFIGURATION.before" ] || [ -z "$ran_before" ]; then
    case $exit_code in
      78) fail "$reason. Correct worker.env, and publish it as a new version" 78 ;;
      *) fail "$reason. systemd keeps retrying every few seconds" ;;
    esac
  fi
  restore_configuration
  switch_to "$before" || fail "$reason. $before could not be restored, for the reason above" "$exit_code"
  # shellcheck disable=SC2086 # one word for each unit
  start $wanted_before || fail "$reason. $before was restored, and $(why)" "$exit_code"
  [ "$before" = "$RELEASE" ] || rm -rf "${RELEASES:?}/$RELEASE"
  ln -sfn "$before" "$STARTED"
  fail "$reason. $before was restored, and runs" "$exit_code"
}

# why: the last log line of the worker that does not start.
why() {
  log=$LOGS/worker.log
  case $failed in
    *@*) log=${failed#*@} && log=$LOGS/worker-${log%.service}.log ;;
  esac
  # Not what a program printed: this goes into the extension's status.
  last=$(tail -n 200 "$log" 2>/dev/null | grep -v '"msg":"program output"' | tail -n 1 | tr -cd '[:print:]' | cut -c 1-1000)
  echo "$failed does not start (exit code $status); its last log line is: $last"
}

# tidy: remove the replaced release, and duplicates: the platform keeps a folder for
# each version with the package and its unpacked files.
tidy() {
  ln -sfn "$RELEASE" "$STARTED"
  rm -f "$CONFIGURATION.before"
  for folder in "$RELEASES"/*; do
    case $folder in
      "$CURRENT" | "$RELEASES/$RELEASE") ;;
      *) rm -rf "$folder" ;;
    esac
  done
  case $PWD in
    */Microsoft.CPlat.Core.VMApplicationManagerLinux/*) ;;
    *) return 0 ;;
  esac
  rm -rf payload
  for folder in ../*/; do
    if [ "$folder" != "../${PWD##*/}/" ] && [ -f "${folder}release" ]; then
      find "$folder" -mindepth 1 -maxdepth 1 ! -name stdout ! -name stderr -exec rm -rf {} +
    fi
  done
}
