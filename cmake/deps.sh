#!/bin/bash
# Installs the Debian packages that building and testing need, and any given as arguments.
# Says nothing when all are there. Of oneDNN (libdnnl) only tests use the headers; it is opened while running.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config python3 git
  libhwy-dev libfmt-dev libprotobuf-dev protobuf-compiler
  libcli11-dev nlohmann-json3-dev libarchive-dev libdnnl-dev
  libjpeg-dev libpng-dev librsvg2-dev librsvg2-bin zlib1g-dev
  libgtest-dev libgmock-dev libonnx-dev libonnx-testdata clang-format abigail-tools
  "$@"
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
if [ "$(id -u)" = 0 ]; then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
# Without a terminal nobody can type the password.
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
  as_root=(sudo env DEBIAN_FRONTEND=noninteractive)
else
  echo "packages are missing; as root, run this line and try again:" >&2
  echo "apt-get update && ${install[*]}" >&2
  exit 1
fi

echo "installing: ${missing[*]}"
if ! apt-cache show --no-all-versions "${missing[@]}" >/dev/null 2>&1; then
  "${as_root[@]}" apt-get update -q
fi
# A package list from another day may name files that the mirror no longer has.
"${as_root[@]}" "${install[@]}" || {
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" "${install[@]}"
}
