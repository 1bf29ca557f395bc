#!/bin/sh
# Is done at once.
echo 42 >"$TMPDIR/result"
mv "$TMPDIR/result" "$SPOTWORKER_RESULT"
