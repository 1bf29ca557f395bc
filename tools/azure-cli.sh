#!/usr/bin/env bash
# Makes .tools/azure-cli, the Azure CLI of a newer Debian, which runs beside the machine's
# own: integration tests run with both. Its packages and those that they need are unpacked
# and not installed; they bring their own Python and C library. Of the CLI only the modules
# that the tests use are there. It does nothing where that was done before; the mark is made
# last, so that an unfinished folder is made again.
# That takes apt-get and a Debian on x86_64; without them it prints that, and fails only in CI.
set -euo pipefail
cd "$(dirname "$0")/.."

target=.tools/azure-cli
suite=trixie
modules='cloud configure monitor network profile resource role storage util vm'
libraries='authorization compute core dns imagebuilder keyvault loganalytics managementgroups marketplaceordering monitor msi network privatedns resource storage subscription'
mark="1 $suite $modules $libraries"

[ "$(cat "$target/mark" 2>/dev/null)" != "$mark" ] || exit 0
# The place of this machine's packages has the newer ones too.
place() {
  # shellcheck disable=SC2016 # the words in $( ) are apt's
  apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk '$1 == "Debian" && $2 == "main" { print $3; exit }'
}
mirror=$(place) || true
if [ -z "$mirror" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  apt-get update -q >&2
  mirror=$(place) || true
fi
key=/usr/share/keyrings/debian-archive-keyring.gpg
if [ "$(uname -sm)" != "Linux x86_64" ] || [ -z "$mirror" ] || [ ! -f "$key" ]; then
  echo "no newer Azure CLI made in $target, since that takes a Debian on x86_64 with lists of its packages" >&2
  [ "${CI:-}" != true ]
  exit
fi

echo "unpacking the Azure CLI of Debian $suite in $target" >&2
rm -rf "$target"
mkdir -p "$target"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{state/lists/partial,cache/archives/partial}
: >"$work/status" # as if nothing was installed
echo "deb [signed-by=$key] $mirror $suite main" >"$work/sources.list"
cat >"$work/apt.conf" <<END
Dir::State "$work/state";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Acquire::Languages "none";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
END
export APT_CONFIG=$work/apt.conf
apt-get update -q >&2
apt-get install -q -y --download-only azure-cli >&2

# Libraries and modules of other services are four fifths of all files.
keep=()
for name in $libraries; do keep+=(! -name "$name"); done
for archive in "$work"/cache/archives/*.deb; do
  case ${archive##*/} in
    fonts-* | python3-numpy* | python3-pandas* | python3-nltk_* | libblas3_* | liblapack3_* | libgfortran5_* | perl* | tzdata_*) continue ;;
  esac
  dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$target" --no-same-owner --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
  case ${archive##*/} in
    python3-azure_*)
      rm -rf "$target"/usr/lib/python3/dist-packages/azure/ai
      find "$target"/usr/lib/python3/dist-packages/azure/mgmt -mindepth 1 -maxdepth 1 -type d "${keep[@]}" -exec rm -rf {} +
      ;;
  esac
done
keep=()
for name in $modules; do keep+=(! -name "$name"); done
find "$target"/usr/lib/python3/dist-packages/azure/cli/command_modules -mindepth 1 -maxdepth 1 -type d "${keep[@]}" -exec rm -rf {} +

cat >"$target/az" <<'END'
#!/bin/sh
root=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)/usr
export PYTHONHOME="$root" PYTHONPATH="$root/lib/python3/dist-packages" PYTHONWARNINGS=ignore
exec "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/lib/x86_64-linux-gnu" "$root/bin/python3.13" -m azure.cli "$@"
END
chmod 755 "$target/az"
# Python keeps what it compiles, so that tests need not.
AZURE_CONFIG_DIR=$work/azure AZURE_CORE_COLLECT_TELEMETRY=no "$target/az" vm list --help >/dev/null
echo "$mark" >"$target/mark"
