#!/usr/bin/env bash
# Makes a release in out/release with GoReleaser: tools/release.sh snapshot publishes nothing,
# tools/release.sh publish makes the release of the current tag. SYSTEMS and PROCESSORS, words
# such as "linux" and "amd64", limit a snapshot.
set -euo pipefail
cd "$(dirname "$0")/.."

# One build at a time: the order of the programs in an archive is the order of their ends.
goreleaser=${GORELEASER:-$(tools/go-tool.sh goreleaser)}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
RELEASE_TIME=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
export SOURCE_DATE_EPOCH RELEASE_TIME

case ${1:-} in
  publish) exec "$goreleaser" release --clean --parallelism 1 --release-notes out/release-parts/notes.md ;;
  snapshot) ;;
  *)
    echo "usage: tools/release.sh snapshot|publish" >&2
    exit 64
    ;;
esac
config=.goreleaser.yaml
if [ -n "${SYSTEMS:-}${PROCESSORS:-}" ]; then
  systems=${SYSTEMS:-linux darwin windows} processors=${PROCESSORS:-amd64 arm64}
  mkdir -p out
  config=out/goreleaser.yaml
  sed -e "s/^\( *goos:\) .*/\1 [${systems// /, }]/" -e "s/^\( *goarch:\) .*/\1 [${processors// /, }]/" .goreleaser.yaml >"$config"
  PACKAGE_ARCHITECTURES=
  for processor in $processors; do
    case " $systems " in *" linux "*) PACKAGE_ARCHITECTURES+=,$processor ;; esac
    case "$processor $systems " in "amd64 "*"windows "*) PACKAGE_ARCHITECTURES+=,windows-amd64 ;; esac
  done
  export PACKAGE_ARCHITECTURES=${PACKAGE_ARCHITECTURES#,}
fi
exec "$goreleaser" release --snapshot --clean --parallelism 1 --config "$config"
