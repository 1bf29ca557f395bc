#!/bin/sh
# Has another result each time.
sleep 1.2
od -An -N8 -tx8 /dev/urandom >"$TMPDIR/result"
mv "$TMPDIR/result" "$SPOTWORKER_RESULT"
