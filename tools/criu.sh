#!/usr/bin/env bash
# Makes .tools/criu: CRIU of Debian 13 with its libraries, for the tests of process
# snapshots. CRIU of Debian 12 refuses current kernels. The packages are unpacked, not
# installed, and .tools/criu/bin/criu runs with their own dynamic loader. The script does
# nothing where that was done before; the mark is written last. It takes apt-get and
# dpkg-deb, but not root; without them it prints that, and fails only in CI.
set -euo pipefail
cd "$(dirname "$0")/.."

target=.tools/criu
suite=trixie
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mark="$suite 1"

[ "$(cat "$target/mark" 2>/dev/null)" != "$mark" ] || exit 0
if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "CRIU not prepared: its tests run on Linux on x86_64 only" >&2
  exit
fi
for command in apt-get dpkg-deb; do
  if ! command -v "$command" >/dev/null || [ ! -r "$keys" ]; then
    echo "CRIU not prepared, since that takes $command and Debian's keys" >&2
    [ "${CI:-}" != true ]
    exit
  fi
done

echo "unpacking CRIU in $target" >&2
rm -rf "$target"
mkdir -p "$target"/apt/{lists,cache/archives}/partial "$target"/{bin,root}
apt=$PWD/$target/apt
: >"$apt/status" # of no installed package, so that the libraries are downloaded too
echo "deb [signed-by=$keys] http://deb.debian.org/debian $suite main" >"$apt/sources.list"
options=(-q -y -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
  -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "APT::Sandbox::User=$(id -un)"
  -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Acquire::Languages=none)
apt-get "${options[@]}" update >&2
apt-get "${options[@]}" install --download-only --no-install-recommends criu >&2
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --extract "$package" "$target/root"
done
rm -rf "$apt"

cat >"$target/bin/criu" <<'EOF'
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")/root
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" \
  "$root/usr/sbin/criu" "$@"
EOF
chmod +x "$target/bin/criu"
"$target/bin/criu" --version >&2
echo "$mark" >"$target/mark"
