#!/bin/bash
# Fails if a source file is not formatted as .clang-format says; with --fix, formats them all.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run --Werror)
[ "${1:-}" != --fix ] || mode=(-i)
tests/sources.py .h .cc .cuh | xargs -d '\n' -r -P "$(nproc)" -n 16 clang-format --style=file "${mode[@]}"
[ "${1:-}" = --fix ] || echo "format: clean"
