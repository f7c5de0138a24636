#!/bin/bash
# check.sh ANNEAL CASES KNOWN_FAILURES [FLAG...]: `anneal check`, or exit 77 (skipped) where the cases are not on this
# machine.
set -euo pipefail
[ -e "$2" ] || { echo "skipped: $2 is not there"; exit 77; }
exec "$1" check "$2" --known-failures "$3" --quiet --jobs 0 "${@:4}"
