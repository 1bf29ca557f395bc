#!/bin/sh
# Encodes a large file in chunks and joins them: an interruptible job in POSIX sh, as
# with ffmpeg. The line that says "the encoder" is what you replace.
#
# The payload names a file of the data folder. Each chunk is encoded into a file of its
# own, which never changes once it is there; the checkpoint is a folder of links to them,
# so that only new chunks are sent. The result is the number of chunks, and the size and
# checksum of the joined file, which goes to SPOTWORKER_OUTPUT where the kind has outputs.
set -eu
trap '' TERM # here and in every command below, which would be killed half-way

size=${CHUNK:-1048576} # bytes of a chunk
name=$(cat "$SPOTWORKER_PAYLOAD")
case $name in
'' | */* | .*)
	echo "$name is not the name of a file in the data folder" >&2
	exit 1
	;;
esac
input=$DATA/$name
total=$((($(wc -c <"$input") + size - 1) / size))

mine=$TMPDIR/chunks
if [ -n "${SPOTWORKER_RESTORE:-}" ]; then mv "$SPOTWORKER_RESTORE" "$mine"; else mkdir "$mine"; fi

# save puts a folder with links to all chunks in place. If the worker has not taken the
# last one yet, this one is left out, unless it is the last: a folder cannot replace one.
save() {
	while [ -e "$SPOTWORKER_CHECKPOINT" ]; do
		[ "$1" = last ] || return 0
		sleep 0.05
	done
	rm -rf "$TMPDIR/checkpoint"
	mkdir "$TMPDIR/checkpoint"
	for file in "$mine"/*.gz; do
		[ ! -e "$file" ] || ln "$file" "$TMPDIR/checkpoint/"
	done
	mv "$TMPDIR/checkpoint" "$SPOTWORKER_CHECKPOINT"
}

n=0
while [ "$n" -lt "$total" ]; do
	chunk=$(printf '%s/%05d.gz' "$mine" "$n")
	if [ ! -e "$chunk" ]; then
		if [ -e "$SPOTWORKER_STOP" ]; then
			save last
			exit 75 # continue later
		fi
		dd if="$input" of="$TMPDIR/raw" bs="$size" skip="$n" count=1 2>/dev/null
		gzip -n -9 -c "$TMPDIR/raw" >"$TMPDIR/encoding" # the encoder
		mv "$TMPDIR/encoding" "$chunk"
		save next
		printf '{"fraction": %s, "text": "%d of %d chunks"}\n' "$(echo "$n $total" | awk '{ printf "%.4f", ($1 + 1) / $2 }')" $((n + 1)) "$total" >>"$SPOTWORKER_PROGRESS"
		sleep "${PAUSE:-0}" # to have time for an eviction
	fi
	n=$((n + 1))
done

joined=${SPOTWORKER_OUTPUT:-$TMPDIR}/$name.gz
cat "$mine"/*.gz >"$TMPDIR/joined"
mv "$TMPDIR/joined" "$joined"
sum=$(cksum <"$joined")
printf '{"chunks": %d, "cksum": "%s"}\n' "$total" "$sum" >"$TMPDIR/result"
mv "$TMPDIR/result" "$SPOTWORKER_RESULT"
