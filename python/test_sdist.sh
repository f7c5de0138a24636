#!/bin/bash
# Makes the source distribution, lets pip compile it in a fresh virtual environment, and builds and runs an engine with it, from another
# folder: test_sdist.sh [PYTHON]. Needs PyPI: where it cannot be reached, says so and ends with status 0.
set -euo pipefail
python=${1:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)

"$root/cmake/deps.sh" python3-venv python3-dev
folder=$(mktemp -d -t anneal-sdist-XXXXXX)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/tools"
"$python" -m venv "$folder/venv"
if ! "$folder/tools/bin/pip" --quiet --disable-pip-version-check install build >"$folder/pip.log" 2>&1; then
  tail -1 "$folder/pip.log"
  echo "PyPI cannot be reached: the source distribution is not tested"
  exit 0
fi
"$folder/tools/bin/python" -m build --sdist -o "$folder/dist" "$root" >"$folder/build.log" 2>&1 || { cat "$folder/build.log"; exit 1; }
archive=$(ls "$folder"/dist/anneal-*.tar.gz)
bytes=$(stat -c %s "$archive")
echo "$(basename "$archive"): $bytes bytes"
[ "$bytes" -lt 8000000 ] || { echo "the source distribution has more than 8 MB"; exit 1; }

cd "$folder"
CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} venv/bin/pip --quiet --disable-pip-version-check install "$archive"
# The model is that of the distribution: README's program reads it.
tar -xzf "$archive" --strip-components=1 --wildcards '*/README.md' '*/samples/glyphs/glyphs.onnx'
venv/bin/python - <<'PROGRAM'
import re
import anneal
assert "site-packages" in anneal.__file__
exec(next(block for block in re.findall(r"```python\n(.*?)```", open("README.md").read(), re.S) if "import anneal" in block))
PROGRAM
devices=$(venv/bin/anneal devices)
echo "$devices"
! grep -q "cannot be opened (libanneal_emulated" <<<"$devices" || { echo "a library is missing"; exit 1; }
