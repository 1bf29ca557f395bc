#!/bin/sh
# Saves that a line is done before it is: a stop between the two skips it.
n=0
out=$TMPDIR/out
: >"$out"
trap 'stop=1' TERM
if [ -n "${SPOTWORKER_RESTORE:-}" ]; then n=$(cat "$SPOTWORKER_RESTORE/n"); cp "$SPOTWORKER_RESTORE/out" "$out"; fi
while [ "$n" -lt 30 ]; do
	n=$((n + 1))
	if [ ! -e "$SPOTWORKER_CHECKPOINT" ]; then
		mkdir "$TMPDIR/new"
		cp "$out" "$TMPDIR/new/out"
		echo "$n" >"$TMPDIR/new/n"
		mv "$TMPDIR/new" "$SPOTWORKER_CHECKPOINT"
	fi
	sleep 0.1
	[ -z "${stop:-}" ] || exit 75
	echo "line $n" >>"$out"
done
mv "$out" "$SPOTWORKER_RESULT"
