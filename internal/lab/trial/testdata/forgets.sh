#!/bin/sh
# Saves, and never looks at what was saved.
trap 'exit 75' TERM
n=0
while [ "$n" -lt 40 ]; do
	sleep 0.05
	n=$((n + 1))
	echo "$n" >"$TMPDIR/n" && mv "$TMPDIR/n" "$SPOTWORKER_CHECKPOINT"
done
mv "$TMPDIR/n" "$SPOTWORKER_RESULT" 2>/dev/null || { echo "$n" >n && mv n "$SPOTWORKER_RESULT"; }
