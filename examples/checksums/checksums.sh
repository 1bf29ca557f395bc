#!/bin/sh
# Checksums of many files: an interruptible job as a POSIX shell script.
#
# The payload is a list of names, one per line, of files in the data folder. The
# result is a line for each: checksum, size and name, as cksum prints them.
#
# The state is the output so far. How many lines it has says where to resume, so
# that there is nothing that could disagree with it.
set -eu

later=75 # exit code: stopped, resume later
stopping=
trap 'stopping=yes' TERM

out=$TMPDIR/out
if [ -n "${SPOTWORKER_RESTORE:-}" ]; then
	cp "$SPOTWORKER_RESTORE" "$out"
else
	: >"$out"
fi
finished=$(wc -l <"$out")
total=$(wc -l <"$SPOTWORKER_PAYLOAD")

# save puts the output so far in place as the checkpoint, whole or not at all.
save() {
	cp "$out" "$TMPDIR/checkpoint"
	mv "$TMPDIR/checkpoint" "$SPOTWORKER_CHECKPOINT"
}

tail -n "+$((finished + 1))" "$SPOTWORKER_PAYLOAD" >"$TMPDIR/todo"
while read -r name; do
	case $name in
	*/* | .*)
		echo "$name is not the name of a file in the data folder" >&2
		exit 1
		;;
	esac
	(cd "$DATA" && cksum "./$name") >>"$out"
	finished=$((finished + 1))
	save
	awk "BEGIN { printf \"{\\\"fraction\\\": %.4f, \\\"text\\\": \\\"%d of %d files\\\"}\\n\", $finished / $total, $finished, $total }" >>"$SPOTWORKER_PROGRESS"
	if [ -n "$stopping" ]; then
		exit "$later"
	fi
	sleep "${PAUSE:-0}" # to have time for an eviction
done <"$TMPDIR/todo"

mv "$out" "$SPOTWORKER_RESULT"
