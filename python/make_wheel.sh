#!/bin/bash
# Builds dist/anneal-*.whl, with all libraries that it needs but those of the system, and prints its path:
# make_wheel.sh [PYTHON]
# The libraries and the command come from build/wheel, whose command is linked with libarchive.a.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${1:-python3}
tools=build/wheel-tools-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
prefix=$PWD/build/wheel/prefix
raw=build/wheel/raw

cmake/deps.sh python3-venv python3-dev libbz2-dev liblz4-dev liblzma-dev libzstd-dev >&2  # its output is the path
if [ ! -f $tools/ready ] || [ python/requirements-wheel.txt -nt $tools/ready ]; then
  "$python" -m venv $tools
  $tools/bin/pip install --quiet --disable-pip-version-check -r python/requirements-wheel.txt
  touch $tools/ready
fi

# Packed relocations would keep the wheel from glibc 2.35, Ubuntu 22.04's.
cmake --preset release -B build/wheel -DANNEAL_TESTS=OFF -DANNEAL_SAMPLES=OFF -DANNEAL_STATIC_ARCHIVE=ON \
  -DANNEAL_PACKED_RELOCATIONS=OFF >/dev/null
cmake --build build/wheel -j "${JOBS:-$(nproc)}" --target programs >build/wheel/log || { cat build/wheel/log; exit 1; }
rm -rf "$prefix" $raw
cmake --install build/wheel --strip --prefix "$prefix" >/dev/null

export PATH=$PWD/$tools/bin:$PATH
CMAKE_PREFIX_PATH=$prefix pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps -w $raw .
auditwheel --verbose repair --strip -w dist $raw/*.whl >build/wheel/repair.log 2>&1 || { cat build/wheel/repair.log; exit 1; }
realpath "$(ls -1 -t dist/anneal-*.whl | head -1)"
