#!/bin/bash
# Runs python/tests with the wheel in a fresh virtual environment, without the sources: test_wheel.sh [PYTHON [PYTEST ARGUMENT]...]
# WHEEL=FILE is the wheel; else make_wheel.sh makes it. TORCH=1 installs torch and JAX as well, 3 GB; TORCH=FOLDER reads them
# in a virtual environment of the same Python that has them. Without them the tests of their arrays are skipped. Needs PyPI: where it
# cannot be reached, says so and ends with status 0.
set -euo pipefail
python=${1:-python3}
shift $(($# < 1 ? $# : 1))
root=$(cd "$(dirname "$0")/.." && pwd)

"$root/cmake/deps.sh" python3-venv
folder=$(mktemp -d -t anneal-python-XXXXXX)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" --quiet --disable-pip-version-check)
if ! "${pip[@]}" download --no-deps -d "$folder" iniconfig >"$folder/pip.log" 2>&1; then
  tail -1 "$folder/pip.log"
  echo "PyPI cannot be reached: the tests of the Python package are skipped"
  exit 0
fi
wheel=$(realpath "${WHEEL:-$("$root/python/make_wheel.sh" "$python")}")
bytes=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $bytes bytes"
[ "$bytes" -lt 12000000 ] || { echo "the wheel has more than 12 MB"; exit 1; }
"${pip[@]}" install "$wheel"
# What the wheel needs is what it says: it works before the tests' own packages are there.
(cd "$folder" && "$folder/venv/bin/python" -c "import anneal" && "$folder/venv/bin/anneal" devices >/dev/null)
"${pip[@]}" install -r "$root/python/tests/requirements.txt"
if [ "${TORCH:-}" = 1 ]; then
  "${pip[@]}" install torch jax onnxscript
elif [ -n "${TORCH:-}" ]; then
  # A .pth file adds packages behind those of the environment itself.
  echo "$TORCH"/lib/python3*/site-packages >"$(echo "$folder"/venv/lib/python3*/site-packages)/torch.pth"
  "$folder/venv/bin/python" -c "import torch, onnxscript, anneal; assert anneal.__file__.startswith('$folder')"
fi

mkdir -p "$folder/tree/python" "$folder/tree/samples"
cp -r "$root/python/tests" "$folder/tree/python/"
cp -r "$root/samples/glyphs" "$root/samples/generate" "$root/samples/python" "$root/samples/regression" "$folder/tree/samples/"
mkdir "$folder/tree/bench"
cp -r "$root/bench/nets" "$folder/tree/bench/"
cp -r "$root/docs" "$root/README.md" "$folder/tree/"
cd "$folder"
ANNEAL_SHARED_MODELS=${ANNEAL_SHARED_MODELS:-$root/../shared/data/models} \
  "$folder/venv/bin/python" -m pytest -q -p no:cacheprovider "$folder/tree/python/tests" "$@"
