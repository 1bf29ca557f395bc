#!/usr/bin/env bash
# Prepares .tools/wine, where Wine runs our Windows programs: a prefix, which is a
# folder with an installed Windows, and in it the one DLL that Wine lacks and Go
# needs. It does nothing where that was done before. The mark is written last, so
# that a preparation that was cut off is not taken for a whole one.
set -euo pipefail
cd "$(dirname "$0")/.."

target=.tools/wine
source=tools/wine/bcryptprimitives.c
compiler=x86_64-w64-mingw32-gcc-posix

if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "Wine not prepared: its tests run on Linux on x86_64 only" >&2
  exit
fi
wine=$(command -v wine64 || echo /usr/lib/wine/wine64)
for command in "$wine" "$compiler"; do
  if ! command -v "$command" >/dev/null; then
    echo "Wine not prepared: there is no $command (Debian packages wine, wine64 and gcc-mingw-w64-x86-64-posix)" >&2
    [ "${CI:-}" != true ]
    exit
  fi
done

mark="$("$wine" --version) $(cksum <"$source")"
if [ "$(cat "$target/mark" 2>/dev/null || true)" = "$mark" ]; then
  exit 0
fi
echo "preparing Wine in $target" >&2
rm -rf "$target"
mkdir -p "$target/prefix"
WINEPREFIX=$PWD/$target/prefix
export WINEPREFIX WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml,winemenubuilder.exe='
unset DISPLAY WAYLAND_DISPLAY
"$wine" wineboot --init >"$target/log" 2>&1 || { cat "$target/log" >&2; exit 1; }
"$(dirname "$(readlink -f "$wine")")/wineserver" --wait
"$compiler" -O2 -Wall -Wextra -Werror -shared -o "$target/bcryptprimitives.dll" "$source" -ladvapi32
cp "$target/bcryptprimitives.dll" "$WINEPREFIX/drive_c/windows/system32/"
echo "$mark" >"$target/mark"
