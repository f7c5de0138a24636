#!/bin/bash
# One visit to a machine with a GPU, run on that machine: bench/gpu/visit.sh FOLDER SECONDS [ARGUMENTS OF run.py]
# SECONDS is the time of run.py; the tests of the Python package come on top, with at most 60 s.
# Results go to FOLDER/results.tar.gz, which is whole at any moment: a visit may be cut.
# The exit status is run.py's. Beside the bundle in dist/ it runs the tests of the Python package for GPUs with the wheel in dist/, if there is one.
set -uo pipefail
out=$1 seconds=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
mkdir -p "$work/results"

keep() { tar -czf "$out/.part" -C "$work/results" . 2>/dev/null && mv "$out/.part" "$out/results.tar.gz"; }
(while sleep 5; do keep; done) &
keeper=$!

python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$root"/dist/anneal-gpu-*.tar.xz "$work"
wheel=$(ls "$root"/dist/anneal-*-cp312-abi3-*.whl 2>/dev/null | head -1)
if [ -n "$wheel" ]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheel" >"$work/results/python.txt" 2>&1
  PYTHONPATH=$work/site ANNEAL_TEST_DEVICE=cuda timeout 60 python3 -m pytest -q -p no:cacheprovider \
    "$root/python/tests/test_gpu.py" >>"$work/results/python.txt" 2>&1 &
  python_tests=$!
fi
nvidia-smi >"$work/results/nvidia-smi.txt" 2>&1
if [ -n "${python_tests:-}" ]; then wait "$python_tests"; fi
timeout "$seconds" python3 "$work"/anneal-gpu-*/run.py --out "$work/results" --limit $((seconds - 8)) "$@" 2>&1 | tee "$work/results/run.txt"
status=$?
kill $keeper; wait $keeper 2>/dev/null
keep
python3 "$work"/anneal-gpu-*/run.py --summary "$work/results" | tail -120
if [ -f "$work/results/python.txt" ]; then tail -30 "$work/results/python.txt"; fi
exit $status
