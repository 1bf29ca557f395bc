#!/bin/sh
# Saves how far it is, and keeps what it has made in its own folder.
trap 'exit 75' TERM
n=0
[ -z "${SPOTWORKER_RESTORE:-}" ] || n=$(cat "$SPOTWORKER_RESTORE")
while [ "$n" -lt 30 ]; do
	sleep 0.05
	echo "line $n" >>lines
	n=$((n + 1))
	echo "$n" >"$TMPDIR/n" && mv "$TMPDIR/n" "$SPOTWORKER_CHECKPOINT"
done
mv lines "$SPOTWORKER_RESULT"
