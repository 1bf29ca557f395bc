#!/bin/sh
# A CI agent: builds one commit of a repository, as an interruptible job.
#
# The payload is a repository and a commit. The file ci.steps of that commit has a shell
# command on each line: the steps, each in a shell of its own in the working tree. What they
# leave in the folder artifacts is the job's outputs, and a list of it the result.
#
# The state is the working tree behind the last step that has finished, and how many have. A
# step that is interrupted starts again from there, since nobody knows what it has done.
set -eu
trap : TERM # the step in front gets SIGTERM too, and the loop looks at the stop file

tree=$TMPDIR/tree
mkdir "$tree"
if [ -n "${SPOTWORKER_RESTORE:-}" ]; then
	tar -xf "$SPOTWORKER_RESTORE" -C "$tree"
	finished=$(cat "$tree/.git/finished")
else
	read -r repository commit <"$SPOTWORKER_PAYLOAD" || [ -n "$repository" ]
	git clone --quiet --no-checkout -- "$repository" "$tree"
	git -C "$tree" checkout --quiet --detach "${commit:-HEAD}" --
	finished=0
fi
total=$(wc -l <"$tree/ci.steps")

tail -n "+$((finished + 1))" "$tree/ci.steps" >"$TMPDIR/todo"
while IFS= read -r step || [ -n "$step" ]; do
	echo "step $((finished + 1)) of $total: $step"
	code=0
	(cd "$tree" && exec sh -euc "$step") </dev/null || code=$?
	[ ! -e "$SPOTWORKER_STOP" ] || exit 75 # the step may have been stopped half-way
	if [ "$code" -ne 0 ]; then
		echo "step $((finished + 1)) of $total ended with exit code $code: $step" >&2
		exit 1
	fi
	finished=$((finished + 1))
	echo "$finished" >"$tree/.git/finished"
	tar -cf "$TMPDIR/checkpoint" -C "$tree" .
	mv "$TMPDIR/checkpoint" "$SPOTWORKER_CHECKPOINT"
	awk "BEGIN { printf \"{\\\"fraction\\\": %.4f, \\\"text\\\": \\\"%d of %d steps\\\"}\\n\", $finished / $total, $finished, $total }" >>"$SPOTWORKER_PROGRESS"
done <"$TMPDIR/todo"

mkdir -p "$tree/artifacts"
cp -R "$tree/artifacts/." "$SPOTWORKER_OUTPUT/"
(cd "$tree" && git rev-parse HEAD && find artifacts -type f | sort | xargs -r cksum) >"$TMPDIR/result"
mv "$TMPDIR/result" "$SPOTWORKER_RESULT"
