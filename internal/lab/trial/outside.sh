# sh outside.sh FOLDER WORKER N FOLDERS... ARGUMENTS: see outside_linux.go. The folder of the
# trial lies below one of the folders, so it is moved aside until they are covered.
set -eu
if [ -z "${SPOTWORKER_LAB_OUTSIDE:-}" ]; then
	export SPOTWORKER_LAB_OUTSIDE=yes
	exec unshare --mount --propagation private /bin/sh "$0" "$@"
fi
unset SPOTWORKER_LAB_OUTSIDE
trial=$1 worker=$2 n=$3
shift 3
mkdir -p "$trial/stage/$$"
mount --rbind "$trial" /mnt
stage=/mnt/stage/$$
mount -t tmpfs -o size=50%,mode=0700 outside "$stage"
i=0
while [ "$i" -lt "$n" ]; do
	mkdir "$stage/u$i" "$stage/w$i"
	chmod --reference="$1" "$stage/u$i"
	case $1 in
	/dev/shm) mount --bind "$stage/u$i" "$1" ;; # memory: no VM has anything there at first
	*) mount -t overlay -o "lowerdir=$1,upperdir=$stage/u$i,workdir=$stage/w$i" overlay "$1" ;;
	esac
	shift
	i=$((i + 1))
done
mount --move /mnt "$trial"
cd "$trial"
exec "$worker" "$@"
